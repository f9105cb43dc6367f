# SPDX-License-Identifier: MIT
"""`cachealloc convert`: what others' tools read of it, and that nothing is lost on the way."""

import csv
import json
import lzma
import os
import pickle
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command import COMMAND, ROOT, environment
from conftest import BUILD, LIBRARY, run

sys.path.insert(0, str(ROOT / "tests" / "process" / "trace"))
sys.path.insert(0, str(ROOT / "tests" / "traces"))
import tracefile  # noqa: E402
import workload  # noqa: E402

REPLAY = BUILD / "allocator" / "cachealloc-replay"
RECORDED = ROOT / "tests" / "traces" / "recorded"
VIEWERS = ROOT / "build-viewers"
FORMS = ("memory_viz", "perfetto", "rmm", "csv")
SNAPSHOTS = ("medium_1024_inference", "medium_128_training")


@pytest.fixture(autouse=True)
def built():
    if not REPLAY.exists() or not LIBRARY.exists():
        pytest.skip("not built: cachealloc-replay or the library")


def convert(*words, stdin=None, **more):
    return subprocess.run([sys.executable, COMMAND, "convert", *map(str, words)], env=environment(CACHEALLOC_BUILD=BUILD),
                          stdin=stdin or subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120,
                          check=False, **more)


def good(*words, **more):
    done = convert(*words, **more)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """name -> a trace of ours: a small program that runs out of memory, and a training step."""
    folder = tmp_path_factory.mktemp("traces")
    run([BUILD / "tests" / "process" / "trace" / "cases_trace", "steps"], check=0, cwd=folder, SIMCUDA_MEM="64M",
        CACHEALLOC_CONF="reuse_slack_mb:7", CACHEALLOC_LOG="error", CACHEALLOC_TRACE="oom.trace")
    step = workload.prepare("generated:2:64:3", folder)
    run([BUILD / "tests" / "traces" / "trace_program", "--steps", "2", "--spin-us", "20", step], check=0, cwd=folder,
        SIMCUDA_MEM="64G", CACHEALLOC_TRACE="step.trace")
    return {name: folder / f"{name}.trace" for name in ("oom", "step")}


@pytest.fixture(scope="module")
def mapped(tmp_path_factory):
    """name -> a trace of memory that was mapped in pieces: it moves, goes back as one piece or in others, and some stays."""
    folder = tmp_path_factory.mktemp("mapped")
    step = workload.prepare("generated:2:64:3", folder)
    run([BUILD / "tests" / "traces" / "trace_program", "--steps", "2", step], check=0, cwd=folder, SIMCUDA_MEM="64G",
        CACHEALLOC_CONF="expandable_segments:True", CACHEALLOC_TRACE="step.trace")
    run([BUILD / "tests" / "process" / "order" / "order_moves", "random"], check=0, cwd=folder, SIMCUDA_DEVICES=1, ORDER_SEED=7,
        CACHEALLOC_CONF="expandable_segments:True,expandable_slack_percent:0", CACHEALLOC_TRACE="moves.trace")
    return {name: folder / f"{name}.trace" for name in ("step", "moves")}


@pytest.mark.parametrize("name", ["step", "moves"])
def test_mapped_memory_is_where_it_is(mapped, tmp_path, name):
    snapshot = pickle.loads(good(mapped[name], "--to", "memory_viz", "-o", "-"))
    reserved = sum(r.bytes * {"taken": 1, "returned": -1}[r.kind] for r in tracefile.read(mapped[name]).of("taken", "returned"))
    assert sum(segment["total_size"] for segment in snapshot["segments"]) == reserved
    for segment in snapshot["segments"]:
        assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
    blocks = [block for segment in snapshot["segments"] for block in segment["blocks"]]
    trace = tracefile.read(mapped[name])
    assert sum(block["state"] == "active_allocated" for block in blocks) == len(trace.of("alloc")) - len(trace.of("free"))
    del snapshot["cachealloc_trace"]
    (tmp_path / "bare.pickle").write_bytes(pickle.dumps(snapshot))
    one, two = replayed(tmp_path / "bare.pickle"), replayed(mapped[name])
    assert one["devices"][0]["recorded_reserved_bytes"] == two["devices"][0]["recorded_reserved_bytes"]


