# SPDX-License-Identifier: MIT
"""The host pauses after memory was handed out unfinished (lull.c): what is launched after the pause may wait for a stream
that is made later, and what is older is still waited for."""

import json

import pytest

from conftest import BUILD, MUTANTS, run

QUICK_EVERY = 4  # conftest.py
PROGRAM = BUILD / "tests" / "process" / "order" / "order_lull"
FED = ["fed_from_a_new_stream", "fed_after_more_work", "fed_after_a_set", "fed_after_many_small_blocks", "fed_after_two_pauses",
       "fed_in_the_default_stream", "fed_in_a_per_thread_stream", "fed_from_the_default_stream", "fed_from_another_device",
       "fed_from_another_thread", "fed_in_another_thread", "fed_after_a_capture"]
OLDER = ["older_work_goes_on", "older_work_goes_on_behind_a_capture"]
CLOCKS = {"real": {}, "manual": {"SIMCUDA_CLOCK": "manual"}, "jitter": {"SIMCUDA_JITTER": "40:1"}}
SETTINGS = ["", "reuse_slack_mb:0", "reuse:finished,reuse_slack_mb:0", "free_sync:host"]
#: the mark cannot be had, or cannot be asked: as if there had been no pause
FAILING = ["cuEventRecord:1:999", "cuEventRecord:1+:999", "cuEventCreate:1+:2", "cuEventQuery:1+:999",
           "cuStreamWaitEvent:1+:999"]


def go(case, preload=True, **env):
    return run([PROGRAM, case], preload=preload, timeout=60,
               **{"SIMCUDA_DEVICES": 2, "SIMCUDA_RACES": "abort", "SIMCUDA_DEADLOCK": "5000", **env})


def sound(done):
    quiet = [line for line in done.stderr.splitlines() if "SIMCUDA_JITTER=" not in line]
    assert done.returncode == 0 and not quiet, (done.returncode, done.stderr[-2000:])


def device_of(path):
    return json.loads(path.read_text())["devices"][0]


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("case", FED + OLDER)
def test_native(case, clock):
    sound(go(case, preload=False, **CLOCKS[clock]))


@pytest.mark.parametrize("conf", SETTINGS)
@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("case", FED + OLDER)
def test_with_the_library(case, clock, conf):
    sound(go(case, CACHEALLOC_CONF=conf, **CLOCKS[clock]))


@pytest.mark.parametrize("case", FED + OLDER)
def test_the_memory_was_handed_out_unfinished_and_the_host_did_not_wait(tmp_path, case):
    sound(go(case, CACHEALLOC_STATS=tmp_path / "ours.json", **CLOCKS["manual"]))
    ours = device_of(tmp_path / "ours.json")
    assert ours["taken_same_stream"] > 0 and ours["order_waits"] > 0 and ours["host_syncs"] == 0


@pytest.mark.parametrize("case", OLDER)
@pytest.mark.parametrize("failing", FAILING)
def test_a_mark_that_fails_changes_nothing(case, failing):
    for clock in CLOCKS.values():
        sound(go(case, SIMCUDA_FAIL=failing, **clock))


def test_marks_do_not_pile_up(tmp_path):
    """What a later pause finds done goes: the program asks the driver for nothing itself."""
    sound(go("pauses_without_end", CACHEALLOC_STATS=tmp_path / "ours.json", SIMCUDA_STATS=tmp_path / "sim.json"))
    calls = json.loads((tmp_path / "sim.json").read_text())["calls"]
    assert device_of(tmp_path / "ours.json")["order_marks"] >= 40
    assert calls["cuEventCreate"] <= 4


@pytest.mark.parametrize("case", OLDER)
def test_a_library_that_forgets_what_is_older_is_caught(case):
    if not MUTANTS.exists():
        pytest.skip("built without mutants")
    done = go(case, CACHEALLOC_TEST_MUTANT="OLDER_FORGOTTEN", **CLOCKS["manual"])
    assert done.returncode == -6 and "simcuda: race" in done.stderr, done.stderr[-2000:]


@pytest.mark.parametrize("case", FED[:2])
def test_a_library_that_waits_for_a_later_mark_is_caught(case):
    if not MUTANTS.exists():
        pytest.skip("built without mutants")
    done = go(case, CACHEALLOC_TEST_MUTANT="MARK_AT_GUARD", SIMCUDA_DEADLOCK=1000, **CLOCKS["manual"])
    assert done.returncode == -6 and "simcuda: deadlock" in done.stderr, done.stderr[-2000:]


@pytest.mark.parametrize("case", FED[:2])
def test_a_library_that_sees_no_pause_is_caught(case, pauses_unseen):
    done = go(case, SIMCUDA_DEADLOCK=1000, **CLOCKS["manual"], **pauses_unseen)
    assert done.returncode == -6 and "simcuda: deadlock" in done.stderr, done.stderr[-2000:]
