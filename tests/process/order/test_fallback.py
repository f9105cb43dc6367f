# SPDX-License-Identifier: MIT
"""What may be done behind our back, or cannot be ordered: from then on only finished memory is reused, a line of the log
says once why, the statistics name it, and contents stay right."""

import concurrent.futures
import json
import os
import re
import subprocess
import sys

import pytest

from conftest import BUILD, ROOT, run

sys.path.append(str(ROOT / "tests" / "abi"))
from abi_source import runtime_tables

PROGRAM = BUILD / "tests" / "process" / "order" / "order_fallback"
QUICK_EVERY = 4  # conftest.py
#: case: what the simulator needs for it, and what the log says (the case's name is that in the statistics)
CASES = {
    "unseen_call": ({"SIMCUDA_FUTURE": "1"}, "an unknown driver function was called"),
    "private_table": ({"SIMCUDA_PRIVATE_TABLE": "1"}, "a private driver table is in use"),
    "peer_access": ({"SIMCUDA_DEVICES": "2"}, "another context has access to this memory"),
    "current_context": ({"SIMCUDA_FAIL": "cuCtxGetCurrent:4+:999"}, "the driver did not say which context is current"),
    "network_library": ({}, "a network or storage library is used in a way not followed"),
    "too_many_streams": ({}, "more streams than are tracked"),
    "context_wait": ({}, "a whole context was made to wait for an event"),
    "device_graph": ({}, "a graph that a device can launch was made"),
}


@pytest.fixture(name="network", scope="module")
def _network(tmp_path_factory):
    """A library with the name of one that lets other devices read GPU memory."""
    path = tmp_path_factory.mktemp("network") / "libgdrapi.so.2"
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-Wl,-soname,libgdrapi.so.2", "-o", path, "-xc", "-"],
                   input="int gdr_pin_buffer(void) { return 0; }", text=True, check=True)
    return path


@pytest.mark.parametrize("conf", ["reuse_slack_mb:0", "reuse_slack_mb:256", "reuse:finished"])
@pytest.mark.parametrize("clock", ["real", "manual"])
@pytest.mark.parametrize("case", CASES)
def test_only_finished_memory_and_it_is_said_once(tmp_path, network, case, clock, conf):
    knobs, why = CASES[case]
    done = run([PROGRAM, case], NETWORK_LIBRARY=network, CACHEALLOC_LOG="info", CACHEALLOC_CONF=conf, SIMCUDA_CLOCK=clock,
               SIMCUDA_RACES="abort", SIMCUDA_DEADLOCK=20000, CACHEALLOC_STATS=tmp_path / "stats.json", **knobs)
    assert done.returncode == 0, (done.returncode, done.stderr[-3000:])
    said = [line for line in done.stderr.splitlines() if "only finished memory" in line]
    assert len(said) == 1 and said[0].endswith(f"from now on: {why}"), done.stderr[-3000:]
    device = json.loads((tmp_path / "stats.json").read_text())["devices"][0]
    assert case in device["finished_only_reasons"], device["finished_only_reasons"]
    assert device["order_fallbacks"] >= 1


@pytest.mark.parametrize("conf", ["reuse_slack_mb:0", "reuse_slack_mb:256", "reuse:finished", "free_sync:host"])
def test_a_capture_whose_begin_was_not_seen_is_left_alone(tmp_path, conf):
    """With little memory, too: then the driver's own answer is the program's. Most of the time is spent asleep."""
    def go(clock, memory):
        stats = tmp_path / f"{clock}-{memory}.json"
        done = run([PROGRAM, "unseen_capture"], CACHEALLOC_LOG="info", CACHEALLOC_CONF=conf, SIMCUDA_CLOCK=clock, SIMCUDA_MEM=memory,
                   SIMCUDA_FUTURE=1, SIMCUDA_RACES="abort", SIMCUDA_DEADLOCK=20000, CACHEALLOC_STATS=stats)
        assert done.returncode == 0, (clock, memory, done.returncode, done.stderr[-3000:])
        assert "unseen_call" in json.loads(stats.read_text())["devices"][0]["finished_only_reasons"], (clock, memory)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(go, clock, memory) for clock in ("real", "manual") for memory in ("64M", "16G")]:
            each.result()