@pytest.fixture(scope="module")
def snapshots(tmp_path_factory):
    """name -> a snapshot that PyTorch wrote."""
    folder = tmp_path_factory.mktemp("snapshots")
    for name in SNAPSHOTS:
        (folder / f"{name}.pickle").write_bytes(lzma.decompress((RECORDED / f"{name}.pickle.xz").read_bytes()))
    return {name: folder / f"{name}.pickle" for name in SNAPSHOTS}


def replayed(path, *words):
    """The figures of a replay, without what names the file."""
    done = subprocess.run([REPLAY, path, "--json", *words], env=environment(), stdout=subprocess.PIPE, timeout=120, check=True)
    data = json.loads(done.stdout)
    del data["file"], data["input_format"]
    return data


# ---------------------------------------------------------------------------------- nothing is lost ---


@pytest.mark.parametrize("words", [(), ("--find-min-capacity",), ("--conf", "reuse_slack_mb:0"), ("--memory", "2G")])
@pytest.mark.parametrize("name", ["oom", "step"])
def test_a_pickle_of_a_trace_is_replayed_as_the_trace(traces, tmp_path, name, words):
    good(traces[name], "--to", "memory_viz", "-o", tmp_path / "a.pickle")
    assert replayed(tmp_path / "a.pickle", *words) == replayed(traces[name], *words)


@pytest.mark.parametrize("name", ["oom", "step"])
def test_the_events_of_the_pickle_are_those_of_the_trace(traces, tmp_path, name):
    """Without the trace that goes along: what viewers see."""
    snapshot = pickle.loads(good(traces[name], "--to", "memory_viz", "-o", "-"))
    del snapshot["cachealloc_trace"]
    bare = tmp_path / "bare.pickle"
    bare.write_bytes(pickle.dumps(snapshot))
    one, two = replayed(bare), replayed(traces[name])
    for key in ("allocations", "frees", "live_at_start", "peak_live_bytes", "segment_events"):
        if key == "segment_events":  # a refused segment is no event of PyTorch's
            two[key] -= len(tracefile.read(traces[name]).of("refused"))
        assert one[key] == two[key], key
    assert one["devices"][0]["recorded_reserved_bytes"] == two["devices"][0]["recorded_reserved_bytes"]


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_a_snapshot_of_pytorch_comes_through_unchanged(snapshots, tmp_path, name):
    good(snapshots[name], "--to", "memory_viz", "-o", tmp_path / "a.pickle")
    one, two = (pickle.loads(path.read_bytes()) for path in (tmp_path / "a.pickle", snapshots[name]))
    assert one.pop("converted_by").startswith("cachealloc ")
    assert one == two
    assert replayed(tmp_path / "a.pickle") == replayed(snapshots[name])
    assert (tmp_path / "a.pickle").stat().st_size < 1.1 * snapshots[name].stat().st_size  # stacks share their frames


def keys(snapshot):
    """The keys at each place; events by action."""
    found = {"segment": set(), "block": set()}
    for segment in snapshot["segments"]:
        found["segment"] |= set(segment)
        for block in segment["blocks"]:
            found["block"] |= set(block)
    for event in (event for trace in snapshot["device_traces"] for event in trace):
        found.setdefault(event["action"], set()).update(event)
    return found


