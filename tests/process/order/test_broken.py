# SPDX-License-Identifier: MIT
"""Assumptions about the driver are tried on it before several streams rest on them (broken.c): a driver that breaks one, or on
which none can be tried, is used with finished memory only, and no work is disturbed."""

import json

import pytest

from conftest import BUILD, MUTANTS, run

QUICK_EVERY = 4  # conftest.py
PROGRAM = BUILD / "tests" / "process" / "order" / "order_broken"
USERS = ["legacy_and_then_another", "legacy_and_then_the_host", "thread_that_has_ended", "another_thread_works",
         "legacy_before_the_others", "streams_that_wait_for_each_other", "a_second_stream_in_a_capture", "streams_of_several_threads",
         "work_begins_in_a_quiet_moment", "many_quiet_moments", "the_program_synchronizes",
         "a_slow_device"]
CASES = ["only_one_stream", "a_second_stream", *USERS]
LEGACY, CONTEXT = "legacy_record_early", "context_record_early"
CLOCKS = {"real": {}, "manual": {"SIMCUDA_CLOCK": "manual"}, "jitter": {"SIMCUDA_JITTER": "40:1"}}
#: what a trial calls, from a call on that is the library's own
FAILING = ["cuStreamWaitValue32_v2:1:999", "cuStreamWaitValue32_v2:2:999", "cuStreamWaitValue32_v2:1+:999",
           "cuStreamWaitValue32_v2:1+:801", "cuStreamWaitValue32_v2:1+:2", "cuMemHostAlloc:2+:2", "cuEventCreate:1:2", "cuEventCreate:2:2",
           "cuEventCreate:3:2",
           "cuEventCreate:1+:2", "cuCtxRecordEvent:1:999", "cuCtxRecordEvent:1+:999", "cuEventRecord:1:999",
           "cuEventRecord:2:999", "cuEventQuery:1:999", "cuEventQuery:2:999", "cuEventQuery:1+:600", "cuCtxPushCurrent_v2:1:999"]
TRIAL = ["cuMemHostAlloc", "cuEventCreate", "cuStreamCreate", "cuStreamWaitValue32_v2", "cuEventRecord", "cuCtxRecordEvent",
         "cuStreamDestroy_v2", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2"]
#: two kernels wait for each other
CROSSED = ["streams_that_wait_for_each_other", "work_begins_in_a_quiet_moment"]
#: memory goes to another stream before its user is through wherever that is allowed
EAGER = {"CACHEALLOC_CONF": "reuse_slack_mb:0"}


def go(case, preload=True, **env):
    return run([PROGRAM, case], preload=preload, timeout=60,
               **{"SIMCUDA_RACES": "abort", "SIMCUDA_DEADLOCK": "5000", **env})


def sound(done):
    quiet = [line for line in done.stderr.splitlines() if "SIMCUDA_JITTER=" not in line]
    assert done.returncode == 0 and not quiet, (done.returncode, done.stderr[-2000:])


def statistics(tmp_path, case, **env):
    """Of the library (device 0) and of the driver, and how often each entry point was called natively."""
    (tmp_path / "ours.json").unlink(missing_ok=True)
    sound(go(case, CACHEALLOC_STATS=tmp_path / "ours.json", SIMCUDA_STATS=tmp_path / "sim.json", **env))
    sound(go(case, preload=False, SIMCUDA_STATS=tmp_path / "native.json", **env))
    ours, sim, native = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("ours", "sim", "native"))
    return ours["devices"][0], sim["calls"], native["calls"]


def unfinished(ours):
    """How often memory was handed out before its user was through."""
    return ours["taken_exposed"] + ours["taken_same_stream"]


@pytest.mark.parametrize("assumptions", ["kept", LEGACY, CONTEXT])
@pytest.mark.parametrize("case", CASES)
def test_native(case, assumptions):
    sound(go(case, preload=False, SIMCUDA_BELIEFS=assumptions))


@pytest.mark.parametrize("assumptions, queues", [("kept", "many"), ("kept", "1"), (LEGACY, "many"), (CONTEXT, "many"),
                                                 (f"{LEGACY},{CONTEXT}", "1")])
@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("case", CASES)
def test_with_the_library(case, clock, assumptions, queues):
    if case == "many_quiet_moments" and clock != "real":
        pytest.skip("a second of the host's time, whatever the clock of the device")
    if queues == "1" and case in CROSSED:
        pytest.skip("waits for itself natively on a device with one queue")
    sound(go(case, SIMCUDA_BELIEFS=assumptions, SIMCUDA_QUEUES=queues, **CLOCKS[clock]))


@pytest.mark.parametrize("slow", ["cuStreamWaitValue32_v2:20ms", "cuEventRecord:20ms", "cuStreamWaitValue32_v2:3ms,cuEventRecord:3ms"])
@pytest.mark.parametrize("case", CROSSED)
def test_a_slow_trial_does_not_come_between(case, slow):
    sound(go(case, SIMCUDA_LATENCY=slow))


def test_a_trial_is_not_left_before_its_call_for_the_legacy_stream_returns():
    sound(go("legacy_and_then_two_that_wait", SIMCUDA_LATENCY="cuStreamWaitValue32_v2:600ms"))


@pytest.mark.parametrize("case, slow", [("a_capture_during_a_slow_trial", "cuStreamWaitValue32_v2:1500ms"),
                                        ("a_capture_during_a_slow_mark", "cuEventCreate:1500ms")])
def test_a_capture_that_begins_beside_slow_calls_survives(case, slow):
    """A begin-capture waits for calls of the library for a second at most."""
    sound(go(case, preload=False))
    sound(go(case, SIMCUDA_LATENCY=slow))


