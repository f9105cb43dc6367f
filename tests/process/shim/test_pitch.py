# SPDX-License-Identifier: MIT
"""Pitched memory: the driver is asked for a pitch once, and rows come from the cache from then on."""

import json

import pytest

from conftest import BUILD, run

QUICK_EVERY = 4  # conftest.py
PROGRAM = BUILD / "tests" / "process" / "shim" / "cases_pitch"
CASES = ["answers", "many_shapes", "again_and_again", "two_devices", "threads", "unfinished"]
SETTINGS = {"default": "", "finished": "reuse:finished", "host": "free_sync:host", "no_slack": "reuse_slack_mb:0",
            "tended": "trim_every:1", "zero": "zero:True"}


@pytest.mark.parametrize("clock", ["real", "manual:16"])
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("case", CASES)
def test_same_answers(case, setting, clock):
    env = {"SIMCUDA_DEVICES": 2, "SIMCUDA_CLOCK": clock, "SIMCUDA_RACES": "abort"}
    native = run([PROGRAM, case], preload=False, check=0, **env)
    ours = run([PROGRAM, case], check=0, CACHEALLOC_CONF=SETTINGS[setting], **env)
    assert (ours.stdout, ours.stderr) == (native.stdout, native.stderr)


@pytest.mark.parametrize("disable", ["1", "count"])
def test_same_answers_when_disabled(disable):
    native = run([PROGRAM, "answers"], preload=False, check=0)
    assert run([PROGRAM, "answers"], check=0, CACHEALLOC_DISABLE=disable).stdout == native.stdout


def calls(tmp_path, case, **env):
    ours, sim = tmp_path / "ours.json", tmp_path / "sim.json"
    run([PROGRAM, case], check=0, SIMCUDA_DEVICES=2, SIMCUDA_STATS=sim, CACHEALLOC_STATS=ours, **env)
    return json.loads(ours.read_text())["devices"][0], json.loads(sim.read_text())["calls"]


def test_a_thousand_pairs_take_two_allocations_of_the_driver(tmp_path):
    ours, sim = calls(tmp_path, "again_and_again")
    assert sim["cuMemAllocPitch_v2"] == 1 and sim["cuMemAlloc_v2"] == 1
    assert ours["alloc_calls"] == ours["free_calls"] == 1000


def test_each_context_asks_its_own_driver(tmp_path):
    assert calls(tmp_path, "two_devices")[1]["cuMemAllocPitch_v2"] == 3


def test_more_shapes_than_are_kept_are_asked_for_again(tmp_path):
    asked = calls(tmp_path, "many_shapes")[1]["cuMemAllocPitch_v2"]
    assert 999 <= asked <= 1998, asked


def test_where_there_is_a_limit_the_rows_count(tmp_path):
    done = run([PROGRAM, "again_and_again"], CACHEALLOC_LIMIT="20K", CACHEALLOC_LOG="error")
    assert done.returncode == 1 and "cuMemAllocPitch_v2" in done.stderr, done.stderr
    for extents in (False, True):
        run([PROGRAM, "again_and_again"], check=0, CACHEALLOC_LIMIT="30720", CACHEALLOC_CONF=f"expandable_segments:{extents}")
