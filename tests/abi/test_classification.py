# SPDX-License-Identifier: MIT
"""Every entry point that has to do with streams or device memory is wrapped, waited for, or left alone for a reason."""

import re
from collections import Counter

import pytest

import classified
from abi_source import hook_rows, submit_rows
from classified import NEITHER, WAITS, classes, facts, facts_of, matches, prototypes, table
from toolkit import FETCHED, roots, version_of

SUBMITTING = {row[1] for row in submit_rows()}


def test_each_is_one_of_three():
    claims = {symbol: classes(symbol, why, SUBMITTING) for symbol, (why, _) in facts().items()}
    assert {symbol: claim for symbol, claim in claims.items() if len(claim) != 1} == {}
    print(f"\n{len(claims)} entry points have to do with streams or device memory:")
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


def headers():
    """One parameter for each version of cuda.h that is here."""
    found = [pytest.param(root / "include", id=str(version_of(root / "include"))) for root in roots()]
    why = "no CUDA headers (build-headers of scripts/setup.sh, $CUDA_HOME, /usr/local/cuda*, $CACHEALLOC_TEST_TOOLKITS)"
    return found or [pytest.param(None, marks=pytest.mark.skip(reason=why))]


@pytest.mark.parametrize("include", headers())
def test_facts_are_those_of_every_toolkit(include):
    known, version, there = table(), version_of(include), prototypes(include)
    found, unknown = facts_of(include)
    expected = {symbol: why for symbol, (why, since) in facts().items() if known[symbol] in there and since <= version}
    assert found == expected, include
    print(f"\nCUDA {version}: {len(found)} entry points compared; {len(unknown)} unknown to cuda_names.def"
          + (" (called, they count as work never seen): " if unknown else "") + ", ".join(unknown))


@pytest.mark.parametrize("include", headers())
def test_every_name_of_the_headers_that_setup_fetches_is_known(include):
    if FETCHED not in include.parents:
        pytest.skip("not fetched by scripts/setup.sh: may be newer than the table")
    assert facts_of(include)[1] == []


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