def test_the_keys_are_those_that_pytorch_writes(traces, snapshots):
    made = pickle.loads(good(traces["oom"], "--to", "memory_viz", "-o", "-"))
    theirs = pickle.loads(snapshots["medium_128_training"].read_bytes())
    assert set(theirs) <= set(made)
    ours, theirs = keys(made), keys(theirs)
    for place in ("segment", "block", "alloc", "free_requested", "free_completed"):
        assert ours[place] == theirs[place], place
    assert ours["oom"] == theirs["alloc"] - {"addr"} | {"device_free"}
    trace, = made["device_traces"]
    refused, = (event for event in trace if event["action"] == "oom")
    reserved = sum(segment["total_size"] for segment in made["segments"])
    assert 0 <= refused["device_free"] <= 64 << 20 and refused["size"] == 48 << 20
    header = tracefile.read(traces["oom"])
    assert [event["time_us"] for event in trace if event["action"] == "alloc"] == [
        (header.start_unix_ns + r.ns) // 1000 for r in header.of("alloc", "adopt")]
    live = header.live_at_the_end()
    blocks = {b["address"]: b["requested_size"] for s in made["segments"] for b in s["blocks"] if b["state"] == "active_allocated"}
    assert blocks == {address: record.bytes for (_, address), record in live.items()} and reserved > 0
    for segment in made["segments"]:
        assert sum(b["size"] for b in segment["blocks"]) == segment["total_size"]


def test_older_snapshots_are_read(tmp_path):
    """A list of segments, whose blocks have no address; as JSON, too."""
    old = [{"device": 0, "address": 4096, "total_size": 8192, "stream": 3, "blocks": [
        {"size": 1024, "state": "inactive"},
        {"size": 2048, "state": "active_allocated", "history": [{"addr": 5120, "real_size": 2000, "frames": []}]},
        {"size": 5120, "state": "active_allocated"}]}]
    (tmp_path / "old.pickle").write_bytes(pickle.dumps(old, 2))
    (tmp_path / "old.json").write_text(json.dumps({"segments": old}))
    for path in (tmp_path / "old.pickle", tmp_path / "old.json"):
        made = pickle.loads(good(path, "--to", "memory_viz", "-o", "-"))
        segment, = made["segments"]
        assert [(b["address"], b["size"], b["requested_size"], b["state"]) for b in segment["blocks"]] == [
            (4096, 1024, 1024, "inactive"), (5120, 2048, 2000, "active_allocated"), (7168, 5120, 5120, "active_allocated")]
        assert made["device_traces"] == [[]] and segment["allocated_size"] == 7168 and segment["segment_type"] == "small"
        rows = good(path, "--to", "rmm", "-o", "-").decode().splitlines()
        assert rows[1:] == ["0,00:00:00.000000,allocate,0x1400,2000,0x3", "0,00:00:00.000000,allocate,0x1c00,5120,0x3"]


# ------------------------------------------------------------------------------------------ tables ---


@pytest.mark.parametrize("name", ["oom", "step"])
def test_a_row_an_event(traces, tmp_path, name):
    good(traces[name], "--to", "csv", "-o", tmp_path / "a.csv")
    with (tmp_path / "a.csv").open() as file:
        rows = list(csv.DictReader(file))
    trace = tracefile.read(traces[name])
    names = {"alloc": "alloc", "adopt": "alloc", "free": "free", "failed": "oom", "taken": "segment_alloc",
             "returned": "segment_free", "refused": "segment_refused", "work": "work"}
    expected = [(names[r.kind], trace.start_unix_ns + r.ns, r.device) for r in trace.of(*names)]
    assert [(row["event"], int(row["time_ns"]), int(row["device"])) for row in rows if row["event"] != "idle"] == expected
    live, reserved = {}, 0
    for row in rows:
        address, size = row["address"], int(row["bytes"])
        if row["event"] == "alloc":
            live[address] = size
        elif row["event"] == "free":
            assert live.pop(address) == size
        elif row["event"].startswith("segment_") and row["event"] != "segment_refused":
            reserved += size if row["event"] == "segment_alloc" else -size
        assert int(row["allocated_bytes"]) == sum(live.values()) and int(row["reserved_bytes"]) == reserved
    assert {int(address, 16): size for address, size in live.items()} == {
        address: record.bytes for (_, address), record in trace.live_at_the_end().items()}
    work = [row for row in rows if row["event"] in ("work", "idle")]
    assert (name == "oom") or (work and all(row["stream"] for row in work))


@pytest.mark.parametrize("source", ["oom", "step", *SNAPSHOTS])
def test_the_log_of_rmm_has_every_allocation_and_free(traces, snapshots, tmp_path, source):
    path = {**traces, **snapshots}[source]
    good(path, "--to", "rmm", "-o", tmp_path / "a.csv")
    one, two = replayed(tmp_path / "a.csv"), replayed(path)
    assert one["allocations"] == two["allocations"] + two["live_at_start"] and one["frees"] == two["frees"]
    assert one["peak_live_bytes"] == two["peak_live_bytes"]
    failed = (tmp_path / "a.csv").read_text().count(",allocate failure,")
    assert failed == two["devices"][0]["recorded_failed_calls"] == (source == "oom")


def test_one_device_of_several(tmp_path):
    def event(action, device, size):
        return {"action": action, "addr": 4096 * (device + 1), "size": size, "stream": 0, "time_us": 5}

    snapshot = {"segments": [], "device_traces": [[event("alloc", 0, 512)], [], [event("alloc", 2, 1024), event("free", 2, 1024)]]}
    path = tmp_path / "two.pickle"
    path.write_bytes(pickle.dumps(snapshot))
    done = convert(path, "--to", "rmm", "-o", "-")
    assert done.returncode == 2 and b"0, 2: choose by --device" in done.stderr and not done.stdout
    assert len(good("--device=2", path, "--to", "rmm", "-o", "-").splitlines()) == 3
    done = convert(path, "--to", "csv", "-o", "-", "--device", "1")
    assert done.returncode == 2 and b"has no device 1; it has 0, 2" in done.stderr


# ---------------------------------------------------------------------------------- others' readers ---


def viewers(part):
    if not (VIEWERS / "ok").exists():
        pytest.skip(f"no {part}: build-viewers.log")
    return next(VIEWERS.glob("lib/python3*/site-packages"))


READ = """
import json, sys
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent
trace = Trace()
trace.ParseFromString(open(sys.argv[1], "rb").read())
tracks = {p.track_descriptor.uuid: p.track_descriptor for p in trace.packet if p.HasField("track_descriptor")}
events = []
for p in trace.packet:
    if p.HasField("track_event"):
        e = p.track_event
        notes = {n.name: n.pointer_value or n.uint_value for n in e.debug_annotations}
        assert e.track_uuid in tracks and p.timestamp and p.trusted_packet_sequence_id == 1
        events.append((tracks[e.track_uuid].name, TrackEvent.Type.Name(e.type), e.name, e.counter_value, p.timestamp, notes))
root, = [t for t in tracks.values() if t.HasField("process")]
assert all(t.parent_uuid in tracks for t in tracks.values() if t.uuid != root.uuid)
json.dump({"program": root.process.process_name, "pid": root.process.pid, "events": events,
           "counters": [t.name for t in tracks.values() if t.HasField("counter") and t.counter.unit == 3]}, sys.stdout)
"""


@pytest.mark.parametrize("name", ["oom", "step", "medium_128_training"])
def test_perfettos_own_classes_read_the_trace(traces, snapshots, tmp_path, name):
    packages, source = viewers("package of Perfetto's"), {**traces, **snapshots}[name]
    good(source, "--to", "perfetto", "-o", tmp_path / "a.pftrace")
    done = subprocess.run([sys.executable, "-c", READ, tmp_path / "a.pftrace"], stdout=subprocess.PIPE, timeout=60, check=True,
                          env=environment(PYTHONPATH=packages))
    found = json.loads(done.stdout)
    rows = list(csv.DictReader(good(source, "--to", "csv", "-o", "-").decode().splitlines()))
    assert found["counters"] == ["device 0 allocated", "device 0 reserved"]
    for track, column in (("device 0 allocated", "allocated_bytes"), ("device 0 reserved", "reserved_bytes")):
        values = [value for where, kind, _, value, _, _ in found["events"] if (where, kind) == (track, "TYPE_COUNTER")]
        expected = [int(row[column]) for row in rows if row["event"] not in ("work", "idle")]
        assert values == [v for i, v in enumerate(expected) if not i or v != expected[i - 1]]
    marks = [(event, notes) for _, kind, event, _, _, notes in found["events"] if kind == "TYPE_INSTANT"]
    assert len(marks) == sum(row["event"] not in ("work", "idle") for row in rows)
    assert sum(event == "out of memory" for event, _ in marks) == (name == "oom")
    slices = [kind for _, kind, *_ in found["events"] if kind.startswith("TYPE_SLICE")]
    assert slices[::2] == ["TYPE_SLICE_BEGIN"] * len(slices[::2]) and (name != "step" or len(slices) >= 2)
    if name in traces:
        trace = tracefile.read(traces[name])
        assert found["program"] == trace.fields["program"] and found["pid"] == trace.pid


MEMORY_VIZ = """
import json, pickle, sys
sys.path.insert(0, sys.argv[1])
import _memory_viz as viz

QUICK_EVERY = 4  # conftest.py
with open(sys.argv[2], "rb") as file:
    snapshot = pickle.load(file)
plain = lambda text: text
print(json.dumps([viz.segsum(snapshot), viz.trace(snapshot), viz.segments(snapshot, plain), viz.memory(snapshot, plain),
                  viz.trace_plot(snapshot), viz.trace_plot(snapshot, plot_segments=True)]))
"""


@pytest.mark.parametrize("name", ["oom", "step", "medium_1024_inference"])
def test_pytorchs_own_memory_viz_reads_the_pickle(traces, snapshots, tmp_path, name):
    viewers("_memory_viz.py of PyTorch's")
    good({**traces, **snapshots}[name], "--to", "memory_viz", "-o", tmp_path / "a.pickle")
    script = VIEWERS / "torch" / "cuda" / "_memory_viz.py"
    for action in ("stats", "trace"):
        done = subprocess.run([sys.executable, script, action, tmp_path / "a.pickle"], stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.PIPE, timeout=60, check=True, env=environment())
        assert done.stdout and not done.stderr
    done = subprocess.run([sys.executable, "-c", MEMORY_VIZ, script.parent, tmp_path / "a.pickle"], stdout=subprocess.PIPE,
                          timeout=60, check=True, env=environment())
    summary, listed, segments, _, plot, _ = json.loads(done.stdout)
    made = pickle.loads((tmp_path / "a.pickle").read_bytes())
    assert f"segments: {len(made['segments'])}" in summary and "MemoryViz.js" in plot
    assert listed.count("raise OutOfMemoryError") == (name == "oom")
    assert listed.count("cudaMalloc(") == sum(e["action"] == "segment_alloc" for e in made["device_traces"][0])
    assert len(segments.splitlines()) >= len(made["segments"])


# ------------------------------------------------------------------------------------------ manners ---


def test_standard_input_and_output(traces):
    with traces["oom"].open("rb") as file:
        one = good("-", "--to", "csv", "-o", "-", stdin=file)
    assert one == good("--to", "csv", "--output=-", traces["oom"])


@pytest.mark.parametrize("form", FORMS)
def test_the_same_file_gives_the_same_bytes(traces, form):
    assert good(traces["oom"], "--to", form, "-o", "-") == good(traces["oom"], "--to", form, "-o", "-")


@pytest.mark.parametrize("words, said", [
    ((), "no FILE given"), (("a",), "--to is missing"), (("a", "--to", "csv"), "-o is missing"),
    (("a", "b", "--to", "csv", "-o", "-"), "one FILE at a time: a b"), (("a", "--to", "cvs", "-o", "-"), "did you mean csv?"),
    (("a", "--ot", "csv"), "did you mean --to?"), (("a", "--to", "csv", "-o", "no/such/folder"), "its folder does not exist"),
    (("a", "--to", "csv", "-o", "/dev/null"), "exists; --force overwrites it"),
    (("a", "--to", "memory_viz", "--device", "0", "-o", "-"), "--device is of no use"),
    (("a", "--to", "csv", "--device", "x", "-o", "-"), "expected a device's number")])
def test_a_wrong_command_line_is_2(words, said):
    done = convert(*words)
    assert done.returncode == 2 and said in done.stderr.decode() and done.stderr.count(b"\n") == 1 and not done.stdout


class Evil:
    def __reduce__(self):
        return os.mkdir, ("evil",)


@pytest.mark.parametrize("data, said", [
    (b"", "neither a trace"), (b"hello", "neither a trace"), (b"\x1f\x8b...", "compressed"), (b"\xfd7zXZ\0", "compressed"),
    (pickle.dumps(Evil()), "names posix.mkdir: refused"), (pickle.dumps([1])[:-3], "a broken pickle"),
    (pickle.dumps({"a": 1}), "neither segments nor device_traces"), (pickle.dumps(7), "not a snapshot"),
    (pickle.dumps({"segments": [{"blocks": 3}]}), "not a snapshot"), (b"[1, 2", "broken JSON"), (b"\x89CAtr\r\n\n", "cut off in its header"),
    (pickle.dumps({"segments": [], "cachealloc_trace": ["?"]}), "the trace in the snapshot is broken")])
def test_what_cannot_be_read_is_1_and_leaves_nothing(tmp_path, data, said):
    (tmp_path / "in").write_bytes(data)
    done = convert("in", "--to", "csv", "-o", "out", cwd=tmp_path)
    assert done.returncode == 1 and said in done.stderr.decode() and done.stderr.count(b"\n") == 1, done.stderr
    assert os.listdir(tmp_path) == ["in"]


def test_a_file_that_is_not_there_is_1(tmp_path):
    done = convert("none", "--to", "csv", "-o", "out", cwd=tmp_path)
    assert done.returncode == 1 and b"none: No such file or directory" in done.stderr and not os.listdir(tmp_path)


def test_a_trace_that_is_cut_off_is_converted_as_far_as_it_goes(traces, tmp_path):
    data = traces["step"].read_bytes()
    (tmp_path / "cut.trace").write_bytes(data[:len(data) // 2 | 1])
    done = convert("cut.trace", "--to", "csv", "-o", "-", cwd=tmp_path)
    assert done.returncode == 0 and b"is cut off: what is there is converted" in done.stderr
    whole = good(traces["step"], "--to", "csv", "-o", "-")
    assert whole.startswith(done.stdout) and len(done.stdout) > len(whole) // 4


@pytest.mark.parametrize("form", FORMS)
def test_a_full_disk_leaves_nothing_and_what_was_there_stays(traces, tmp_path, form):
    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (10000, 10000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    (tmp_path / "out").write_text("old")
    done = convert(traces["step"], "--to", form, "-o", "out", "--force", cwd=tmp_path, preexec_fn=limited)
    assert done.returncode == 1 and b"out: File too large" in done.stderr and done.stderr.count(b"\n") == 1
    assert os.listdir(tmp_path) == ["out"] and (tmp_path / "out").read_text() == "old"
    good(traces["step"], "--to", form, "-o", "out", "--force", cwd=tmp_path)
    assert os.listdir(tmp_path) == ["out"] and (tmp_path / "out").stat().st_size > 10000


def test_on_a_terminal_binary_forms_are_refused(traces):
    main, other = os.openpty()
    done = subprocess.run([sys.executable, COMMAND, "convert", traces["oom"], "--to", "perfetto", "-o", "-"], stdout=other,
                          stderr=subprocess.PIPE, env=environment(), timeout=60, check=False)
    os.close(main)
    os.close(other)
    assert done.returncode == 2 and b"nothing for a terminal" in done.stderr


def test_progress_is_for_terminals_and_after_two_seconds(capsys, monkeypatch):
    from cachealloc_cli import convert as verb
    monkeypatch.setattr(verb.time, "monotonic", lambda: 1000)
    progress = verb.Progress()
    progress(0.5)
    progress.wanted = True
    progress(0.5)
    progress.end()
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(verb.time, "monotonic", lambda: 1002)
    progress(0.5)
    progress.end()
    assert capsys.readouterr().err == "\r\033[K50 %\r\033[K"


# ------------------------------------------------------------------------------------------ roads ---


@pytest.fixture(scope="module")
def roads(tmp_path_factory):
    """A trace with memory of pools, of cudaMalloc and page-locked memory."""
    folder = tmp_path_factory.mktemp("roads")
    run([BUILD / "tests" / "process" / "told" / "told_cases", "both_roads"], check=0, cwd=folder, SIMCUDA_MEM="256M",
        CACHEALLOC_CONF="async:pool,pinned:cache", CACHEALLOC_TRACE="roads.trace")
    return folder / "roads.trace"


def test_each_row_names_its_road(roads):
    rows = list(csv.DictReader(good(roads, "--to", "csv", "-o", "-").decode().splitlines()))
    trace = tracefile.read(roads)
    for road, alloc, taken in (("sync", "alloc", "taken"), ("async", "async_alloc", "async_taken"), ("pinned", "pinned_alloc", "pinned_taken")):
        assert sum((row["event"], row["road"]) == ("alloc", road) for row in rows) == len(trace.of(alloc)) > 0
        assert sum((row["event"], row["road"]) == ("segment_alloc", road) for row in rows) == len(trace.of(taken)) > 0
    device = [row for row in rows if row["road"] != "pinned"]
    assert max(int(row["allocated_bytes"]) for row in device) == 200 << 20 == max(int(row["reserved_bytes"]) for row in device)
    assert all(int(row["reserved_bytes"]) < 1 << 20 for row in rows if row["road"] == "pinned")


def test_viewers_of_the_device_get_what_is_on_it(roads, tmp_path):
    good(roads, "--to", "memory_viz", "-o", tmp_path / "a.pickle")
    assert replayed(tmp_path / "a.pickle") == replayed(roads)
    snapshot, trace = pickle.loads((tmp_path / "a.pickle").read_bytes()), tracefile.read(roads)
    actions = [event["action"] for event in snapshot["device_traces"][0]]
    assert actions.count("alloc") == len(trace.of("alloc", "async_alloc"))
    assert actions.count("segment_alloc") == len(trace.of("taken", "async_taken"))
    assert [segment.get("road") for segment in snapshot["segments"]] == [None]  # the last one was of cudaMalloc
    log = good(roads, "--to", "rmm", "-o", "-").decode()
    assert log.count(",allocate,") == len(trace.of("alloc", "async_alloc"))
    assert b"async blocks" in good(roads, "--to", "perfetto", "-o", "-")
