# SPDX-License-Identifier: MIT
"""CACHEALLOC_SNAPSHOT: all segments and blocks at one moment, whatever happens to the program or the file."""

import json
import os
import pickle
import signal
import stat
import subprocess

import pytest

from conftest import BUILD, run

PROGRAM = BUILD / "tests" / "process" / "snapshot" / "cases_snapshot"
LIVE, WAITS, FREE = "active_allocated", "active_pending_free", "inactive"
THREADS, SLOTS, SIGNALS, SIZES = 4, 2000, 12, 20  # of cases_snapshot.c


def read(path):
    """The snapshot; what must hold of any is asserted."""
    snapshot = pickle.loads(path.read_bytes())
    last = {}
    for segment in snapshot["segments"]:
        at = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == at and block["size"] > 0 and 0 < block["requested_size"] <= block["size"]
            assert block["state"] in (LIVE, WAITS, FREE)
            at += block["size"]
        assert at == segment["address"] + segment["total_size"]
        live = [b for b in segment["blocks"] if b["state"] == LIVE]
        assert segment["allocated_size"] == sum(b["size"] for b in live)
        assert segment["requested_size"] == sum(b["requested_size"] for b in live)
        assert segment["active_size"] == sum(b["size"] for b in segment["blocks"] if b["state"] != FREE)
        last[segment["address"]] = at
    ends = sorted(last.items())
    assert all(end <= begin for (_, end), (begin, _) in zip(ends, ends[1:]))
    traces = snapshot["device_traces"]
    assert len(traces) == (1 if last else 0) and all(trace[0]["action"] == "snapshot" for trace in traces)
    return snapshot


def blocks(snapshot, *states):
    return {b["address"]: b["requested_size"] for s in snapshot["segments"] for b in s["blocks"] if b["state"] in states}


def said(done, word):
    """{address: bytes} of what the program printed."""
    rows = [line.split() for line in done.stdout.splitlines()]
    return {int(address, 16): int(size) for kind, address, size in rows if kind == word}


def play(tmp_path, case, on=None, pattern="%n.pickle", check=0, **env):
    if on:
        env["CACHEALLOC_SNAPSHOT_ON"] = on
    return run([PROGRAM, case], check=check, cwd=tmp_path, CACHEALLOC_SNAPSHOT=pattern, **env)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_every_block_is_in_its_state(tmp_path):
    done = play(tmp_path, "states", "usr1", SIMCUDA_CLOCK="manual")
    snapshot = read(tmp_path / "1.pickle")
    assert blocks(snapshot, LIVE) == said(done, "live")
    (address, size), = said(done, "waits").items()  # what was free beside it waits with it
    assert blocks(snapshot, WAITS)[address] >= size
    assert done.stderr == "" and names(tmp_path) == ["1.pickle"]
    assert snapshot["reason"] == "usr1" and snapshot["program"] == "cases_snapshot"
    assert stat.S_IMODE((tmp_path / "1.pickle").stat().st_mode) == 0o600


def test_at_out_of_memory_and_at_exit(tmp_path):
    """Which is when it is written if nothing else was said."""
    done = play(tmp_path, "refused", SIMCUDA_MEM="64M", CACHEALLOC_STATS="s.json")
    oom, end = read(tmp_path / "1.pickle"), read(tmp_path / "2.pickle")
    assert (oom["reason"], end["reason"]) == ("oom", "exit") and oom["refused_size"] == 40 << 20
    assert blocks(oom, LIVE) == said(done, "live")
    assert list(blocks(end, LIVE).values()) == [600]
    assert "every segment and block is in 1.pickle" in done.stderr.splitlines()[-1]
    device, = json.loads((tmp_path / "s.json").read_text())["devices"]
    assert sum(s["total_size"] for s in end["segments"]) == device["reserved_bytes"]["current"]
    assert sum(s["allocated_size"] for s in end["segments"]) == device["allocated_bytes"]["current"]


def test_out_of_memory_without_a_report(tmp_path):
    done = play(tmp_path, "refused", "oom", SIMCUDA_MEM="64M", CACHEALLOC_LOG="off")
    assert done.stderr == "" and names(tmp_path) == ["1.pickle"] and read(tmp_path / "1.pickle")["reason"] == "oom"


def test_at_the_peak(tmp_path):
    done = play(tmp_path, "peak", "peak", CACHEALLOC_STATS="s.json", CACHEALLOC_CONF="max_cached_mb:0")
    snapshot = read(tmp_path / "1.pickle")
    device, = json.loads((tmp_path / "s.json").read_text())["devices"]
    assert names(tmp_path) == ["1.pickle", "s.json"] and snapshot["reason"] == "peak"
    assert blocks(snapshot, LIVE) == said(done, "live")
    assert sum(s["total_size"] for s in snapshot["segments"]) == device["reserved_bytes"]["peak"] == 120 << 20
    assert device["reserved_bytes"]["current"] < 120 << 20


