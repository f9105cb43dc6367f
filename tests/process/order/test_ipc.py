# SPDX-License-Identifier: MIT
"""Memory of other processes (ipc.c), natively and with the library: shared between two processes, and the alias of a
process's own memory, which the race oracle takes for that memory."""

import os
import subprocess

import pytest

from conftest import BUILD, MUTANTS, clean_env, run

PROGRAM = BUILD / "tests" / "process" / "order" / "order_ipc"
SETTINGS = [{}, {"CACHEALLOC_CONF": "reuse_slack_mb:0"}]
CLOCKS = [{}, {"SIMCUDA_CLOCK": "manual"}]


def cases(wrong):
    if not PROGRAM.exists():
        return ["(no build)"]
    listed = subprocess.run([str(PROGRAM), "--list"], env=clean_env(), capture_output=True, text=True).stdout.split()
    return [case for case in listed if case.startswith("wrong_") == wrong]


def go(case, folder, preload=False, **env):
    where = "self" if case.startswith(("self_", "wrong_")) else folder
    return run([PROGRAM, case], preload=preload, SIMCUDA_IPC=where, SIMCUDA_RACES="abort", SIMCUDA_MEM="256M",
               SIMCUDA_DEADLOCK="20000", **env)


def sound(done):
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("case", cases(wrong=False))
def test_right(case, tmp_path):
    for clock in CLOCKS:
        sound(go(case, tmp_path, **clock))
        for setting in SETTINGS:
            sound(go(case, tmp_path, True, **clock, **setting))


@pytest.mark.skipif("CACHEALLOC_TEST_SANITIZER" in os.environ, reason="proves the oracle, not the library")
@pytest.mark.parametrize("case", cases(wrong=True))
def test_wrong(case, tmp_path):
    for clock in CLOCKS:
        done = go(case, tmp_path, **clock)
        assert done.returncode == -6 and "simcuda: race" in done.stderr, (done.returncode, done.stderr)


@pytest.mark.skipif("CACHEALLOC_TEST_SANITIZER" in os.environ, reason="proves the programs, not the library")
def test_a_block_that_is_not_settled_is_seen(tmp_path):
    done = go("settled_before_it_is_given_away", tmp_path, LD_PRELOAD=MUTANTS, CACHEALLOC_TEST_MUTANT="SETTLE_SKIPPED",
              CACHEALLOC_CONF="reuse_slack_mb:0", SIMCUDA_CLOCK="manual")
    assert done.returncode == 1 and "order_wrong(memory, 9)" in done.stderr, (done.returncode, done.stderr)
