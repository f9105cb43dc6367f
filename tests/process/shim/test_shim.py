# SPDX-License-Identifier: MIT
"""What the preload does: safe reuse, captures, exports, out of memory, statistics, settings."""

import json
import os
import re
import subprocess

import pytest

from conftest import BUILD, LIBRARY, ROOT, SIM, clean_env, run, unmarked

QUICK_EVERY = 2  # conftest.py
PROGRAM = BUILD / "tests" / "process" / "shim" / "cases_shim"
NATIVE = BUILD / "tests" / "process" / "shim" / "cases_native"


def stats(path):
    data = json.loads(path.read_text())
    assert data["format"] == "stats" and data["format_version"] == 1
    return data


def run_case(tmp_path, case, **env):
    """Runs a case with statistics of both sides; returns (process, our device 0, simulator's figures)."""
    ours, theirs = tmp_path / "ours.json", tmp_path / "sim.json"
    done = run([PROGRAM, case], check=0, CACHEALLOC_STATS=ours, SIMCUDA_STATS=theirs,
               CACHEALLOC_LOG=env.pop("CACHEALLOC_LOG", "debug"), **env)
    assert "inconsistent" not in done.stderr
    return done, stats(ours)["devices"][0], json.loads(theirs.read_text())


@pytest.mark.parametrize("driver", ["13000", "12040"])
def test_unfinished_memory_is_not_reused(tmp_path, driver):
    done, ours, _ = run_case(tmp_path, "reuse_waits", SIMCUDA_CLOCK="manual", SIMCUDA_RACES="abort",
                             SIMCUDA_DRIVER_VERSION=driver)
    assert done.stdout == "reused\n"  # the program's own synchronisation tells
    assert ours["order_marks"] == 1  # on the stream: no driver is too old for that
    assert ours["host_syncs"] == 0


def test_the_only_stream_gets_its_memory_back_at_once(tmp_path):
    """The same program, in which nothing finishes by itself."""
    done, ours, _ = run_case(tmp_path, "reuse_on_the_only_stream", SIMCUDA_CLOCK="manual", SIMCUDA_RACES="abort")
    assert ours["taken_same_stream"] == 1
    assert ours["order_marks"] == ours["order_waits"] == ours["host_syncs"] == 0


def test_a_fault_at_the_output_leaves_nothing_locked():
    """A program may leave its handler by siglongjmp; what it asked for is lost then."""
    done = run([PROGRAM, "bad_output"], timeout=20)
    assert (done.returncode, done.stdout) == (0, "3 faults\n"), done.stderr


def test_work_of_other_contexts_counts(tmp_path):
    run_case(tmp_path, "reuse_waits_for_other_contexts", SIMCUDA_CLOCK="manual", SIMCUDA_RACES="abort",
             SIMCUDA_DEVICES="2")


@pytest.mark.parametrize("memory", ["64M", "1G"])
def test_other_devices_are_not_waited_for(tmp_path, memory):
    _, ours, _ = run_case(tmp_path, "other_devices_are_not_waited_for", SIMCUDA_CLOCK="manual", SIMCUDA_DEVICES="2",
                          SIMCUDA_MEM=memory, CACHEALLOC_CONF="reuse_slack_mb:0")
    # nor does the cache grow for it: beyond reuse_slack_mb freed memory goes back to the driver
    assert ours["reserved_bytes"]["peak"] <= 2 * 48 << 20


def test_export_of_a_part_is_refused_with_one_warning(tmp_path):
    done, _, _ = run_case(tmp_path, "export_of_a_part", CACHEALLOC_LOG="warn")
    assert len(re.findall("refused in this version", done.stderr)) == 1 and "CACHEALLOC_CONF=min_size:10M" in done.stderr


def test_what_min_size_leaves_to_the_driver_can_be_exported(tmp_path):
    done, ours, _ = run_case(tmp_path, "export_below_min_size", CACHEALLOC_LOG="warn", CACHEALLOC_CONF="min_size:10M")
    assert not done.stderr and (ours["cache_hits"], ours["passed_alloc_calls"]) == (1, 1)


