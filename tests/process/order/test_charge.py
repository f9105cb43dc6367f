# SPDX-License-Identifier: MIT
"""Free of charge, and memory: what the order of reuse costs the programs of charge.c in driver calls and in bytes.

Driver calls are compared with the native run (the simulated driver counts them); nothing is timed. Whoever must not be
waited for stands still until the others are through: a needless wait is a deadlock, which the simulated driver reports.
"""

import json

import pytest

from conftest import BUILD, run

QUICK_EVERY = 4  # conftest.py
PROGRAM = BUILD / "tests" / "process" / "order" / "order_charge"
MIB = 1 << 20
BIG = 12 * MIB
#: calls by which order is made or asked for; all ours, if there are more of them than natively
ORDER_CALLS = ("cuEventRecord", "cuEventRecord_ptsz", "cuEventRecordWithFlags", "cuEventRecordWithFlags_ptsz", "cuEventCreate",
               "cuEventDestroy_v2", "cuEventQuery", "cuEventSynchronize", "cuStreamWaitEvent", "cuStreamWaitEvent_ptsz",
               "cuStreamQuery", "cuStreamQuery_ptsz", "cuStreamSynchronize", "cuStreamSynchronize_ptsz",
               "cuCtxSynchronize", "cuCtxSynchronize_v2", "cuCtxRecordEvent", "cuCtxWaitEvent", "cuStreamIsCapturing",
               "cuStreamGetCaptureInfo", "cuStreamGetCaptureInfo_v2", "cuStreamGetCaptureInfo_v3")
RECORDS = ("cuEventRecord", "cuEventRecord_ptsz", "cuEventRecordWithFlags", "cuCtxRecordEvent")
DEVICE_WAITS = ("cuStreamWaitEvent", "cuStreamWaitEvent_ptsz", "cuCtxWaitEvent")
WAITS = (*DEVICE_WAITS, "cuEventSynchronize", "cuStreamSynchronize", "cuStreamSynchronize_ptsz", "cuCtxSynchronize",
         "cuCtxSynchronize_v2")


def go(tmp_path, case, preload=True, conf=None, **env):
    """(stdout words, the simulated driver's calls, our device 0)"""
    sim, ours = tmp_path / "sim.json", tmp_path / "ours.json"
    for path in (sim, ours):
        path.unlink(missing_ok=True)
    if conf:
        env["CACHEALLOC_CONF"] = conf
    if preload:
        env["CACHEALLOC_STATS"] = ours
    done = run([PROGRAM, case], preload=preload, check=0, SIMCUDA_RACES="abort", SIMCUDA_DEADLOCK="10000",
               SIMCUDA_STATS=sim, **env)
    assert done.stderr == ""
    device = json.loads(ours.read_text())["devices"][0] if preload else None
    return done.stdout.split(), json.loads(sim.read_text())["calls"], device


def added(tmp_path, case, conf=None, **env):
    """(calls of ORDER_CALLS that the native run did not make, all calls, our device 0)"""
    _, native, _ = go(tmp_path, case, preload=False, **env)
    _, calls, device = go(tmp_path, case, conf=conf, **env)
    more = {name: calls.get(name, 0) - native.get(name, 0) for name in ORDER_CALLS}
    return {name: n for name, n in more.items() if n}, calls, device


ONE_STREAM = ["one_legacy_stream", "one_created_stream", "one_blocking_stream", "one_per_thread_stream",
              "one_stream_all_sizes", "one_stream_and_two_threads"]


@pytest.mark.parametrize("clock", ["real", "manual"])
@pytest.mark.parametrize("case", ONE_STREAM)
def test_one_stream_costs_nothing(tmp_path, case, clock, pauses_unseen):
    more, _, ours = added(tmp_path, case, SIMCUDA_CLOCK=clock, **pauses_unseen)
    assert more == {}
    assert ours["order_marks"] == ours["order_waits"] == 0