def test_a_handler_of_the_programs_is_called_and_the_file_comes_with_the_next_call(tmp_path):
    done = play(tmp_path, "chained", "usr1,usr2")
    one, two = read(tmp_path / "1.pickle"), read(tmp_path / "2.pickle")
    assert (one["reason"], two["reason"]) == ("usr1", "usr2")
    assert blocks(one, LIVE) == blocks(two, LIVE) == said(done, "live")


def test_a_signal_that_nobody_handles_does_not_end_the_program(tmp_path):
    done = play(tmp_path, "alone", "usr2")
    assert blocks(read(tmp_path / "1.pickle"), LIVE) == said(done, "live")


def test_a_signal_that_is_ignored_with_siginfo_writes_and_calls_nobody(tmp_path):
    done = play(tmp_path, "ignored", "usr1")
    assert blocks(read(tmp_path / "1.pickle"), LIVE) == said(done, "live") and names(tmp_path) == ["1.pickle"]


@pytest.mark.parametrize("on", ["exit,oom,peak,usr1", None])
def test_without_a_hooked_call_a_signal_does_what_it_does_natively(tmp_path, on):
    done = play(tmp_path, "too_early", on, check=None)
    assert done.returncode == -signal.SIGUSR1 and done.stderr == "" and not names(tmp_path)


def test_a_signal_that_was_not_asked_for_is_the_programs(tmp_path):
    done = play(tmp_path, "alone", "exit,usr1", check=None)
    assert done.returncode == -signal.SIGUSR2 and not names(tmp_path)


def test_it_is_one_moment_of_all_threads(tmp_path):
    done = play(tmp_path, "threads", "usr1,peak,exit", CACHEALLOC_LOG="debug")
    assert "every invariant of the records holds" in done.stderr
    snapshots = [read(tmp_path / name) for name in names(tmp_path)]
    assert len(snapshots) == SIGNALS + 2
    for snapshot in snapshots:
        if snapshot["reason"] == "usr1":
            sizes = sorted(blocks(snapshot, LIVE).values())
            assert 1 + THREADS * SLOTS <= len(sizes) <= 1 + THREADS * (SLOTS + 1)
            least = THREADS * SLOTS // SIZES
            assert all(least <= sizes.count(1000 + 512 * i) <= least + THREADS for i in range(SIZES))
    assert len(blocks(next(s for s in snapshots if s["reason"] == "exit"), LIVE)) == 1 + THREADS * SLOTS


def test_each_process_writes_its_own(tmp_path):
    done = play(tmp_path, "forks", "usr1,exit", pattern="%p.%n.pickle")
    found = {}
    for path in tmp_path.iterdir():
        snapshot = read(path) if path.stat().st_size else None
        assert path.name.startswith(f"{snapshot['pid']}.")
        found.setdefault(snapshot["pid"], []).append((snapshot["reason"], sorted(blocks(snapshot, LIVE).values())))
    assert done.stderr == "" and sorted(map(sorted, (f for f in found.values() if f[0][1]))) == [
        [("exit", [1000, 1000]), ("usr1", [1000, 1000])], [("exit", [2000, 2000]), ("usr1", [2000, 2000])]]
    assert all(blocks == [] for f in found.values() for _, blocks in f if f[0][1] == [])


def test_who_makes_no_call_writes_nothing(tmp_path):
    run(["/bin/true"], check=0, cwd=tmp_path, CACHEALLOC_SNAPSHOT="s.pickle")
    run([PROGRAM, "--list"], cwd=tmp_path, CACHEALLOC_SNAPSHOT="s.pickle", CACHEALLOC_SNAPSHOT_ON="exit,usr1")
    assert not names(tmp_path)


def test_no_file_is_overwritten(tmp_path):
    (tmp_path / "s.pickle").write_text("old")
    done = play(tmp_path, "chained", "exit", pattern="s.pickle", check=None)
    assert (tmp_path / "s.pickle").read_text() == "old" and done.stderr.count("exists already") == 1
    assert names(tmp_path) == ["s.pickle"] or read(tmp_path / "s.1.pickle")


def test_several_of_one_pattern_are_numbered_without_a_word(tmp_path):
    done = play(tmp_path, "refused", pattern="s.pickle", SIMCUDA_MEM="64M", CACHEALLOC_LOG="error")
    assert names(tmp_path) == ["s.1.pickle", "s.pickle"] and done.stderr == ""
    assert read(tmp_path / "s.pickle")["reason"] == "oom"


