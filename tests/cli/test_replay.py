# SPDX-License-Identifier: MIT
"""cachealloc-replay: what a user gives it and gets back."""

import json
import lzma
import os
import pickle
import subprocess
import sys
from pathlib import Path

import big_pickle
import pytest
from command import COMMAND, ROOT, environment
from conftest import BUILD
from schema import check

sys.path.insert(0, str(ROOT / "tests" / "unit" / "replay"))
import make_small  # noqa: E402

REPLAY = BUILD / "allocator" / "cachealloc-replay"
EVENTS = BUILD / "tests" / "traces" / "replay_events"
SCHEMA = json.loads((ROOT / "scripts" / "schema" / "replay.schema.json").read_text())
STATS = json.loads((ROOT / "scripts" / "schema" / "stats.schema.json").read_text())
MIB = 1 << 20
STEP = "".join(f"A {i} {3 * MIB * (1 + i % 7)} 0\n" for i in range(40)) + "".join(f"F {i}\n" for i in range(40))


@pytest.fixture(autouse=True)
def _built():
    if not REPLAY.exists():
        pytest.skip(f"not built: {REPLAY.name}")


def replay(*words, stdin=None, program=(REPLAY,), **env):
    return subprocess.run([*program, *map(str, words)], env=environment(**env), input=stdin, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=120, check=False)


def checked(text):
    """The result; its devices have every figure of the library's own statistics."""
    data = json.loads(text)
    check(data, SCHEMA)
    figures = dict(STATS["properties"]["devices"]["items"]["properties"])
    for name in ("name", "uuid", "version"):
        del figures[name]
    for device in data["devices"]:
        assert set(device) == set(figures) | set(SCHEMA["properties"]["devices"]["items"]["properties"])
        for name, schema in figures.items():
            check(device[name], schema, STATS, name)
    return data


def result(*words, status=0, **more):
    done = replay("--json", *words, **more)
    assert done.returncode == status, done.stderr
    return checked(done.stdout)


@pytest.fixture
def trc(tmp_path):
    path = tmp_path / "step.trc"
    path.write_text(STEP)
    return path


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_help_fits_a_terminal_and_names_the_exit_statuses(word):
    done = replay(word)
    assert done.returncode == 0 and not done.stderr
    text = done.stdout.decode()
    assert text.startswith("usage: cachealloc-replay FILE") and "Exit status: 0 done; 1 " in text
    assert max(map(len, text.splitlines())) <= 90


def test_the_manual_page_knows_every_option():
    page = (ROOT / "scripts" / "man" / "cachealloc-replay.1").read_text().replace("\\-", "-")
    options = {word for word in replay("--help").stdout.decode().replace("[", " ").split() if word.startswith("--")}
    assert len(options) >= 7 and all(option.rstrip(",") in page for option in options)


def test_version_is_the_libraries():
    assert replay("--version").stdout == b"cachealloc-replay 0.1.0\n"


@pytest.mark.parametrize("words", [
    [], ["a", "b"], ["--frobnicate", "a"], ["--memory", "8X", "a"], ["--memory", "0", "a"], ["--memory", "", "a"],
    ["--memory", "99999999999999T", "a"], ["--time=0", "a"], ["--time=x", "a"], ["a", "--memory"],
    ["a", "--lag"], ["--lag", "x", "a"], ["--lag", "20ms", "a"], ["--lag", "-1", "a"], ["--lag", "1000001", "a"],
])
def test_wrong_usage_is_2_and_touches_nothing(words):
    done = replay(*words)
    assert done.returncode == 2 and not done.stdout
    assert b"cachealloc-replay" in done.stderr and b"--help" in done.stderr


