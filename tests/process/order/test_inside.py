# SPDX-License-Identifier: MIT
"""A program that the driver calls back in the midst of a call, and that frees there (inside.c): it is right natively and
with the library."""

import json
import subprocess

import pytest

from conftest import BUILD, clean_env, run

PROGRAM = BUILD / "tests" / "process" / "order" / "order_inside"
CLOCKS = [{}, {"SIMCUDA_CLOCK": "manual"}]
#: it wants a full device
FULL = "told_freed_inside_beside_frees"
SETTINGS = ["", "reuse_slack_mb:0", "async:pool,pinned:cache", "async:keep,reuse:finished", "free_sync:host"]


def cases():
    if not PROGRAM.exists():
        return ["(no build)"]
    listed = subprocess.run([str(PROGRAM), "--list"], env=clean_env(), capture_output=True, text=True).stdout.split()
    return [case for case in listed if case != FULL]


def go(case, preload, latency="cuMemGetInfo_v2:1ms,cuEventRecord:400us,cuStreamWaitEvent:400us", **env):
    done = run([PROGRAM, case], preload=preload, SIMCUDA_RACES="abort", SIMCUDA_DEADLOCK="20000", SIMCUDA_LATENCY=latency, **env)
    assert (done.returncode, done.stderr) == (0, ""), (env, done.returncode, done.stderr[-3000:])
    return done.stdout


@pytest.mark.parametrize("case", cases())
def test_native(case):
    for clock in CLOCKS:
        go(case, False, **clock)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("case", cases())
def test_with_the_library(case, setting):
    for clock in CLOCKS:
        go(case, True, CACHEALLOC_CONF=setting, **clock)


def test_none_of_many_frees_is_lost(tmp_path):
    go("many_freed_inside", True, CACHEALLOC_STATS=tmp_path / "stats.json")
    assert json.loads((tmp_path / "stats.json").read_text())["devices"][0]["requested_bytes"]["current"] == 0


def test_another_thread_looks_at_the_same_moment():
    for preload in False, True:
        go(FULL, preload, "cuMemGetInfo_v2:200us", CACHEALLOC_CONF="async:pool", CACHEALLOC_LOG="off", SIMCUDA_MEM="256M")


def test_the_library_is_called_back_in_its_own_calls():
    assert go("freed_in_the_librarys_call", False) == "0 inside\n"
    assert go("freed_in_the_librarys_call", True, CACHEALLOC_CONF="reuse_slack_mb:0", SIMCUDA_CLOCK="manual") == "4 inside\n"