def test_a_limit_on_file_size_leaves_no_half_of_a_file(tmp_path):
    """SIGXFSZ would end the program."""
    done = play(tmp_path, "no_room", "usr1")
    assert not names(tmp_path) and len(done.stderr.splitlines()) == 1
    assert "the file '1.pickle' cannot be written: file too large" in done.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="only root may mount a small disk")
def test_a_full_disk_leaves_no_half_of_a_file(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "none", str(disk)], check=False, timeout=30,
                      capture_output=True).returncode:
        pytest.skip("no file system may be mounted here")
    try:
        done = play(tmp_path, "no_room", "usr1", pattern="disk/%n.pickle")
        assert not names(disk) and len(done.stderr.splitlines()) == 1 and "no space left" in done.stderr
    finally:
        subprocess.run(["umount", str(disk)], check=True, timeout=30)


def test_a_place_that_is_not_there_is_said_once_each(tmp_path):
    (tmp_path / "file").write_text("")
    done = play(tmp_path, "peak", "exit", pattern="file/s.pickle")
    assert len(done.stderr.splitlines()) == 1 and "no file by the pattern 'file/s.pickle' can be made" in done.stderr


def test_a_list_of_moments_without_a_file_is_said(tmp_path):
    done = run([PROGRAM, "peak"], check=0, cwd=tmp_path, CACHEALLOC_SNAPSHOT_ON="peak")
    assert "CACHEALLOC_SNAPSHOT_ON has no effect without CACHEALLOC_SNAPSHOT" in done.stderr


@pytest.mark.parametrize("disable", ["1", "count"])
def test_where_nothing_is_cached(tmp_path, disable):
    done = play(tmp_path, "refused", SIMCUDA_MEM="64M", CACHEALLOC_DISABLE=disable)
    assert done.stderr == "" and names(tmp_path) == (["1.pickle"] if disable == "count" else [])
    if disable == "count":
        assert list(blocks(read(tmp_path / "1.pickle"), LIVE).values()) == [600]


# ------------------------------------------------------------------ pools ---

TOLD = BUILD / "tests" / "process" / "told" / "told_cases"
MIB = 1 << 20


def told(tmp_path, case, on, **env):
    return run([TOLD, case], check=0, cwd=tmp_path, CACHEALLOC_CONF="async:pool,pinned:cache", CACHEALLOC_SNAPSHOT="%n.pickle",
               CACHEALLOC_SNAPSHOT_ON=on, **{"SIMCUDA_MEM": "256M", **env})


def test_memory_of_pools_is_there(tmp_path):
    """Two streams freed what they had, and the second could not have the memory of the first."""
    told(tmp_path, "unordered", "peak", SIMCUDA_CLOCK="manual", CACHEALLOC_STATS="s.json")
    snapshot = read(tmp_path / "1.pickle")
    device = json.loads((tmp_path / "s.json").read_text())["devices"][0]
    assert {(s["road"], s["segment_pool_id"]) for s in snapshot["segments"]} == {("async", (0, 1))}
    assert sum(s["total_size"] for s in snapshot["segments"]) == device["async_reserved_bytes"]["peak"]
    (size,) = blocks(snapshot, LIVE).values()
    waits = [b["size"] for s in snapshot["segments"] for b in s["blocks"] if b["state"] == WAITS]
    assert size in waits or sum(waits) > size


def test_memory_of_both_roads_is_told_apart(tmp_path):
    told(tmp_path, "both_roads", "exit,peak")
    reasons = {snapshot["reason"]: snapshot for snapshot in map(read, tmp_path.iterdir())}
    assert set(reasons) == {"exit", "peak"}
    for snapshot in reasons.values():
        for segment in snapshot["segments"]:
            assert segment["segment_pool_id"] == {"sync": (0, 0), "async": (0, 1)}[segment["road"]]
    assert {s["road"] for s in reasons["exit"]["segments"]} == {"sync"}


def test_when_the_driver_refuses_a_pool(tmp_path):
    done = told(tmp_path, "out_of_memory", "oom")
    snapshot = read(tmp_path / "1.pickle")
    assert (snapshot["reason"], snapshot["refused_size"]) == ("oom", 100 * MIB)
    assert list(blocks(snapshot, LIVE).values()) == [200 * MIB]
    lines = [line.split("warning: ")[1] for line in done.stderr.splitlines()]
    assert lines[0].startswith("CUDA out of memory. Tried to allocate 100.00 MiB. GPU 0 has a total capacity of 256.00 MiB")
    assert ("out of memory: stream-ordered memory besides: 200.00 MiB held by the program, 0 B reserved by cachealloc but "
            "unallocated (async:pool)") in lines
    assert any(line.startswith("out of memory: page-locked host memory: ") for line in lines)
    assert any("200.00 MiB allocated and 100.00 MiB asked for are more than 256.00 MiB" in line for line in lines)
    assert not any("tried: searched" in line for line in lines)  # it went another way
