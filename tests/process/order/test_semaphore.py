# SPDX-License-Identifier: MIT
"""Order by external semaphores (semaphore.c): the race oracle accuses a program that lacks it, and no other."""

import os
import subprocess

import pytest

from conftest import BUILD, clean_env, run

PROGRAM = BUILD / "tests" / "process" / "order" / "order_semaphore"
SETTINGS = [{}, {"CACHEALLOC_CONF": "reuse_slack_mb:0"}, {"CACHEALLOC_CONF": "reuse:finished,reuse_slack_mb:0"}]
CLOCKS = [{}, {"SIMCUDA_CLOCK": "manual"}, {"SIMCUDA_JITTER": "40:1"}]


def cases(wrong):
    if not PROGRAM.exists():
        return ["(no build)"]
    listed = subprocess.run([str(PROGRAM), "--list"], env=clean_env(), capture_output=True, text=True).stdout.split()
    return [case for case in listed if case.startswith("wrong_") == wrong]


def go(case, preload=False, **env):
    return run([PROGRAM, case], preload=preload, SIMCUDA_RACES="abort", SIMCUDA_DEADLOCK="20000", **env)


def sound(done):
    quiet = [line for line in done.stderr.splitlines() if "SIMCUDA_JITTER=" not in line]
    assert done.returncode == 0 and not quiet, (done.returncode, done.stderr[-3000:])


@pytest.mark.parametrize("case", cases(wrong=False))
def test_right(case):
    for clock in CLOCKS:
        sound(go(case, **clock))
        for setting in SETTINGS:
            sound(go(case, True, **clock, **setting))


@pytest.mark.skipif("CACHEALLOC_TEST_SANITIZER" in os.environ, reason="proves the oracle, not the library")
@pytest.mark.parametrize("case", cases(wrong=True))
def test_wrong(case):
    for clock in CLOCKS:
        done = go(case, **clock)
        assert done.returncode == -6 and done.stderr.count("sim_fill #") == 2, (done.returncode, done.stderr)
