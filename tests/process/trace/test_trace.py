# SPDX-License-Identifier: MIT
"""CACHEALLOC_TRACE: what a program did with device memory is in its trace, whatever happens to the program or the file."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import BUILD, run

sys.path.insert(0, str(Path(__file__).resolve().parent))
from tracefile import ANY_STREAM, Trace, read  # noqa: E402  pylint: disable=wrong-import-position

PROGRAM = BUILD / "tests" / "process" / "trace" / "cases_trace"
MANY = 10000  # pairs of cases_trace.c
RING, DRAIN = 4096, 1024  # records: allocator/trace/trace.h


def traced(tmp_path, case, check=0, **env):
    """Runs a case; (process, its trace)."""
    done = run([PROGRAM, case], check=check, cwd=tmp_path, CACHEALLOC_TRACE="t.trace", **env)
    return done, read(tmp_path / "t.trace")


def lines_of(trace):
    """The records as cases_trace.c prints what it does."""
    lines = []
    for r in trace.of("alloc", "adopt", "free", "failed"):
        if r.kind == "failed":
            lines.append(f"failed {r.a}")
        else:
            lines.append(f"{r.kind} {r.a:x}" + ("" if r.kind == "free" else f" {r.bytes}"))
    return lines


def test_the_events_are_what_the_program_did(tmp_path):
    done, trace = traced(tmp_path, "steps", SIMCUDA_MEM="64M", CACHEALLOC_CONF="reuse_slack_mb:7", CACHEALLOC_LOG="error")
    assert done.stderr == "" and lines_of(trace) == done.stdout.splitlines()
    assert trace.whole and trace.fields["program"] == "cases_trace"
    assert "CACHEALLOC_CONF=reuse_slack_mb:7" in trace.fields["settings"].splitlines()
    assert trace.device_name(0) == "simcuda device 0" and trace.of("device")[0].a == 64 << 20
    assert [r.b & 0xffffffff for r in trace.of("failed")] == [2]
    assert len(trace.live_at_the_end()) == 1
    # the driver said no to the request, and then the ladder had nothing to give back
    assert trace.of("refused") and all(r.a >= 40 << 20 for r in trace.of("refused"))
    reserved = {}
    for r in trace.of("taken", "returned"):
        if r.kind == "taken":
            assert r.a not in reserved
            reserved[r.a] = r.bytes
        else:
            assert reserved.pop(r.a) == r.bytes
    assert (40 << 20) in reserved.values() and (34 << 20) not in reserved.values()
    times = [r.ns for r in trace.records]
    assert times == sorted(times) and 0 <= times[0] and times[-1] < 60e9


@pytest.mark.parametrize("disable", ["0", "count"])
def test_native_calls_are_recorded_too(tmp_path, disable):
    done, trace = traced(tmp_path, "steps", SIMCUDA_MEM="64M", CACHEALLOC_DISABLE=disable)
    assert lines_of(trace) == done.stdout.splitlines() and trace.live_at_the_end()


@pytest.mark.parametrize("env", [
    {"CACHEALLOC_CONF": "max_size:0", "SIMCUDA_MEM": "64M"},
    {"CACHEALLOC_CONF": "oom_fallback:managed", "SIMCUDA_FAIL": "cuMemAlloc_v2:1+:2", "SIMCUDA_MEM": "110M"},
    {"CACHEALLOC_CONF": "oom_fallback:managed,max_size:0", "SIMCUDA_FAIL": "cuMemAlloc_v2:1+:2", "SIMCUDA_MEM": "110M"},
], ids=["passed", "managed", "passed and managed"])
def test_memory_that_is_never_cached_is_recorded_as_the_drivers_own(tmp_path, env):
    done, trace = traced(tmp_path, "steps", **env)
    assert lines_of(trace) == [line.replace("alloc", "adopt") for line in done.stdout.splitlines()]
    assert len(trace.of("taken")) == len(trace.of("returned")) + len(trace.live_at_the_end())
    assert replayed(tmp_path / "t.trace")["frees"] == len(trace.of("free"))


@pytest.mark.parametrize("conf", ["zero:1", "poison:1", "zero:1,poison:1,max_cached_mb:0,trim_every:2,trim_idle_ms:1"])
def test_fills_and_trims_leave_the_record_as_it_is(tmp_path, conf):
    done, trace = traced(tmp_path, "steps", SIMCUDA_MEM="64M", CACHEALLOC_CONF=conf)
    assert lines_of(trace) == done.stdout.splitlines()
    reserved = sum(r.bytes for r in trace.of("taken")) - sum(r.bytes for r in trace.of("returned"))
    assert reserved >= sum(r.bytes for r in trace.live_at_the_end().values()) > 0


def test_nothing_is_recorded_where_nothing_is_served(tmp_path):
    run([PROGRAM, "steps"], check=0, cwd=tmp_path, CACHEALLOC_TRACE="t.trace", CACHEALLOC_DISABLE="1", SIMCUDA_MEM="64M")
    assert not list(tmp_path.iterdir())


def test_a_free_names_the_streams_that_may_use_the_block(tmp_path):
    _, trace = traced(tmp_path, "users", SIMCUDA_CLOCK="manual")
    users = [r.users for r in trace.of("free")]
    assert [len(u) for u in users] == [1, 2, 1, 0]  # the first stream's work goes on when the second block is freed
    (one,), two = users[0], users[2][0]
    assert one != two and set(users[1]) == {one, two} and ANY_STREAM not in users[1]
    assert {one, two} <= {r.stream for r in trace.of("stream")}
    finished = [(r.stream, r.a) for r in trace.of("finished")]
    assert finished == [(one, 1), (two, 0)]


def test_a_graph_may_go_on_using_what_is_freed(tmp_path):
    _, trace = traced(tmp_path, "captured")
    assert [r.users for r in trace.of("free")] == [[ANY_STREAM]]


def test_a_free_that_fails_is_taken_back(tmp_path):
    _, trace = traced(tmp_path, "free_that_fails", SIMCUDA_FAIL="cuMemFree_v2:1:999")
    events = trace.of("adopt", "free", "kept")
    assert [r.kind for r in events] == ["adopt", "free", "kept", "free"] and len({r.a for r in events}) == 1
    assert events[0].bytes == events[2].bytes == 30000 and not trace.live_at_the_end()
    assert replayed(tmp_path / "t.trace")["frees"] == 2


def test_memory_goes_with_its_context(tmp_path):
    _, trace = traced(tmp_path, "contexts")
    assert [r.bytes for r in trace.of("alloc")] == [1000, 2000, 3000]
    assert not trace.live_at_the_end()
    assert len(trace.of("taken")) == len(trace.of("returned"))
    kinds = [r.kind for r in trace.of("alloc", "free")]
    assert kinds == ["alloc", "alloc", "free", "alloc", "free", "free"]


@pytest.mark.parametrize("case, turns, env", [
    ("team", 4000, {}),
    ("team", 4000, {"CACHEALLOC_CONF": "reuse:finished"}),
    ("team_for_short", 200, {"CACHEALLOC_DISABLE": "count"}),  # the driver hands the memory on at once
], ids=["cached", "finished", "native"])
def test_threads_never_see_an_address_twice(tmp_path, case, turns, env):
    """A free is in the trace before the allocation that has its memory."""
    _, trace = traced(tmp_path, case, **env)
    assert trace.whole and not trace.live_at_the_end()
    assert len(trace.of("alloc")) == len(trace.of("free")) == 8 * turns
    counts = {}
    for r in trace.of("alloc"):
        counts[r.thread] = counts.get(r.thread, 0) + 1
    assert len(counts) == 8 and set(counts.values()) == {turns}


def test_many_events_are_all_there(tmp_path):
    _, trace = traced(tmp_path, "many")
    assert trace.whole and not trace.live_at_the_end()
    assert [r.bytes for r in trace.of("alloc")] == [512 + 512 * (i % 7) for i in range(MANY)]


def test_a_killed_process_leaves_all_but_its_last_events(tmp_path):
    _, trace = traced(tmp_path, "killed", check=-9)
    assert not trace.whole and not trace.torn
    assert 2 * MANY - DRAIN <= len(trace.of("alloc", "free")) <= 2 * MANY
    assert len(trace.live_at_the_end()) <= 1


def test_a_trace_can_be_cut_anywhere(tmp_path):
    traced(tmp_path, "steps", SIMCUDA_MEM="64M")
    data = (tmp_path / "t.trace").read_bytes()
    whole = Trace(data)
    for length in range(whole.header_bytes, len(data)):
        part = Trace(data[:length])
        assert not part.whole
        assert part.records == whole.records[:(length - whole.header_bytes) // 24]


def replayed(path):
    done = run([BUILD / "allocator" / "cachealloc-replay", "--json", path], check=0)
    return json.loads(done.stdout)


def test_the_replay_makes_of_it_what_the_program_made(tmp_path):
    traced(tmp_path, "team", CACHEALLOC_STATS=tmp_path / "stats.json")
    (device,) = json.loads((tmp_path / "stats.json").read_text())["devices"]
    result = replayed(tmp_path / "t.trace")
    (again,) = result["devices"]
    assert result["input_format"] == "cachealloc trace" and not result["truncated"]
    assert again["recorded_reserved_bytes"] == device["reserved_bytes"]["current"]
    for name in ("alloc_calls", "free_calls"):
        assert again[name] == device[name]
    assert again["requested_bytes"]["total"] == device["requested_bytes"]["total"]
    # the peak in the statistics may be off by 8 MiB a thread
    assert abs(device["requested_bytes"]["peak"] - result["peak_live_bytes"]) <= 8 * (8 << 20)


def test_a_replay_tells_what_the_program_was_refused(tmp_path):
    """It is not played: without a word, the memory in which the program ran out would look like enough."""
    _, trace = traced(tmp_path, "steps", SIMCUDA_MEM="64M", CACHEALLOC_CONF="reuse_slack_mb:7", CACHEALLOC_LOG="error")
    (failed,) = trace.of("failed")
    (device,) = replayed(tmp_path / "t.trace")["devices"]
    assert (device["recorded_failed_calls"], device["recorded_failed_bytes"]) == (1, failed.a)
    text = run([BUILD / "allocator" / "cachealloc-replay", tmp_path / "t.trace"], check=0).stdout
    (line,) = [line for line in text.splitlines() if "refused when recorded" in line]
    assert line.endswith(f"1 requests, not played; the largest: {failed.a / (1 << 20):.2f} MiB")
    (tmp_path / "all").mkdir()
    traced(tmp_path / "all", "team")
    assert "refused" not in run([BUILD / "allocator" / "cachealloc-replay", tmp_path / "all" / "t.trace"], check=0).stdout


def test_what_a_killed_process_left_is_replayed(tmp_path):
    _, trace = traced(tmp_path, "killed", check=-9)
    result = replayed(tmp_path / "t.trace")
    assert result["truncated"] and result["allocations"] == len(trace.of("alloc"))


# ------------------------------------------------------------------ files ---


def test_no_file_is_overwritten(tmp_path):
    for _ in range(3):
        run([PROGRAM, "many"], check=0, cwd=tmp_path, CACHEALLOC_TRACE="t.trace")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["t.1.trace", "t.2.trace", "t.trace"]
    for path in tmp_path.iterdir():
        assert read(path).whole and stat.S_IMODE(path.stat().st_mode) == 0o600


def test_no_link_is_followed(tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "t.trace").symlink_to(tmp_path / "mine")
    run([PROGRAM, "many"], check=0, cwd=tmp_path, CACHEALLOC_TRACE="t.trace")
    assert (tmp_path / "mine").read_text() == "mine" and read(tmp_path / "t.1.trace").whole


def test_patterns_are_expanded(tmp_path):
    run([PROGRAM, "many"], check=0, cwd=tmp_path, CACHEALLOC_TRACE="sub/%e.%r.%p.trace", RANK="7")
    (path,) = (tmp_path / "sub").iterdir()
    assert path.name == f"cases_trace.7.{read(path).pid}.trace"


def test_who_makes_no_call_writes_nothing(tmp_path):
    run(["/bin/true"], check=0, cwd=tmp_path, CACHEALLOC_TRACE="t.trace")
    run([PROGRAM, "--list"], cwd=tmp_path, CACHEALLOC_TRACE="t.trace")
    assert not list(tmp_path.iterdir())


def test_a_child_writes_its_own(tmp_path):
    run([PROGRAM, "fork_first"], check=0, cwd=tmp_path, CACHEALLOC_TRACE="t.%p.trace")
    traces = {t.of("alloc")[0].bytes: t for t in map(read, tmp_path.iterdir())}
    assert sorted(traces) == [1000, 2000] and all(t.whole for t in traces.values())
    assert traces[2000].parent_pid == traces[1000].pid
    assert all(t.device_name(0) == "simcuda device 0" for t in traces.values())


def test_what_was_recorded_before_a_fork_is_the_parents(tmp_path):
    run([PROGRAM, "fork_after"], check=0, cwd=tmp_path, CACHEALLOC_TRACE="t.trace")
    parent, child = read(tmp_path / "t.trace"), read(tmp_path / "t.1.trace")
    assert child.parent_pid == parent.pid and parent.whole and child.whole
    assert [r.kind for r in parent.of("alloc", "free", "fork")] == ["alloc", "free"] * 10 + ["fork"] + ["alloc", "free"] * 10
    assert not child.of("alloc", "free", "fork")


def test_a_program_may_close_all_descriptors(tmp_path):
    """And leave the folder that the pattern counted from."""
    done, trace = traced(tmp_path, "closes")
    assert done.stderr == "" and trace.whole and len(trace.of("alloc")) == MANY + 100
    own = list(tmp_path.glob("own.*"))
    assert own and all(p.stat().st_size == 0 for p in own)


def test_a_file_that_is_gone_ends_the_trace_not_the_program(tmp_path):
    done = run([PROGRAM, "closes_and_removes"], check=0, cwd=tmp_path, CACHEALLOC_TRACE="t.trace")
    assert len(done.stderr.splitlines()) == 1 and "CACHEALLOC_TRACE" in done.stderr and "t.trace" in done.stderr
    assert "no longer there" in done.stderr
    assert all(p.name.startswith("own.") and p.stat().st_size == 0 for p in tmp_path.iterdir())


def test_a_limit_on_file_size_ends_the_trace_not_the_program(tmp_path):
    """SIGXFSZ would."""
    done, trace = traced(tmp_path, "no_room")
    assert len(done.stderr.splitlines()) == 1 and "file too large" in done.stderr and "t.trace" in done.stderr
    assert (tmp_path / "t.trace").stat().st_size == 20000
    assert len(trace.of("alloc", "free")) > 700 and trace.torn == (20000 - trace.header_bytes) % 24


@pytest.mark.skipif(os.getuid() != 0, reason="only root may mount a small disk")
def test_a_full_disk_ends_the_trace_not_the_program(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)], check=False, timeout=30,
                      capture_output=True).returncode:
        pytest.skip("no file system may be mounted here")
    try:
        done = run([PROGRAM, "many"], check=0, cwd=tmp_path, CACHEALLOC_TRACE="disk/t.trace")
        assert len(done.stderr.splitlines()) == 1 and "no space left" in done.stderr
        assert 65536 // 24 - 100 <= len(read(disk / "t.trace").records) <= 65536 // 24
    finally:
        subprocess.run(["umount", str(disk)], check=True, timeout=30)
