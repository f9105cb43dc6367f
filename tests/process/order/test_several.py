# SPDX-License-Identifier: MIT
"""Memory that several streams use (several.c): each of them is waited for, by whoever uses it next."""

import json
import os
import random

import pytest

from conftest import BUILD, MUTANTS, run

PROGRAM = BUILD / "tests" / "process" / "order" / "order_several"
CASES = ["two_users", "two_users_inherited", "two_users_of_each_piece", "two_users_of_what_a_set_names",
         "an_own_stamp_older_than_the_wait"]
PROGRAMS = [*CASES, "a_neighbour_that_becomes_its_own"]
CLOCKS = [{"SIMCUDA_CLOCK": "manual"}, {}, {"SIMCUDA_JITTER": "40:1"}]
SETTINGS = ["", "reuse_slack_mb:0", "reuse:finished,reuse_slack_mb:0", "free_sync:host"]


def go(case, preload=True, **env):
    return run([PROGRAM, case], preload=preload, timeout=60, SIMCUDA_RACES="abort", SIMCUDA_DEADLOCK="20000", **env)


@pytest.mark.parametrize("case", PROGRAMS)
def test_native(case):
    for clock in CLOCKS:
        assert go(case, preload=False, **clock).returncode == 0


@pytest.mark.parametrize("conf", SETTINGS)
@pytest.mark.parametrize("case", PROGRAMS)
def test_with_the_library(case, conf):
    for clock in CLOCKS:
        done = go(case, CACHEALLOC_CONF=conf, **clock)
        assert done.returncode == 0, (clock, done.stderr[-2000:])


@pytest.mark.parametrize("case", CASES)
def test_they_are_handed_out(tmp_path, case):
    ours = tmp_path / "ours.json"
    done = go(case, SIMCUDA_CLOCK="manual", CACHEALLOC_CONF="reuse_slack_mb:0", CACHEALLOC_STATS=ours)
    device = json.loads(ours.read_text())["devices"][0]
    assert (done.returncode, device["host_syncs"]) == (0, 0)
    assert device["exposed_several"] > 0


@pytest.mark.parametrize("mutant, case", [
    *(("ONE_USER_UNGUARDED", case) for case in CASES[:3]), ("OLD_STAMP_STANDS", CASES[-1])])
def test_mutant_is_caught(mutant, case):
    if not MUTANTS.exists():
        pytest.skip("built without mutants")
    done = go(case, preload=False, SIMCUDA_CLOCK="manual", CACHEALLOC_CONF="reuse_slack_mb:0", LD_PRELOAD=MUTANTS,
              CACHEALLOC_TEST_MUTANT=mutant)
    assert done.returncode == -6 and "simcuda: race" in done.stderr, done.stderr[-2000:]


@pytest.mark.parametrize("conf", SETTINGS)
@pytest.mark.parametrize("clock", ["manual", "real"])
def test_random(clock, conf):
    seed = os.environ.get("CACHEALLOC_TEST_SEED", random.SystemRandom().randrange(1 << 32))
    done = go("random", SIMCUDA_CLOCK=clock, CACHEALLOC_CONF=conf, ORDER_SEED=seed, ORDER_OPERATIONS=4000)
    print(f"CACHEALLOC_TEST_SEED={seed}")
    assert done.returncode == 0, (seed, done.stderr[-2000:])