def test_memory_with_a_flag_stays(tmp_path):
    _, ours, theirs = run_case(tmp_path, "sync_memops")
    assert (ours["driver_alloc_calls"], ours["driver_free_calls"]) == (1, 0) and "cuMemFree_v2" not in theirs["calls"]


@pytest.mark.parametrize("case", ["captures_survive", "captures_end", "capture_memory"])
def test_captures(tmp_path, case):
    run_case(tmp_path, case, SIMCUDA_RACES="abort")


def test_cached_memory_makes_room(tmp_path):
    _, ours, theirs = run_case(tmp_path, "oom_flush", SIMCUDA_MEM="256M")
    assert ours["ooms"] == 0 and ours["flushes"] >= 1
    assert theirs["calls"]["cuMemFree_v2"] == ours["driver_free_calls"]


def test_cached_memory_makes_room_for_other_calls(tmp_path):
    _, ours, _ = run_case(tmp_path, "other_calls_get_room", SIMCUDA_MEM="256M")
    assert ours["other_alloc_calls"] == 2 and ours["flushes"] == 2


def test_cached_memory_makes_room_for_the_memory_of_graphs():
    for preload in (False, True):
        run([PROGRAM, "graph_memory_gets_room"], preload=preload, check=0, SIMCUDA_MEM="256M", SIMCUDA_RACES="abort")


def test_no_more_goes_back_than_is_missing(tmp_path):
    _, ours, theirs = run_case(tmp_path, "oom_gives_back_little", SIMCUDA_MEM="256M", CACHEALLOC_CONF="give_back:oom")
    assert ours["driver_free_calls"] == theirs["calls"]["cuMemFree_v2"] == 1


def test_out_of_memory_only_when_nothing_is_left(tmp_path):
    _, ours, _ = run_case(tmp_path, "oom_takes_everything", SIMCUDA_MEM="256M", SIMCUDA_RACES="abort")
    assert ours["ooms"] == 0 and ours["reserved_bytes"]["current"] == 256 << 20


def test_out_of_memory_is_reported_once_a_size_and_not_too_often():
    done = run([PROGRAM, "oom_report"], check=0, SIMCUDA_MEM="256M")
    lines = [line.removeprefix("cachealloc: warning: ") for line in unmarked(done.stderr).splitlines()]
    assert lines[0] == ("CUDA out of memory. Tried to allocate 180.00 MiB. GPU 0 has a total capacity of 256.00 MiB of which "
                        "136.00 MiB is free. Of the allocated memory 104.00 MiB is allocated by the program, and 16.00 MiB is "
                        "reserved by cachealloc but unallocated.")
    assert "188743680 bytes were asked for; the largest free block has 12582912 bytes. Free: 16.00 MiB for every" in lines[1]
    assert lines[2].startswith("out of memory: tried: searched 3 times, asked the driver 2 times more, ")
    assert lines[3].startswith("hint: live memory alone exceeds the device: 104.00 MiB allocated and 180.00 MiB asked")
    assert len(lines) == 8 and "Tried to allocate 300.00 MiB" in lines[4]


KEYS = [row["name"] for row in json.loads((ROOT / "scripts" / "options.json").read_text())["options"] if row["kind"] == "key"]


def pasted(command, folder):
    """The command as a shell runs it where scripts/cachealloc is installed."""
    return subprocess.run(["/bin/sh", "-c", command], cwd=folder, text=True, capture_output=True, timeout=60, check=False,
                          env=clean_env(PATH=f"{ROOT / 'scripts'}:{os.environ['PATH']}", CACHEALLOC_BUILD=BUILD))


@pytest.mark.parametrize("conf", ["", "max_split_size_mb:20"])
def test_memory_in_pieces_the_hint_names_a_command_and_no_setting(tmp_path, conf):
    """No setting helps every program: a recording of this one tells. The command works as it is printed."""
    done = run([PROGRAM, "oom_pieces"], check=0, SIMCUDA_MEM="256M", CACHEALLOC_CONF=conf)
    hint, = [line for line in done.stderr.splitlines() if "hint: " in line]
    assert not [key for key in KEYS if key in hint] and "in pieces" in hint
    (variable, file), = re.findall(r"(CACHEALLOC_TRACE)=(\S+?)[ `]", hint)
    command, = re.findall(r"`(cachealloc explain [^`]*)`", hint)
    run([PROGRAM, "oom_pieces"], check=0, SIMCUDA_MEM="256M", CACHEALLOC_CONF=conf, cwd=tmp_path, **{variable: file})
    found = pasted(command, tmp_path)
    assert found.returncode == 0 and found.stdout.startswith("fragmentation: "), (found.stdout, found.stderr)


