# SPDX-License-Identifier: MIT
"""Every entry point that has to do with streams or device memory is wrapped, waited for, or left alone for a reason."""

import os
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

import classified
from abi_source import hook_rows, submit_rows
from classified import NEITHER, WAITS, classes, facts, facts_of, matches, table, version_of
from toolkit import find_toolkit

SUBMITTING = {row[1] for row in submit_rows()}


def toolkits():
    """Every folder with headers that can be found: installed ones, wheels of this Python's, $CACHEALLOC_TEST_TOOLKITS."""
    roots = [find_toolkit(), *Path("/usr/local").glob("cuda-*"), Path("/usr")]
    roots += [root for path in sys.path if path for root in Path(path).glob("nvidia/c*")]
    roots += [Path(path) for path in os.environ.get("CACHEALLOC_TEST_TOOLKITS", "").split(":") if path]
    found = {(root / "include").resolve() for root in roots if root and (root / "include" / "cudaTypedefs.h").is_file()}
    return sorted(found, key=version_of)


def test_each_is_one_of_three():
    claims = {symbol: classes(symbol, why, SUBMITTING) for symbol, (why, _) in facts().items()}
    assert {symbol: claim for symbol, claim in claims.items() if len(claim) != 1} == {}
    print(f"\n{len(claims)} entry points of CUDA 12.0 to 13.0 have to do with streams or device memory:")
    for text, count in sorted(Counter(claim[0] for claim in claims.values()).items()):
        print(f"  {count:4} {text}")


def test_nothing_is_claimed_of_what_does_not_exist():
    assert SUBMITTING - set(facts()) == set()
    stale = [pattern for pattern in [*WAITS, *NEITHER.values()]
             for part in ([pattern] if "(" in pattern or "\\" in pattern else pattern.split("|"))
             if not any(matches(part, symbol, why) for symbol, (why, _) in facts().items())]
    assert stale == []


def test_twins_are_claimed_alike():
    """Where a name has a per-thread twin, wrapping one and not the other would be a hole."""
    for symbol in facts():
        plain = re.sub(r"_pt[ds][sz]$", "", symbol)
        if plain != symbol:
            assert (symbol in SUBMITTING) == (plain in SUBMITTING), symbol


def test_what_waits_or_is_called_hooked_is_hooked():
    hooked = {row[1] for row in hook_rows() if row[0] == "HOOK"}
    named = [*WAITS, *(pattern for reason, pattern in NEITHER.items() if reason.endswith(": hooked"))]
    missing = [symbol for symbol, (why, _) in facts().items() if symbol not in hooked
               and any(matches(pattern, symbol, why) for pattern in named)]
    assert missing == []


def test_facts_are_those_of_every_toolkit():
    seen = toolkits()
    if not seen:
        pytest.skip("no CUDA headers (looked at $CUDA_HOME, nvcc on PATH, /usr/local/cuda*, $CACHEALLOC_TEST_TOOLKITS)")
    known = table()
    for include in seen:
        version, (found, unknown) = version_of(include), facts_of(include)
        expected = {symbol: why for symbol, (why, since) in facts().items()
                    if max(known[symbol][1], since) <= version}
        assert found == expected, include
        print(f"\nCUDA {version}: {len(found)} entry points compared; {len(unknown)} unknown to cuda_names.def"
              + (" (called, they count as work never seen): " if unknown else "") + ", ".join(unknown))


PLANTED = [
    ("cuMemcpyHtoD_v2", lambda submitting: submitting - {"cuMemcpyHtoD_v2"}, []),
    ("cuStreamQuery", lambda submitting: submitting | {"cuStreamQuery"}, ["submits", "waits: the stream has finished"]),
]


@pytest.mark.parametrize("symbol, change, expected", PLANTED)
def test_a_gap_and_a_double_are_found(symbol, change, expected):
    assert classes(symbol, facts()[symbol][0], change(SUBMITTING)) == expected


def test_structures_within_structures_are_found():
    header = """
typedef struct CUinner_st { CUstream s; } CUinner_v1;
typedef CUinner_v1 CUinner;
typedef struct CUother_st { int n; } CUother;
typedef struct CUouter_st {
    int n;
    union {
        CUinner inner[2];
    };
} CUouter;
"""
    header = re.sub(r"\{ (.*?) \}", r"{\n\1\n}", header)
    found = classified.carriers(header)
    assert {"CUinner", "CUouter"} <= set(found) and "CUother" not in found
    assert classified.interest("cuX", "const CUouter *params", found) == "CUouter"
    assert classified.interest("cuX", "const CUother *params", found) is None