@pytest.mark.parametrize("conf", ["reuse_slack_mb:0", "reuse_slack_mb:256", "reuse:finished"])
@pytest.mark.parametrize("memory", ["64M", "16G"])
@pytest.mark.parametrize("clock", ["real", "manual"])
def test_unseen_work_in_a_capture_keeps_its_memory(clock, memory, conf):
    """No mark can be had for it, and nothing that is known to have finished tells of it."""
    for preload in False, True:
        run([PROGRAM, "unseen_in_a_capture"], preload=preload, check=0, CACHEALLOC_CONF=conf, SIMCUDA_CLOCK=clock,
            SIMCUDA_MEM=memory, SIMCUDA_PRIVATE_TABLE=1, SIMCUDA_RACES="abort", SIMCUDA_DEADLOCK=20000)


@pytest.mark.parametrize("knobs", [{"SIMCUDA_QUEUES": 1}, {"SIMCUDA_BELIEFS": "context_record_early"}, {}])
@pytest.mark.parametrize("memory", ["36M", "44M"])
@pytest.mark.parametrize("clock", ["real", "manual:16"])
def test_unseen_work_and_two_contexts_leave_memory_to_be_had(clock, memory, knobs):
    """On a driver on which no mark of a context can be relied upon, too."""
    for preload in False, True:
        done = run([PROGRAM, "unseen_work_and_two_contexts"], preload=preload, check=0, SIMCUDA_CLOCK=clock, SIMCUDA_MEM=memory,
                   SIMCUDA_PRIVATE_TABLE=1, SIMCUDA_RACES="abort", SIMCUDA_DEADLOCK=20000, **knobs)
        assert not done.stderr, done.stderr[-2000:]


@pytest.mark.parametrize("knobs", [{"SIMCUDA_QUEUES": 1}, {"SIMCUDA_BELIEFS": "context_record_early"}, {}])
@pytest.mark.parametrize("clock", ["real", "manual:16"])
def test_what_only_a_wait_tells_finished_does_not_pile_up(clock, knobs, tmp_path):
    """Beyond the slack a free waits as the driver's own does. (300 blocks of 1 MiB go round.)"""
    stats = tmp_path / "stats.json"
    done = run([PROGRAM, "unseen_work_goes_on"], check=0, CACHEALLOC_CONF="reuse_slack_mb:16", SIMCUDA_CLOCK=clock,
               SIMCUDA_PRIVATE_TABLE=1, SIMCUDA_RACES="abort", SIMCUDA_DEADLOCK=20000, CACHEALLOC_STATS=stats, **knobs)
    assert not done.stderr, done.stderr[-2000:]
    device = json.loads(stats.read_text())["devices"][0]
    assert device["reserved_bytes"]["peak"] <= 64 << 20, device["reserved_bytes"]


@pytest.mark.parametrize("knobs", [{"SIMCUDA_QUEUES": 1}, {"SIMCUDA_BELIEFS": "context_record_early"}, {}])
@pytest.mark.parametrize("memory", ["36M", "44M"])
@pytest.mark.parametrize("clock", ["real", "manual:16"])
def test_work_of_two_contexts_leaves_memory_to_be_had(clock, memory, knobs, tmp_path):
    """Where no mark is to be had, too; and what is asked in vain is no reason to ask the driver for memory again."""
    stats = tmp_path / "stats.json"
    for preload in False, True:
        done = run([PROGRAM, "work_of_two_contexts"], preload=preload, check=0, SIMCUDA_CLOCK=clock, SIMCUDA_MEM=memory,
                   SIMCUDA_RACES="abort", SIMCUDA_DEADLOCK=20000, CACHEALLOC_STATS=stats, **knobs)
        assert not done.stderr, done.stderr[-2000:]
    assert json.loads(stats.read_text())["devices"][0]["alloc_retries"] <= 20