def test_while_the_program_is_recorded_the_hint_names_the_recording(tmp_path):
    done = run([PROGRAM, "oom_pieces"], check=0, SIMCUDA_MEM="256M", CACHEALLOC_TRACE="t.%p.trace", cwd=tmp_path)
    hint, = [line for line in done.stderr.splitlines() if "hint: " in line]
    command, = re.findall(r"`(cachealloc explain [^`]*)`", hint)
    assert str(next(tmp_path.glob("t.*.trace"))) in command and pasted(command, tmp_path).returncode == 0


@pytest.mark.parametrize("level", ["off", "error"])
def test_the_report_can_be_silenced(level):
    assert run([PROGRAM, "oom_report"], check=0, SIMCUDA_MEM="256M", CACHEALLOC_LOG=level).stderr == ""


ROOMY = ["cuModuleLoadData", "cuModuleGetFunction", "cuStreamCreate", "cuEventCreate", "cuGraphInstantiateWithFlags", "cuGraphUpload",
         "cuGraphLaunch", "cuCtxCreate_v2", "cuDevicePrimaryCtxRetain:2"]


@pytest.mark.parametrize("name", ROOMY)
def test_cached_memory_makes_room_for_calls_that_need_a_little(tmp_path, name):
    name, _, nth = name.partition(":")
    fail = f"{name}:{nth or 1}:2"
    _, ours, theirs = run_case(tmp_path, "calls_that_need_room", SIMCUDA_FAIL=fail)
    assert ours["flushes"] == 1 and ours["reserved_bytes"]["current"] == 0
    # without memory of ours to give the answer is the driver's
    done = run([PROGRAM, "calls_that_need_room"], check=1, SIMCUDA_FAIL=f"{name}:{nth or 1}+:2")
    assert " = 2\n" in done.stderr
    run([PROGRAM, "calls_that_need_room"], check=1, preload=False, SIMCUDA_FAIL=fail)


def test_memory_info_counts_segments_that_are_wholly_unused_as_free():
    """As the README says: 4 MiB of a segment of 20 in use are 20 MiB used."""
    assert run([PROGRAM, "used_segments"], check=0).stdout == "20\n0\n"


def test_out_of_memory_is_the_drivers_answer(tmp_path):
    _, ours, _ = run_case(tmp_path, "oom_is_native", SIMCUDA_MEM="256M")
    assert ours["ooms"] == 2
    assert ours["alloc_calls"] == ours["free_calls"]


def test_others_memory_passes(tmp_path):
    _, ours, theirs = run_case(tmp_path, "foreign")
    assert ours["alloc_calls"] == 1 and ours["free_calls"] == 1
    assert theirs["calls"]["cuMemFree_v2"] == 1


def test_ten_of_one_size_take_one_segment(tmp_path):
    _, ours, theirs = run_case(tmp_path, "ten")
    assert (ours["alloc_calls"], ours["free_calls"], ours["cache_hits"]) == (10, 10, 9)
    assert ours["driver_alloc_calls"] == theirs["calls"]["cuMemAlloc_v2"] == 1
    assert ours["requested_bytes"] == {"current": 0, "peak": 1000, "total": 10000}
    assert ours["allocated_bytes"]["peak"] == 1024
    assert ours["reserved_bytes"]["current"] == 2 << 20
    assert ours["uuid"].startswith("GPU-") and ours["name"]


def test_the_reserve_does_not_grow_with_each_capture(tmp_path):
    """50 captures. (50 segments where each took new memory; 2 here, more where the thread that tells of a graph's end is late.)"""
    ours = tmp_path / "ours.json"
    run([PROGRAM.with_name("cases_native"), "many_captures"], check=0, CACHEALLOC_STATS=ours, SIMCUDA_RACES="abort")
    device = stats(ours)["devices"][0]
    assert device["alloc_calls"] == 50 and device["ooms"] == 0
    assert device["driver_alloc_calls"] <= 25, device