def test_the_same_run_gives_the_same_bytes(trc):
    outputs = {replay("--json", "--find-min-capacity", trc).stdout for _ in range(3)}
    assert len(outputs) == 1
    data = json.loads(outputs.pop())
    assert data["hits"] + data["misses"] == data["allocations"] == 40
    device = data["devices"][0]
    assert device["alloc_calls"] == 40 and device["free_calls"] == 40
    assert device["peak_live_bytes"] == sum(3 * MIB * (1 + i % 7) for i in range(40))
    assert device["peak_live_bytes"] <= data["min_capacity_bytes"] <= device["peak_reserved_bytes"]
    assert data["waste_ppm"] == (device["peak_reserved_bytes"] - device["peak_live_bytes"]) * 1000000 // \
        device["peak_reserved_bytes"]
    assert device["op_ns_p50"] is None


def test_a_device_that_lags_finishes_nothing_by_being_looked_at(tmp_path):
    """Each block outgrows the free ones: an idle device gives them back first, a busy one cannot."""
    trace = tmp_path / "growing.trc"
    trace.write_text("".join(f"A {i} {(400 + 20 * i) * MIB} 0\nF {i}\n" for i in range(40)))
    idle, busy, oom = (result(trace, *words) for words in (
        [], ["--lag", "20000us"], ["--lag", "20000", "--conf", "give_back:oom"]))
    assert (idle["lag_us"], busy["lag_us"]) == (0, 20000)
    assert idle["devices"][0]["driver_free_calls"] > 30 and not busy["devices"][0]["driver_free_calls"]
    assert busy["peak_reserved_bytes"] == oom["peak_reserved_bytes"] > 5 * idle["peak_reserved_bytes"]
    # the end of a phase is a wait of the program's own
    trace.write_text("".join(f"A {i} {(400 + 20 * i) * MIB} 0\nF {i}\nP\n" for i in range(40)))
    assert result(trace, "--lag", "20000us")["peak_reserved_bytes"] == idle["peak_reserved_bytes"]


def test_times_are_measured_when_asked_for(trc):
    device = result("--time=2", trc)["devices"][0]
    assert 0 < device["op_ns_p50"] <= device["op_ns_p99"] <= device["op_ns_p999"]
    untimed = result(trc)["devices"][0]
    assert {name: value for name, value in device.items() if "_ns_" not in name} == \
        {name: value for name, value in untimed.items() if "_ns_" not in name}


def test_the_table_says_the_same_as_the_json(trc):
    text = replay(trc, "--find-min-capacity").stdout.decode()
    data = result(trc)
    assert f"{trc}: trc text, 80 events" in text and "smallest memory" in text
    assert f"{data['hits']} of 40" in text and f"{data['devices'][0]['driver_alloc_calls']} alloc, 0 free" in text


def test_standard_input_is_a_file_like_any_other(trc):
    data = result("-", stdin=STEP.encode())
    assert data["devices"] == result(trc)["devices"] and data["file"] == "-"


def test_compressed_files_are_named_as_such(tmp_path):
    path = tmp_path / "a.trc.xz"
    path.write_bytes(lzma.compress(b"A 1 1 0\n"))
    done = replay(path)
    assert done.returncode == 1 and b"xz -dc FILE | cachealloc-replay -" in done.stderr


@pytest.mark.parametrize("text, where, words", [
    ("A 1 5 0\nF 2\n", ":2", "block 2 is freed, and it is not live"),
    ("A 1 5 0\nA 2 5\n", ":2", "expected 'A id bytes stream'"),
    ("", "", "empty"), ("hello\n", "", "no trace of a known format"),
    ('{"device_traces":[[', ": byte 19", "cut off"),
    ("[rank0]: Traceback\n", "", "a log? `cachealloc explain` reads it"),
])
def test_a_broken_file_is_1_and_names_the_place(tmp_path, text, where, words):
    path = tmp_path / "broken"
    path.write_text(text)
    done = replay("--json", path)
    assert done.returncode == 1 and not done.stdout
    assert done.stderr.decode().startswith(f"cachealloc-replay: error: {path}{where}: ")
    assert words in done.stderr.decode() and done.stderr.count(b"\n") == 1


def test_a_file_that_cannot_be_read_is_1(tmp_path):
    done = replay(tmp_path / "none")
    assert done.returncode == 1 and b"No such file" in done.stderr
    assert replay(tmp_path).returncode == 1