def test_nothing_is_asked_while_a_capture_goes_on_whose_begin_was_not_seen(tmp_path):
    """free_sync:host asks a stream of its own whether earlier work has failed. At the end of the memory the host waits
    for streams, one by one, each of which was asked before whether it captures."""
    run([PROGRAM, "unseen_capture"], CACHEALLOC_CONF="free_sync:host", SIMCUDA_FUTURE=1, SIMCUDA_LOG=tmp_path / "calls", check=0)
    calls = re.findall(r": (cu\w+) = ", (tmp_path / "calls").read_text())
    begun, ended = calls.index("cuStreamIsCapturing"), calls.index("cuStreamEndCapture")
    assert "cuStreamQuery" in calls[:begun] and "cuStreamQuery" in calls[ended:]
    assert not {"cuStreamQuery", "cuCtxSynchronize"} & set(calls[begun:ended])
    waits = [i for i in range(begun, ended) if calls[i] == "cuStreamSynchronize"]
    assert all("cuStreamIsCapturing" in calls[i - 2 : i] for i in waits)


@pytest.mark.parametrize("conf", ["reuse:finished", "free_sync:host", "poison:1", "max_cached_mb:64"])
def test_a_free_in_a_host_function_is_refused(conf):
    run([PROGRAM, "free_in_a_host_function"], preload=False, check=0, SIMCUDA_RACES="abort")
    run([PROGRAM, "free_in_a_host_function"], check=0, CACHEALLOC_CONF=conf, CACHEALLOC_STRICT=1, SIMCUDA_RACES="abort",
        SIMCUDA_DEADLOCK=20000)


@pytest.mark.parametrize("clock", ["real", "manual"])
def test_a_free_in_a_host_function_is_no_reason(tmp_path, clock):
    done = run([PROGRAM, "free_in_a_host_function"], check=0, CACHEALLOC_CONF="reuse_slack_mb:0", SIMCUDA_CLOCK=clock,
               SIMCUDA_RACES="abort", SIMCUDA_DEADLOCK=20000, CACHEALLOC_STATS=tmp_path / "stats.json")
    device = json.loads((tmp_path / "stats.json").read_text())["devices"][0]
    assert not device["finished_only_reasons"] and device["driver_free_calls"] <= 1 and not done.stderr, (device, done.stderr)
    assert device["cache_hits"] >= 5


@pytest.fixture(name="asker", scope="module")
def _asker(tmp_path_factory):
    """A library without a runtime in it, from which a driver's function is called."""
    path = tmp_path_factory.mktemp("asker") / "asker.so"
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O0", "-o", path, "-xc", "-"], text=True, check=True,
                   input="int ask(int (*get)(void *, void *), void *table, void *id) { int code = get(table, id); return code; }")
    return path


@pytest.mark.parametrize("who", ["program", "library"])
@pytest.mark.parametrize("conf", ["reuse_slack_mb:0", "reuse:finished"])
def test_a_table_is_trusted_for_what_it_is_and_not_for_who_asks(tmp_path, asker, conf, who):
    """A runtime linked into any object asks for these tables, and who has one may pass it on: the id alone decides."""
    known, other = [table.hex() for table in runtime_tables()], "0ca50b8c1004929a89a7d0df10e77286"
    for ids, reasons in ([known, []], [[*known, other], ["private_table"]], [[other, *known], ["private_table"]]):
        env = {"ORDER_ASKER": asker} if who == "library" else {}
        done = run([PROGRAM, "tables"], ORDER_TABLES=",".join(ids), CACHEALLOC_CONF=conf, SIMCUDA_PRIVATE_TABLE="any", check=0,
                   SIMCUDA_RACES="abort", SIMCUDA_DEADLOCK=20000, CACHEALLOC_STATS=tmp_path / "stats.json", **env)
        device = json.loads((tmp_path / "stats.json").read_text())["devices"][0]
        assert device["finished_only_reasons"] == reasons and not done.stderr, (ids, device["finished_only_reasons"], done.stderr)
        (tmp_path / "stats.json").unlink()