def test_holders_of_a_primary_context_do_not_disturb_each_other(tmp_path):
    out = tmp_path / "ours.json"
    done = run([PROGRAM, "two_releases"], check=0, CACHEALLOC_STATS=out, CACHEALLOC_LOG="debug", SIMCUDA_DEVICES=2,
               SIMCUDA_RACES="abort", SIMCUDA_LATENCY="cuDevicePrimaryCtxRelease_v2:1ms")
    assert "every invariant of the records holds" in done.stderr
    second = stats(out)["devices"][1]
    assert second["ooms"] == 0
    # what is freed while a context is being released waits for it, and no more than reuse_slack_mb may wait
    assert second["reserved_bytes"]["peak"] <= (256 + 16) << 20
    assert second["cache_hits"] >= 900


@pytest.mark.parametrize("attempt", range(6))
def test_exit_in_a_signal_handler(attempt):
    run([PROGRAM, "exit_in_handler"], check=7, timeout=20, CACHEALLOC_STATS="1")


def test_counting_only(tmp_path):
    _, ours, theirs = run_case(tmp_path, "ten", CACHEALLOC_DISABLE="count")
    assert (ours["alloc_calls"], ours["free_calls"], ours["cache_hits"]) == (10, 10, 0)
    assert ours["driver_alloc_calls"] == theirs["calls"]["cuMemAlloc_v2"] == 10
    assert ours["driver_free_calls"] == theirs["calls"]["cuMemFree_v2"] == 10
    assert ours["reserved_bytes"]["peak"] == 1000
    assert theirs["calls"].get("cuCtxRecordEvent", 0) == 0


def test_disabled_is_pure(tmp_path):
    out, sim, plain = tmp_path / "ours.json", tmp_path / "sim.json", tmp_path / "plain.json"
    run([PROGRAM, "ten"], check=0, CACHEALLOC_DISABLE="1", CACHEALLOC_STATS=out, SIMCUDA_STATS=sim)
    run([PROGRAM, "ten"], preload=False, check=0, SIMCUDA_STATS=plain)
    assert not out.exists()
    calls, expected = (json.loads(path.read_text())["calls"] for path in (sim, plain))
    for name in ("cuGetProcAddress_v2", "cuDriverGetVersion"):  # finding the real functions
        calls.pop(name)
    assert calls == expected


def test_table_on_stderr():
    done = run([PROGRAM, "ten"], check=0, CACHEALLOC_STATS="1")
    assert "reserved from driver" in done.stderr
    assert all(len(line) <= 80 for line in done.stderr.splitlines())


def test_table_has_rows_for_other_calls_and_for_reuse_of_finished_memory_only():
    done = run([PROGRAM, "other_calls_get_room"], check=0, SIMCUDA_MEM="256M", CACHEALLOC_STATS="1",
               CACHEALLOC_CONF="reuse:finished")
    assert "\nother   2 alloc by calls that the driver serves itself: stream-ordered\n" in done.stderr
    assert ("\nreuse   only finished memory: reuse:finished\n"
            "        CACHEALLOC_CONF=reuse:ordered changes it\n") in done.stderr
    done = run([PROGRAM, "ten"], check=0, CACHEALLOC_STATS="1", CACHEALLOC_CONF="zero:True")
    assert "\nreuse   only finished memory: zero\n        CACHEALLOC_CONF=zero:False changes it\n" in done.stderr
    done = run([BUILD / "tests" / "process" / "order" / "order_fallback", "context_wait"], check=0, CACHEALLOC_STATS="1")
    assert ("\nreuse   only finished memory: a whole context was made to wait for an event\n"
            "        no setting changes it\n") in done.stderr
    assert all(len(line) <= 80 for line in done.stderr.splitlines())


