# SPDX-License-Identifier: MIT
"""Memory that streams of green contexts use (green.c): right natively and with the library; and where a library does not
know of green contexts, the race oracle accuses what they do."""

import json
import os
import subprocess

import pytest

from conftest import BUILD, MUTANTS, clean_env, run

PROGRAM = BUILD / "tests" / "process" / "order" / "order_green"
SETTINGS = [{}, {"CACHEALLOC_CONF": "reuse_slack_mb:0"}, {"CACHEALLOC_CONF": "reuse:finished,reuse_slack_mb:0"},
            {"CACHEALLOC_CONF": "free_sync:host"}, {"SIMCUDA_MEM": "320M", "CACHEALLOC_CONF": "reuse_slack_mb:0"}]
CLOCKS = [{}, {"SIMCUDA_CLOCK": "manual"}, {"SIMCUDA_JITTER": "40:1"}]
#: what a free waits for is all that these have against a race
ACCUSED = ("old_user", "next_user", "one_after_another", "made_after_the_memory", "made_after_the_free",
           "launched_as_a_graph", "default_stream", "next_on_the_default_stream", "stream_made_in_it", "destroyed_meanwhile",
           "stream_destroyed_meanwhile")


def cases():
    if not PROGRAM.exists():
        return ["(no build)"]
    return subprocess.run([str(PROGRAM), "--list"], env=clean_env(), capture_output=True, text=True).stdout.split()


def go(case, preload=False, **env):
    return run([PROGRAM, case], preload=preload, SIMCUDA_RACES="abort", SIMCUDA_DEADLOCK="20000", **env)


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
            for warm in ({}, {"ORDER_WARM": "1"}):
                sound(go(case, True, **clock, **setting, **warm))


def test_cached_memory_makes_room_for_a_green_context():
    sound(go("made_after_the_free", True, SIMCUDA_FAIL="cuGreenCtxCreate:1:2"))


def test_a_context_of_a_gone_green_ones_handle_is_cached(tmp_path):
    sound(go("the_handle_comes_back", True, SIMCUDA_STATS=tmp_path / "sim.json"))
    assert json.loads((tmp_path / "sim.json").read_text())["calls"]["cuMemAlloc_v2"] < 10


@pytest.mark.skipif("CACHEALLOC_TEST_SANITIZER" in os.environ, reason="proves the oracle, not the library")
@pytest.mark.parametrize("case", ACCUSED)
def test_the_oracle_accuses_streams_of_green_contexts(case):
    done = go(case, LD_PRELOAD=MUTANTS, CACHEALLOC_TEST_MUTANT="GREEN_UNSEEN", CACHEALLOC_CONF="reuse_slack_mb:0",
              SIMCUDA_CLOCK="manual")
    assert done.returncode == -6 and "simcuda: race" in done.stderr, (done.returncode, done.stderr)