@pytest.mark.parametrize("slack", [0, 256])
@pytest.mark.parametrize("case", ONE_STREAM)
def test_one_stream_needs_no_more_memory_however_far_ahead(tmp_path, case, slack):
    """With a manual clock nothing finishes: a thousand launches are ahead of the device."""
    _, _, ours = go(tmp_path, case, conf=f"reuse_slack_mb:{slack}", SIMCUDA_CLOCK="manual")
    assert ours["reserved_bytes"]["peak"] <= (80 * MIB if case == "one_stream_all_sizes" else 3 * BIG)
    assert ours["taken_same_stream"] > 400


# rounds of work and frees, bytes that the program has at most
WELL_ORDERED = {
    "fork_and_join": (100, 2 * BIG), "fork_and_join_3": (50, 2 * BIG), "fork_and_join_12": (50, 7 * BIG),
    "fork_and_join_30": (50, 16 * BIG), "copy_and_compute": (100, BIG),
}


@pytest.mark.parametrize("extents", [False, True])
@pytest.mark.parametrize("slack", [0, 48, 256])
@pytest.mark.parametrize("clock", ["real", "manual"])
@pytest.mark.parametrize("case", WELL_ORDERED)
def test_well_ordered_streams_get_no_wait(tmp_path, case, clock, slack, extents):
    """The frees of a round lie between two submissions of the one stream that has waited for all others: it is marked
    once, and no other. Without slack the copy stream may not have a second buffer before compute is through: then the
    device waits, once a round, and the host does not. Blocks that lie side by side in an extent are no different."""
    rounds, needed = WELL_ORDERED[case]
    waits = [name for name in WAITS if name not in DEVICE_WAITS] if case == "copy_and_compute" and not slack else WAITS
    for _ in range(5):  # a machine that takes the processor away for long keeps the trial of the driver from its result
        more, calls, ours = added(tmp_path, case, conf=f"reuse_slack_mb:{slack},expandable_segments:{extents}", SIMCUDA_CLOCK=clock,
                                  SIMCUDA_DEVICES=1)
        if more.get("cuCtxRecordEvent", 0) <= 2 and not any(more.get(name) for name in waits):
            break
    assert not {name: n for name, n in more.items() if name in waits}
    assert extents == ("cuMemMap" in calls)
    assert ours["order_waits"] <= (0 if waits is WAITS else rounds)
    # the trial of the driver (shim/track/assumptions.h) records six, two of them on the context
    assert sum(more.get(name, 0) for name in RECORDS) <= rounds + 6
    assert more.get("cuCtxRecordEvent", 0) <= 2
    assert ours["reserved_bytes"]["peak"] <= slack * MIB + needed * 5 // 4 + 4 * BIG


def test_a_prefetch_stream_overlaps_with_compute(tmp_path):
    words, _, ours = go(tmp_path, "prefetch_overlaps", SIMCUDA_CLOCK="manual")
    assert words == ["busy"]
    assert ours["order_waits"] == 0


@pytest.mark.parametrize("extents", [False, True])
@pytest.mark.parametrize("slack", [48, 256])
def test_a_busy_communication_stream_is_not_waited_for(tmp_path, slack, extents):
    words, _, _ = go(tmp_path, "communication_is_not_waited_for", conf=f"reuse_slack_mb:{slack},expandable_segments:{extents}",
                     SIMCUDA_CLOCK="manual", SIMCUDA_DEVICES=1)
    assert words == ["busy"]


@pytest.mark.parametrize("conf", [None, "reuse:finished"])
@pytest.mark.parametrize("case", ["beyond_compute_ends_beside_held_up_communication", "beyond_high_priority_beside_low",
                                  "beyond_high_priority_and_low_in_turn", "beyond_a_thread_beside_one_that_stands_still"])
def test_nobody_waits_for_one_that_stands_still(tmp_path, case, conf):
    _, _, ours = go(tmp_path, case, conf=conf)
    assert ours["order_waits"] == 0 or "beside_held_up" in case