def test_where_they_are_kept_nothing_is_restricted(tmp_path):
    ours, _, _ = statistics(tmp_path, "legacy_and_then_another", **EAGER)
    assert ours["finished_only_reasons"] == [] and unfinished(ours) > 0


@pytest.mark.parametrize("assumption, reason", [(LEGACY, "legacy_record"), (CONTEXT, "context_record")])
def test_a_broken_one_is_found(tmp_path, assumption, reason):
    ours, _, _ = statistics(tmp_path, "legacy_and_then_another", **EAGER, SIMCUDA_BELIEFS=assumption)
    assert ours["finished_only_reasons"] == [reason] and unfinished(ours) == 0
    log = go("a_second_stream", SIMCUDA_BELIEFS=assumption, CACHEALLOC_LOG="info").stderr
    assert log.count("only finished memory is reused from now on") == 1, log


def test_freed_memory_without_a_mark_comes_back_by_a_synchronisation_of_the_program(tmp_path):
    ours, sim, native = statistics(tmp_path, "the_program_synchronizes", SIMCUDA_BELIEFS=CONTEXT)
    assert ours["finished_only_reasons"] == ["context_record"]
    assert ours["host_syncs"] == 0 and sim["cuCtxSynchronize"] == native["cuCtxSynchronize"]
    assert sim["cuMemAlloc_v2"] <= 3


def test_a_slow_device_is_not_taken_for_one_that_keeps_them():
    """A record of a trial that showed nothing is still to come when the next trial begins."""
    for _ in range(3):
        sound(go("a_slow_device", SIMCUDA_BELIEFS=LEGACY, **EAGER))


def test_a_device_that_is_busy_at_first_is_tried_again(tmp_path):
    ours, _, _ = statistics(tmp_path, "busy_at_first")
    assert ours["finished_only_reasons"] == []


def test_one_queue_shows_nothing_and_is_given_up(tmp_path):
    ours, _, _ = statistics(tmp_path, "many_quiet_moments", **EAGER, SIMCUDA_QUEUES="1")
    assert ours["finished_only_reasons"] == ["no_trial"] and unfinished(ours) == 0


def test_where_no_thread_can_be_made_it_is_given_up(tmp_path):
    ours, sim, _ = statistics(tmp_path, "no_thread_can_be_made", **EAGER)
    assert ours["finished_only_reasons"] == ["no_trial"] and unfinished(ours) == 0
    assert sim.get("cuStreamWaitValue32_v2", 0) == 0


def test_a_driver_that_cannot_wait_is_given_up_at_once(tmp_path):
    ours, sim, _ = statistics(tmp_path, "legacy_and_then_another", **EAGER, SIMCUDA_FAIL="cuStreamWaitValue32_v2:1+:801")
    assert ours["finished_only_reasons"] == ["no_trial"] and unfinished(ours) == 0
    assert sim["cuStreamWaitValue32_v2"] <= 2


def test_what_is_made_in_a_capture_is_tried_later(tmp_path):
    ours, _, _ = statistics(tmp_path, "a_second_stream_in_a_capture", **EAGER)
    assert ours["finished_only_reasons"] == [] and unfinished(ours) > 0


@pytest.mark.parametrize("legacy", [{}, {"ORDER_LEGACY": "1"}])
def test_one_stream_is_left_alone(tmp_path, legacy):
    ours, sim, native = statistics(tmp_path, "only_one_stream", **legacy)
    for name in ("cuStreamWaitValue32_v2", "cuMemHostAlloc", "cuCtxRecordEvent", "cuStreamCreate"):
        assert sim.get(name, 0) == native.get(name, 0)
    # a mark behind a pause of the host, which a busy machine makes by itself, is no trial's
    assert sim.get("cuEventCreate", 0) <= native.get("cuEventCreate", 0) + ours["order_marks"]


def test_a_trial_costs_at_most_twenty_calls(tmp_path):
    for _ in range(5):  # a busy machine may need a second trial
        _, sim, native = statistics(tmp_path, "a_second_stream")
        if sim["cuStreamWaitValue32_v2"] == 2:
            break
    assert sim["cuStreamWaitValue32_v2"] == 2
    # and twice which context is current, among the questions of other hooks
    assert sum(sim.get(name, 0) - native.get(name, 0) for name in TRIAL) + 2 <= 20, (sim, native)


@pytest.mark.parametrize("case", ["a_second_stream", "legacy_and_then_another", "thread_that_has_ended",
                                  "streams_that_wait_for_each_other", "streams_of_several_threads"])
@pytest.mark.parametrize("failing", FAILING)
def test_a_trial_that_fails_disturbs_nothing(case, failing):
    if failing == "cuMemHostAlloc:2+:2" and case in CROSSED:
        pytest.skip("the program needs more page-locked memory itself")
    if failing.startswith("cuEventQuery") or not failing.startswith(("cuEventCreate", "cuEventRecord", "cuCtxPush")):
        sound(go(case, SIMCUDA_FAIL=failing))
    else:
        done = go(case, SIMCUDA_FAIL=failing)
        assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("case, assumption", [("legacy_and_then_another", LEGACY), ("legacy_and_then_the_host", LEGACY),
                                          ("thread_that_has_ended", CONTEXT)])
def test_a_library_that_believes_without_a_trial_is_caught(case, assumption):
    if not MUTANTS.exists():
        pytest.skip("built without mutants")
    done = go(case, CACHEALLOC_TEST_MUTANT="ASSUMPTIONS_UNPROBED", SIMCUDA_BELIEFS=assumption)
    assert done.returncode == -6 and "simcuda: race" in done.stderr, done.stderr[-2000:]