def test_a_full_disk_is_noticed(trc):
    with open("/dev/full", "w", encoding="ascii") as full:
        assert subprocess.run([REPLAY, "--help"], stdout=full, stderr=subprocess.DEVNULL, check=False).returncode == 1
    with open("/dev/full", "wb") as full:
        done = subprocess.run([REPLAY, trc], stdout=full, stderr=subprocess.PIPE, check=False, timeout=60)
    assert done.returncode == 1 and b"No space" in done.stderr


# ---- settings

@pytest.mark.parametrize("conf, words", [
    ("max_split_size_mb:x", "max_split_size_mb"), ("nonsense:1", "unknown key 'nonsense'"),
    ("large_segment_size_mb:3", "large_segment_size_mb"), ("novalue", "expected key:value"),
])
def test_a_bad_setting_is_fatal_in_the_librarys_words(trc, conf, words):
    done = replay("--conf", conf, trc)
    assert done.returncode == 2 and not done.stdout
    text = done.stderr.decode()
    assert text.startswith("cachealloc-replay: error: CACHEALLOC_CONF") and words in text


def test_settings_have_effect_and_the_environment_has_none(trc):
    small = result("--conf", "large_segment_size_mb:11", trc)
    assert small["conf"] == "large_segment_size_mb:11"
    assert small["bytes_from_driver"] != result(trc)["bytes_from_driver"]
    assert result(trc, CACHEALLOC_CONF="large_segment_size_mb:11,x:y") == result(trc)
    both = result("--conf", "large_segment_size_mb:11", "--conf", "reuse_slack_mb:0", trc)
    assert both["conf"] == "large_segment_size_mb:11,reuse_slack_mb:0"


# ---- memory

def test_running_out_of_memory_is_3_and_told_in_full(tmp_path):
    path = tmp_path / "a.trc"
    path.write_text(f"# three\nA 1 {20 * MIB} 0\nA 2 {20 * MIB} 0\nA 3 {MIB} 0\n")
    done = replay("--json", "--memory", "40M", path)
    assert done.returncode == 3
    data = checked(done.stdout)
    assert data["completed"] is False and data["memory_bytes"] == 40 * MIB
    assert data["devices"][0]["out_of_memory"] == {
        "event": 3, "line": 4, "request_bytes": MIB, "live_bytes": 40 * MIB, "reserved_bytes": 40 * MIB}
    assert b"out of memory at event 3 (line 4): 1.00 MiB were asked for, 40.00 MiB are live" in done.stderr
    assert result("--memory", "42MiB", path)["completed"] is True


def test_the_smallest_memory_is_the_smallest(trc):
    least = result("--find-min-capacity", trc)["min_capacity_bytes"]
    assert result("--memory", least, trc)["completed"]
    assert not result("--memory", least - 2 * MIB, trc, status=3)["completed"]
    assert result("--find-min-capacity", "--memory", least, trc)["min_capacity_bytes"] == least


# ---- requests that were refused

def test_a_refused_request_is_played_at_the_end_if_asked_for(tmp_path):
    log = tmp_path / "rmm.csv"
    log.write_text("Thread,Time,Action,Pointer,Size,Stream\n"
                   f"1,00:00:00.1,allocate,0x100,{20 * MIB},0x0\n1,00:00:00.2,allocate failure,(nil),{30 * MIB},0x0\n"
                   f"1,00:00:00.3,allocate,0x200,{10 * MIB},0x0\n")
    plain = result("--find-min-capacity", log)
    refusal = {"event": 2, "request_bytes": 30 * MIB, "reserved_bytes": None, "free_bytes": None, "segment_bytes": None, "road": "sync"}
    assert plain["devices"][0]["recorded_refusal"] == refusal and plain["devices"][0]["recorded_failed_calls"] == 1
    assert (plain["to_refusal"], plain["allocations"], plain["min_capacity_bytes"]) == (False, 2, 30 * MIB)
    played = result("--find-min-capacity", "--to-refusal", log)
    assert (played["to_refusal"], played["allocations"], played["min_capacity_bytes"]) == (True, 2, 50 * MIB)
    assert played["peak_live_bytes"] == 50 * MIB
    assert result("--memory", 48 * MIB, "--to-refusal", log, status=3)["devices"][0]["out_of_memory"]["event"] == 2
    assert "1 requests, the last played; the largest: 30.00 MiB" in replay("--to-refusal", log).stdout.decode()
    assert result("--memory", 48 * MIB, log)["completed"]


