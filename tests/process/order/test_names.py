# SPDX-License-Identifier: MIT
"""Every copy, set and work on managed memory that cuda_names.def has (names.c): the simulator builds what the library
hooks and the other way round, the race oracle judges each by itself, and the library orders each. What is on neither
side, or cannot be called, has its reason below."""

import os
import re
import subprocess

import pytest

from conftest import BUILD, MUTANTS, ROOT, clean_env, run

PROGRAM = BUILD / "tests" / "process" / "order" / "order_names"
KINDS = re.compile(r"cuMem(cpy|set|Prefetch|Discard)|cuStreamAttachMem")
SCENES = ("unordered", "ordered", "after_blocking", "first", "last")
#: reason -> names
NOT_CALLED = {
    "CUDA 2: addresses of 32 bits, which no memory has; built, refuses, no hook":
        r"cuMemcpy(HtoD|DtoH|DtoD)(Async)?|cuMemsetD(8|16|32)",
    "CUDA 2: structures, offsets and sizes of 32 bits; neither built nor hooked":
        r"cuMemcpy(2D|2DUnaligned|3D)|cuMemcpy(2D|3D)Async|cuMemcpy(AtoA|AtoD|DtoA)|cuMemcpy(AtoH|HtoA)(Async)?|"
        r"cuMemsetD2D(8|16|32)",
}
BUILT_ALONE = "CUDA 2: addresses of 32 bits, which no memory has; built, refuses, no hook"


def text(*path):
    return (ROOT.joinpath(*path)).read_text(encoding="utf-8")


def rows(source, macros):
    """Symbols of the rows of a table, twins included."""
    found = set()
    for macro, first, second in re.findall(rf"^({macros})\((\w+),\s*(\w*)", source, re.M):
        found |= {first, first + second} if macro.endswith("TWINS") else {first}
    return found


def listed():
    return {name for name in re.findall(r"^CA_NAME\((\w+)", text("shim", "bind", "cuda_names.def"), re.M) if KINDS.match(name)}


def built():
    return {name for name in rows(text("tests", "sim", "entries.def"), "SIM_ENTRY|SIM_TWINS") if KINDS.match(name)}


def hooked():
    both = text("shim", "bind", "hooks.def") + text("shim", "bind", "submit.def")
    return {name for name in rows(both, r"CA_(?!NEED)\w+") if KINDS.match(name)}


def cases():
    """{name: its scenes}"""
    if not PROGRAM.exists():
        return {"(no build)": []}
    found = {}
    for case in subprocess.run([str(PROGRAM), "--list"], env=clean_env(), capture_output=True, text=True).stdout.split():
        name, scene = re.fullmatch(rf"(\w+?)_({'|'.join(SCENES)})", case).groups()
        found.setdefault(name, []).append(scene)
    return found


CASES = cases()


def go(name, scene, preload=False, **env):
    return run([PROGRAM, f"{name}_{scene}"], preload=preload, SIMCUDA_RACES="abort", SIMCUDA_DEADLOCK="20000",
               SIMCUDA_DRIVER_VERSION="13050", **env)


def sound(done):
    assert (done.returncode, done.stderr) == (0, "")


def accused(done):
    """The row, by the name that the oracle gives what it does."""
    name = str(done.args)
    does = "set" if "Memset" in name else "copy" if "Memcpy" in name else \
        "attach" if "Attach" in name else "discard" if "Discard" in name else "prefetch"
    assert done.returncode == -6, (done.returncode, done.stderr)
    assert re.findall(r"^  now: (\w+) #", done.stderr, re.M) == [does], done.stderr


def test_each_is_called_or_has_a_reason():
    why = {name: [reason for reason, names in NOT_CALLED.items() if re.fullmatch(names, name)] for name in listed()}
    assert {name: why[name] for name in why if len(why[name]) != (name not in CASES)} == {}
    assert set(CASES) <= set(listed())
    for reason, names in NOT_CALLED.items():
        found = sorted(name for name in why if reason in why[name])
        assert found, reason
        print(f"{reason}: {', '.join(found)}")


def test_simulator_and_hooks_agree():
    alone = {name for name in listed() if re.fullmatch(NOT_CALLED[BUILT_ALONE], name)}
    assert built() - hooked() == alone
    assert hooked() - built() == set()
    assert set(CASES) == built() & hooked()


@pytest.mark.skipif("CACHEALLOC_TEST_SANITIZER" in os.environ, reason="proves the oracle, not the library")
@pytest.mark.parametrize("name", CASES)
def test_the_oracle_judges(name):
    for clock in ("real", "manual"):
        accused(go(name, "unordered", SIMCUDA_CLOCK=clock))
        sound(go(name, "ordered", SIMCUDA_CLOCK=clock))
    if "after_blocking" in CASES[name]:  # NULL is the legacy stream, or the thread's own
        (accused if re.search("_pt[sd][sz]$", name) else sound)(go(name, "after_blocking", SIMCUDA_CLOCK="manual"))


@pytest.mark.parametrize("name", [name for name in CASES if "first" in CASES[name]])
def test_the_library_orders(name):
    for scene in ("first", "last"):
        sound(go(name, scene, SIMCUDA_CLOCK="manual"))
        for clock in ("real", "manual"):
            sound(go(name, scene, True, SIMCUDA_CLOCK=clock, CACHEALLOC_CONF="reuse_slack_mb:0"))


@pytest.mark.skipif("CACHEALLOC_TEST_SANITIZER" in os.environ, reason="proves the oracle, not the library")
@pytest.mark.parametrize("name", [name for name in CASES if "first" in CASES[name]])
def test_the_oracle_accuses_a_next_life_that_begins_early(name):
    accused(go(name, "first", LD_PRELOAD=MUTANTS, CACHEALLOC_TEST_MUTANT="REUSE_AT_ONCE", SIMCUDA_CLOCK="manual"))