def test_info_says_library_driver_road_and_device():
    done = run([PROGRAM, "ten"], check=0, CACHEALLOC_LOG="info", SIMCUDA_DRIVER_VERSION="12090", SIMCUDA_DEVICES=2)
    lines = [line.removeprefix("cachealloc: info: ") for line in unmarked(done.stderr).splitlines()]
    assert re.fullmatch(rf"version \S+, pid \d+, library {re.escape(str(LIBRARY))}", lines[0])
    found = re.fullmatch(r"device 0: (.+), GPU-[0-9a-f-]{36}; driver of CUDA 12\.9, (\S+); (.+)", lines[2])
    assert found and os.path.samefile(found[2], SIM / "libcuda.so.1") and "simcuda" in found[1]
    assert "linked" in found[3] or "dlsym" in found[3] or "cuGetProcAddress" in found[3]
    assert lines[3] == "first allocation: 1000 bytes, served here"
    assert lines[1] == "CACHEALLOC_LOG=info" and len(lines) == 4  # once, and of the device that is used


@pytest.mark.parametrize("passed", [{"CACHEALLOC_DISABLE": "count"}, {"CACHEALLOC_CONF": "min_size:2M"}])
def test_info_says_where_the_first_memory_came_from(passed):
    done = run([PROGRAM, "ten"], check=0, CACHEALLOC_LOG="info", **passed)
    assert done.stderr.count("first allocation: ") == 1
    assert "cachealloc: info: first allocation: 1000 bytes, straight to the driver\n" in unmarked(done.stderr)


def test_a_child_says_it_for_itself():
    done = run(["sh", "-c", f"{PROGRAM} ten; {PROGRAM} ten"], check=0, CACHEALLOC_LOG="info")
    assert done.stderr.count("first allocation: 1000 bytes, served here\n") == 2


@pytest.mark.parametrize("program, road", [
    ("road_direct-O2", "linked by name"), ("road_dlsym-O2", "looked up by dlsym"),
    ("road_proc_v2-O2", "looked up by cuGetProcAddress"), ("road_runtime_static-O2", "looked up by cuGetProcAddress"),
])
def test_info_tells_the_roads_apart(program, road):
    done = run([BUILD / "tests" / "process" / "programs" / program, "9"], CACHEALLOC_LOG="info", check=0)
    assert f"; calls are {road}\n" in done.stderr, done.stderr


def test_statistics_are_never_overwritten(tmp_path):
    first = tmp_path / "s.json"
    for _ in range(3):
        run([PROGRAM, "ten"], check=0, CACHEALLOC_STATS=first)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s.1.json", "s.2.json", "s.json"]


def test_interval_appends_lines(tmp_path):
    out = tmp_path / "s.json"
    run([PROGRAM, "slow"], check=0, CACHEALLOC_STATS=out, CACHEALLOC_STATS_INTERVAL="50ms")
    lines = out.read_text().splitlines()
    assert len(lines) >= 2
    calls = [json.loads(line)["devices"][0]["alloc_calls"] for line in lines]
    assert calls == sorted(calls)


def test_each_process_writes_its_own(tmp_path):
    run([NATIVE, "forked_child"], check=0, CACHEALLOC_STATS=tmp_path / "s.%p.json")
    assert len(list(tmp_path.iterdir())) == 1  # the child made only failing calls and left by _exit


@pytest.mark.parametrize("conf, complaint", [
    ("max_split_size_mb:banana", "max_split_size_mb"),
    ("max_splitsize_mb:100", "max_split_size_mb"),
])
def test_bad_setting_is_one_line_and_ignored(tmp_path, conf, complaint):
    done = run([PROGRAM, "ten"], check=0, CACHEALLOC_CONF=conf)
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and complaint in lines[0] and "CACHEALLOC_CONF" in lines[0]


def test_strict_ends_the_process():
    done = run([PROGRAM, "ten"], CACHEALLOC_CONF="max_split_size_mb:banana", CACHEALLOC_STRICT="1")
    assert done.returncode == 125
    assert "max_split_size_mb" in done.stderr


def test_strict_with_good_settings():
    done = run([PROGRAM, "ten"], check=0, CACHEALLOC_CONF="max_split_size_mb:100", CACHEALLOC_STRICT="1")
    assert done.stderr == ""


def test_quiet_by_default():
    done = run([PROGRAM, "ten"], check=0)
    assert done.stderr == "" and done.stdout == ""