def test_a_file_that_refused_nothing_is_played_to_its_end(trc):
    one, other = result(trc), result("--to-refusal", trc)
    assert one["devices"] == other["devices"] and other["devices"][0]["recorded_refusal"] is None


def test_a_snapshot_tells_what_was_held_and_free_when_it_ran_out(tmp_path):
    """The segments are those of its end; the trace tells which came and went behind the refusal."""
    def event(action, size, address=0, **more):
        return {"action": action, "addr": address, "size": size, "stream": 0, **more}
    path = tmp_path / "snapshot.json"
    path.write_text(json.dumps({
        "segments": [{"total_size": size * MIB, "blocks": []} for size in (20, 30)],
        "device_traces": [[
            event("segment_alloc", 20 * MIB), event("segment_alloc", 200 * MIB), event("alloc", 9 * MIB, 512),
            event("free", 4 * MIB, 1024), {"action": "oom", "device_free": 7 * MIB, "size": 100 * MIB, "stream": 0},
            event("segment_free", 200 * MIB), event("segment_alloc", 30 * MIB), event("free", 9 * MIB, 512)]]}))
    data = result(path)
    assert (data["segment_events"], data["other_events"]) == (4, 1)
    assert data["devices"][0]["recorded_refusal"] == {
        "event": 4, "request_bytes": 100 * MIB, "reserved_bytes": 220 * MIB, "free_bytes": 7 * MIB, "segment_bytes": None, "road": "sync"}
    played = result("--to-refusal", path)
    assert played["peak_live_bytes"] == 109 * MIB and played["frees"] == 1


# ---- snapshots

def figures(path):
    data = result(path)
    return data["events"], data["segment_events"], data["other_events"], data["devices"]


def test_a_snapshot_is_the_same_in_every_protocol_and_as_json(tmp_path):
    snapshot = make_small.snapshot()
    path = tmp_path / "snapshot"
    path.write_text(json.dumps(snapshot, indent=1))
    wanted = figures(path)
    for protocol in range(2, 6):
        path.write_bytes(pickle.dumps(snapshot, protocol))
        assert figures(path) == wanted, protocol
    assert wanted[:3] == (8, 1, 2)
    assert wanted[3][0]["recorded_reserved_bytes"] == 20 * MIB


@pytest.mark.parametrize("protocol", range(2, 6))
def test_a_pickle_that_names_a_class_is_refused_and_runs_nothing(tmp_path, protocol):
    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path}/ran",)
    path = tmp_path / "evil.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [[Evil()]]}, protocol))
    done = replay(path)
    assert done.returncode == 1 and b"system': refused, a snapshot is plain data" in done.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("protocol", (0, 1))
def test_older_protocols_are_no_known_format(tmp_path, protocol):
    path = tmp_path / "old.pickle"
    path.write_bytes(pickle.dumps(make_small.snapshot(), protocol))
    assert replay(path).returncode == 1


def test_every_device_has_memory_of_its_own(tmp_path):
    def events(device):
        return [{"action": "alloc", "addr": 512 * (i + 1), "size": 20 * MIB * (device + 1), "stream": 0, "time_us": i}
                for i in range(3)]
    path = tmp_path / "two.json"
    path.write_text(json.dumps({"segments": [], "device_traces": [events(0), [], events(2)]}))
    data = result("--find-min-capacity", path)
    assert [device["index"] for device in data["devices"]] == [0, 2]
    assert [device["min_capacity_bytes"] for device in data["devices"]] == [60 * MIB, 180 * MIB]
    assert data["min_capacity_bytes"] == 180 * MIB and data["peak_live_bytes"] == 240 * MIB
    assert not result("--memory", "100M", path, status=3)["completed"]


