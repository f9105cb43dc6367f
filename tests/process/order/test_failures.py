# SPDX-License-Identifier: MIT
"""Rule T15: each of our internal calls fails in turn, the n-th of each name, n = 1, 2, 3 ... until a run sees no failure.

The program must not notice: its contents are right, nothing is launched unguarded (the race oracle), nothing hangs.
"""

import json

import pytest

from conftest import BUILD, run

QUICK_EVERY = 4  # conftest.py
PROGRAM = BUILD / "tests" / "process" / "order" / "order_failure"
CASES = ["streams_of_all_kinds", "streams_that_die", "captures_and_graphs", "little_memory"]
#: what the programs of failure.c never call themselves
OURS = ["cuEventRecord", "cuEventRecord_ptsz", "cuEventRecordWithFlags", "cuEventCreate", "cuEventDestroy_v2", "cuEventQuery",
        "cuEventSynchronize", "cuStreamWaitEvent", "cuStreamWaitEvent_ptsz", "cuCtxRecordEvent", "cuStreamQuery",
        "cuStreamSynchronize", "cuStreamSynchronize_ptsz", "cuCtxSynchronize", "cuStreamCreate", "cuStreamDestroy_v2",
        "cuStreamGetCtx", "cuStreamGetFlags", "cuStreamGetId", "cuStreamIsCapturing", "cuStreamGetCaptureInfo",
        "cuStreamGetCaptureInfo_v2", "cuStreamGetCaptureInfo_v3", "cuThreadExchangeStreamCaptureMode", "cuCtxPushCurrent_v2",
        "cuCtxPopCurrent_v2", "cuCtxGetCurrent", "cuUserObjectCreate", "cuGraphRetainUserObject", "cuUserObjectRelease"]
#: one after the other they fail for good: the host waits instead, and then nothing is reused any more
LASTING = ["cuEventRecord:3+:999", "cuStreamWaitEvent:1+:999", "cuEventCreate:2+:2", "cuEventQuery:1+:999",
           "cuEventRecord:3+:999,cuCtxRecordEvent:1+:999",
           "cuStreamWaitEvent:1+:999,cuEventSynchronize:1+:999",
           "cuEventRecord:2+:999,cuCtxRecordEvent:1+:999,cuStreamSynchronize:1+:999",
           "cuEventQuery:1+:999,cuEventSynchronize:1+:999,cuStreamSynchronize:1+:999,cuCtxSynchronize:1+:999",
           "cuStreamGetCaptureInfo_v2:1+:999,cuStreamGetCaptureInfo_v3:1+:999,cuStreamIsCapturing:1+:999"]
#: neither the device nor the host can be made to wait: the submission goes on, for the driver to refuse it, as a broken
#: context does; the simulated one does not, so the oracle is not asked
BROKEN = ["cuStreamWaitEvent:2+:999,cuEventSynchronize:1+:999,cuStreamSynchronize:1+:999",
          "cuStreamWaitEvent:1+:999,cuEventSynchronize:1+:999,cuStreamSynchronize:1+:999,cuCtxSynchronize:1+:999"]


def go(tmp_path, case, fail, slack, clock, races="abort"):
    sim = tmp_path / "sim.json"
    sim.unlink(missing_ok=True)
    # an allocation whose context cannot be asked for finds only what the driver has left: how much that is, is no matter here
    conf = f"reuse_slack_mb:{slack}" + (",give_back:oom" if case == "little_memory" else "")
    done = run([PROGRAM, case], SIMCUDA_RACES=races, SIMCUDA_STATS=sim, SIMCUDA_FAIL=fail, SIMCUDA_CLOCK=clock,
               SIMCUDA_DEADLOCK="10000", SIMCUDA_MEM="80M" if case == "little_memory" else "1G",
               CACHEALLOC_CONF=conf, CACHEALLOC_LOG="debug")
    assert "race" not in done.stderr and "deadlock" not in done.stderr, done.stderr[-3000:]
    assert races == "off" or "not so" not in done.stderr, done.stderr[-3000:]
    return done, json.loads(sim.read_text())["injected"] if sim.exists() else -1


@pytest.mark.parametrize("clock", ["real", "manual"])
@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("case", CASES)
def test_nth_call_fails(tmp_path, reached, case, name, clock):
    number = 0
    for n in (*range(1, 12), *range(12, 4000, 7)):
        done, injected = go(tmp_path, case, f"{name}:{n}:999", 0, clock)
        assert done.returncode == 0 and "inconsistent" not in done.stderr, (n, done.returncode, done.stderr[-3000:])
        if not injected:
            break
        number += 1
    assert injected == 0
    if number:
        reached.append((f"{case} {name} {clock}", 999, number))


@pytest.mark.parametrize("slack", [0, 256])
@pytest.mark.parametrize("fail", LASTING)
@pytest.mark.parametrize("case", CASES)
def test_calls_that_fail_for_good(tmp_path, case, fail, slack):
    """The driver's own error may come through then; wrong contents and unguarded launches may not."""
    for clock in ("real", "manual"):
        done, _ = go(tmp_path, case, fail, slack, clock)
        assert done.returncode == 0 or done.returncode == 1 and "= 999" in done.stderr, (done.returncode, done.stderr[-3000:])


@pytest.mark.parametrize("fail", BROKEN)
@pytest.mark.parametrize("case", CASES)
def test_a_broken_context(tmp_path, case, fail):
    reached = 0
    for clock in ("manual", "real"):  # how far work is at a real clock is chance, and with it which calls are made
        done, injected = go(tmp_path, case, fail, 0, clock, races="off")
        assert done.returncode in (0, 1) and "inconsistent" not in done.stderr, done.stderr[-3000:]
        reached += injected
    assert reached


#: a kernel, a wait or a host function waits for what the program does next
WAITS = ["t5_freed_in_stream_order", "t5_freed_in_stream_order_and_another_used_last", "t5_freed_by_another_thread",
         "t5_host_function_before_the_free_behind_a_mutex", "t5_wait_value_after_the_free_released_by_the_host",
         "t5_memory_of_a_stream_that_another_thread_uses_next", "another_context_waits"]


@pytest.mark.parametrize("slack", [0, 64])
@pytest.mark.parametrize("case", WAITS)
def test_an_event_that_a_full_device_refuses_is_waited_for_by_nobody(case, slack):
    program = PROGRAM if case == "another_context_waits" else PROGRAM.with_name("order_rules")
    for n in range(1, 11):
        done = run([program, case], SIMCUDA_RACES="abort", SIMCUDA_DEADLOCK="5000", SIMCUDA_FAIL=f"cuEventCreate:{n}:2",
                   CACHEALLOC_CONF=f"reuse_slack_mb:{slack}")
        assert done.returncode == 0 or "cuEventCreate(" in done.stderr, (n, done.returncode, done.stderr[-2000:])


@pytest.mark.parametrize("fail", ["cuEventCreate:4:2,cuEventCreate:5:2", "cuEventCreate:4:2,cuEventCreate:5:2,cuEventCreate:6:2",
                                  "cuEventCreate:1+:2"])
def test_the_host_waits_for_no_work_that_waits_for_it(fail):
    done = run([PROGRAM, "its_stream_waits_already"], SIMCUDA_RACES="abort", SIMCUDA_DEADLOCK="5000", SIMCUDA_FAIL=fail)
    assert done.returncode == 0, done.stderr[-2000:]
