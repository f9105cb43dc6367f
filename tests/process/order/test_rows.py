# SPDX-License-Identifier: MIT
"""Work of every kind on memory that was freed while it was in use (rows.c): right natively and with the library; and
where a library makes a mistake, the race oracle accuses the row itself."""

import os
import re
import subprocess

import pytest

from conftest import BUILD, MUTANTS, clean_env, run

PROGRAM = BUILD / "tests" / "process" / "order" / "order_rows"
SETTINGS = [{}, {"CACHEALLOC_CONF": "reuse_slack_mb:0"}, {"CACHEALLOC_CONF": "reuse:finished,reuse_slack_mb:0"},
            {"SIMCUDA_MEM": "320M", "CACHEALLOC_CONF": "reuse_slack_mb:0"}]
CLOCKS = [{}, {"SIMCUDA_CLOCK": "manual"}, {"SIMCUDA_JITTER": "40:1"}]
#: how the oracle names what a row submits
CALLED = {"cooperative": "sim_fill"}


def cases():
    if not PROGRAM.exists():
        return ["(no build)"]
    return subprocess.run([str(PROGRAM), "--list"], env=clean_env(), capture_output=True, text=True).stdout.split()


def go(case, preload=False, **env):
    return run([PROGRAM, case], preload=preload, SIMCUDA_RACES="abort", SIMCUDA_DEADLOCK="20000",
               SIMCUDA_DRIVER_VERSION="13050", **env)


def sound(done):
    quiet = [line for line in done.stderr.splitlines() if "SIMCUDA_JITTER=" not in line]
    assert done.returncode == 0 and not quiet, (done.returncode, done.stderr[-3000:])


@pytest.mark.parametrize("case", cases())
def test_native(case):
    for clock in CLOCKS:
        sound(go(case, **clock))


@pytest.mark.parametrize("case", cases())
def test_with_the_library(case):
    for clock in CLOCKS:
        for setting in SETTINGS:
            sound(go(case, True, **clock, **setting))


@pytest.mark.skipif("CACHEALLOC_TEST_SANITIZER" in os.environ, reason="proves the oracle, not the library")
@pytest.mark.parametrize("case", cases())
def test_the_oracle_accuses_the_row(case):
    """The same programs, and a library that says of every mark that it is done."""
    done = go(case, LD_PRELOAD=MUTANTS, CACHEALLOC_TEST_MUTANT="REUSE_AT_ONCE", SIMCUDA_CLOCK="manual")
    assert done.returncode == -6, done.stderr
    sides = re.findall(r"^  (before|now): (\w+) #", done.stderr, re.M)
    name = CALLED.get(case.split("_")[0], "copy")
    assert dict(sides)["now" if case.endswith("_first") else "before"] == name, done.stderr