# ---- recorded traces

RECORDED = [("medium_128_training", "med128"), ("medium_1024_training", "med1024"),
            ("medium_1024_inference", "inf1024")]


FOLDER = Path(__file__).parent.parent / "traces" / "recorded"


def unpacked(name, folder):
    path = folder / name
    path.write_bytes(lzma.decompress((FOLDER / f"{name}.xz").read_bytes()))
    return path


def played(path):
    done = replay(path, program=(EVENTS,))
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.decode().splitlines() if line != "P"]


@pytest.mark.parametrize("snapshot, name", RECORDED)
def test_a_recorded_snapshot_is_the_sequence_of_its_text(tmp_path, snapshot, name):
    ours, theirs = played(unpacked(f"{snapshot}.pickle", tmp_path)), played(unpacked(f"{name}.trc", tmp_path))
    assert len(ours) == len(theirs) > 2000
    for one, other in zip(ours, theirs):
        if one == other:
            continue
        # of blocks that the trace itself never names, the text has the size of the block, not of the request
        assert one[0] == other[0] == "I" and one[1] == other[1] and 0 < int(other[2]) - int(one[2]) <= MIB
    assert sum(one != other for one, other in zip(ours, theirs)) <= 2


@pytest.mark.parametrize("snapshot, name", RECORDED)
def test_a_recorded_snapshot_as_json_is_the_same(tmp_path, snapshot, name):
    class Plain(pickle.Unpickler):
        def find_class(self, module, name):
            raise AssertionError("a snapshot names no class")
    recording = unpacked(f"{snapshot}.pickle", tmp_path)
    with open(recording, "rb") as file:
        data = Plain(file).load()
    for entry in [event for trace in data["device_traces"] for event in trace] + \
            [block for segment in data["segments"] for block in segment["blocks"]]:
        del entry["frames"][2:]  # pickles share them, JSON cannot
    path = tmp_path / "snapshot.json"
    path.write_text(json.dumps(data))
    assert played(path) == played(recording)


def test_the_command_has_it_as_a_verb(trc):
    done = subprocess.run([sys.executable, COMMAND, "replay", "--json", trc], stdout=subprocess.PIPE, timeout=60,
                          env=environment(CACHEALLOC_BUILD=BUILD), check=True)
    assert json.loads(done.stdout)["devices"] == result(trc)["devices"]
    text = subprocess.run([sys.executable, COMMAND, "help", "replay"], stdout=subprocess.PIPE, timeout=60,
                          env=environment(CACHEALLOC_BUILD=BUILD), check=True).stdout
    assert text == replay("--help").stdout


# A process's peak counts its parent's memory until it becomes the program: so the parent is a small one.
PEAK = """
import os, sys
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)])
_, status, usage = os.wait4(pid, 0)
print(usage.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def peak_bytes(path):
    """The most memory that a replay of the file had, its pages of the file included."""
    done = subprocess.run([sys.executable, "-I", "-S", "-c", PEAK, REPLAY, path], env=environment(), stdout=subprocess.PIPE,
                          timeout=600, check=True)
    return int(done.stdout) * 1024


def test_a_snapshot_takes_at_most_twice_its_size(tmp_path):
    """A pickle of 1 GB in the long form, else of 24 MB."""
    if os.environ.get("CACHEALLOC_TEST_SANITIZER"):
        pytest.skip("a sanitizer keeps freed memory")
    long = os.environ.get("CACHEALLOC_TEST_LONG")
    big = tmp_path / "big.pickle"
    events = big_pickle.write(big, 1 << 30 if long else 24 << 20)
    if not long:  # it is to its own readers what it is to us
        with big.open("rb") as file:
            trace = pickle.load(file)["device_traces"][0]
        assert len(trace) == events and trace[0]["frames"][0]["filename"].endswith(".cpp")
    ratio = peak_bytes(big) / big.stat().st_size
    print(f"{events} events, {big.stat().st_size} bytes, {ratio:.2f} times that in memory")
    assert 1 < ratio <= 2
    big.unlink()