def test_independent_threads_get_no_wait(tmp_path):
    _, calls, ours = go(tmp_path, "two_independent_threads")
    assert ours["order_waits"] == 0
    assert not [name for name in DEVICE_WAITS if calls.get(name)]


@pytest.mark.parametrize("conf", [None, "reuse:finished"])
@pytest.mark.parametrize("clock", ["real", "manual"])
def test_finished_memory_is_everybodys(tmp_path, clock, conf):
    words, _, _ = go(tmp_path, "found_after_synchronisation", conf=conf, SIMCUDA_CLOCK=clock)
    assert words == ["found"] * 4


@pytest.mark.parametrize("clock", ["real", "manual"])
@pytest.mark.parametrize("case, times", [("found_without_the_programs_help", 1), ("found_although_its_stream_is_gone", 4)])
def test_finished_memory_is_noticed(tmp_path, case, times, clock):
    words, _, _ = go(tmp_path, case, SIMCUDA_CLOCK=clock)
    assert words == ["found"] * times


@pytest.mark.parametrize("clock", ["real", "manual"])
def test_nothing_is_stranded_on_dead_streams(tmp_path, clock):
    _, _, ours = go(tmp_path, "nothing_is_stranded_on_dead_streams", SIMCUDA_CLOCK=clock)
    assert ours["reserved_bytes"]["peak"] <= 4 * BIG


@pytest.mark.parametrize("slack", [0, 16, 256])
def test_a_busy_second_stream_costs_the_slack_at_most(tmp_path, slack):
    _, _, ours = go(tmp_path, "a_busy_second_stream", conf=f"reuse_slack_mb:{slack}", SIMCUDA_CLOCK="manual")
    assert ours["reserved_bytes"]["peak"] <= slack * MIB + 4 * BIG


@pytest.mark.parametrize("slack", [0, 16, 256])
def test_two_threads_cost_the_slack_at_most(tmp_path, slack):
    _, _, ours = go(tmp_path, "two_independent_threads", conf=f"reuse_slack_mb:{slack}")
    assert ours["reserved_bytes"]["peak"] <= slack * MIB + 6 * BIG


@pytest.mark.parametrize("slack", [0, 256])
@pytest.mark.parametrize("clock", ["real", "manual"])
def test_a_question_for_a_range_waits_for_nothing(tmp_path, clock, slack, pauses_unseen):
    more, _, ours = added(tmp_path, "address_ranges", conf=f"reuse_slack_mb:{slack}", SIMCUDA_CLOCK=clock, **pauses_unseen)
    assert not [name for name in more if name.startswith(("cuCtxSynchronize", "cuCtxRecordEvent", "cuStreamSynchronize",
                                                          "cuEventSynchronize", "cuEventRecord"))], more
    assert ours["settles"] == ours["order_marks"] == 0
    assert clock == "real" or ours["taken_same_stream"] > 90


@pytest.mark.parametrize("clock", ["real", "manual"])
def test_no_hidden_waits_in_a_steady_state(tmp_path, clock):
    _, calls, ours = go(tmp_path, "steady_state", SIMCUDA_CLOCK=clock)
    assert ours["host_syncs"] == 0
    assert calls.get("cuMemFree_v2", 0) == ours["driver_free_calls"] == 0


def test_what_may_wait_is_counted(tmp_path):
    """Every segment that goes back does so by a call that waits natively."""
    _, calls, ours = go(tmp_path, "memory_runs_short", SIMCUDA_MEM="96M", SIMCUDA_CLOCK="manual")
    assert calls["cuMemFree_v2"] == ours["driver_free_calls"] > 0
    assert ours["host_syncs"] >= ours["driver_free_calls"]


@pytest.mark.parametrize("clock", ["real", "manual"])
def test_memory_of_dead_graphs_comes_back(tmp_path, clock):
    words, _, _ = go(tmp_path, "memory_of_dead_graphs_comes_back", SIMCUDA_CLOCK=clock)
    assert words == ["found"] * 3
