# SPDX-License-Identifier: MIT
"""`cachealloc report`: figures, pictures, bad input. Its page in a browser: test_report_page.py."""

import json
import os
import pickle
import pty
import re
import resource
import select
import signal
import stat
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

import pytest
from command import COMMAND, ROOT, environment
from conftest import BUILD, LIBRARY, run
from report_fixture import (ALLOC, FAILED, FLUSH, FREED, GIVE_BACK, HELD, LIVE, MIB, PROGRAM, RECORDED, REFUSED, SIM_MEMORY, TAKEN,
                            TRIM, Page, crafted, made, out_of_memory, report, sums)

QUICK_EVERY = 4  # conftest.py

REPLAY = BUILD / "allocator" / "cachealloc-replay"
STEP = "".join(f"A {i} {3 * MIB * (1 + i % 7)} 0\n" for i in range(40)) + "".join(f"F {i}\n" for i in range(40))
VIEWS = ("memory", "map", "waste", "sizes", "driver")


@pytest.fixture(autouse=True)
def _built():
    if not REPLAY.exists():
        pytest.skip(f"not built: {REPLAY.name}")


@pytest.fixture
def trc(tmp_path):
    path = tmp_path / "step.trc"
    path.write_text(STEP)
    return path


@pytest.fixture(scope="module")
def oom(tmp_path_factory):
    for path in (PROGRAM, LIBRARY):
        if not path.exists():
            pytest.skip(f"not built: {path.name}")
    return out_of_memory(tmp_path_factory.mktemp("oom"))


def replayed(path, *words):
    opener = {".xz": ["xz", "-dc"]}.get(path.suffix, ["cat"])
    with subprocess.Popen([*opener, path], stdout=subprocess.PIPE) as plain:
        done = subprocess.run([REPLAY, "-", "--json", *words], stdin=plain.stdout, stdout=subprocess.PIPE, check=True, timeout=120)
    return json.loads(done.stdout)


# ---- the command line


def test_help_leads_with_examples_and_fits():
    text = report("--help").stdout
    assert text.startswith("Examples:\n") and "Exit status: 0 done" in text and max(map(len, text.splitlines())) <= 80
    page = (ROOT / "scripts" / "man" / "cachealloc.1").read_text().replace("\\-", "-")
    options = set(re.findall(r"--[a-z]+", text)) - {"--trace"}  # of `run`
    assert len(options) == 9 and all(option in page for option in options)
    for completion in ("cachealloc.bash", "_cachealloc", "cachealloc.fish"):
        words = (ROOT / "scripts" / "completions" / completion).read_text()
        assert all(option in words or option[2:] in words for option in options - {"--help"}), completion


@pytest.mark.parametrize("words", [
    [], ["-o", "x.html"], ["F"], ["F", "--svg", "no"], ["F", "F", "--svg", "map"], ["F", "--svg", "memory", "--at", "oom"],
    ["F", "--svg", "map", "--at", "never"], ["F", "-o", "x.html", "--conf", "a:b"], ["F", "-o", "x.html", "--memory", "1G"],
    ["F", "-o", "x.html", "--replayed", "--conf", "nonsense:1"], ["F", "-o", "x.html", "--replayed", "--memory", "0"],
    ["F", "-o", "x.html", "--frobnicate"], ["F", "-o", "nowhere/x.html"], ["-", "-o", "x.html"], ["F", "-o"],
])
def test_wrong_usage_is_2_and_writes_nothing(words, trc, tmp_path):
    before = sorted(os.listdir(tmp_path))
    done = report(*[trc if word == "F" else word for word in words], cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.startswith("cachealloc: error: report: ") and not done.stdout
    assert sorted(os.listdir(tmp_path)) == before


def test_options_may_stand_behind_files(trc, tmp_path):
    assert report(trc, "-o", tmp_path / "a.html").returncode == 0
    assert report("-o", tmp_path / "b.html", "--", trc).returncode == 0
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_a_file_that_is_there_is_kept(trc, tmp_path):
    page = tmp_path / "page.html"
    page.write_text("precious")
    done = report(trc, "-o", page)
    assert done.returncode == 2 and "--force" in done.stderr and page.read_text() == "precious"
    assert report(trc, "-o", page, "--force").returncode == 0 and page.read_text() != "precious"


def test_no_input_is_overwritten(trc, tmp_path):
    (tmp_path / "link").symlink_to(trc)
    done = report(trc, "-o", tmp_path / "link", "--force")
    assert done.returncode == 2 and "is one of the files to draw" in done.stderr and trc.read_text() == STEP
    snapshot = tmp_path / "snapshot.json"
    snapshot.write_text("{}")
    done = subprocess.run([sys.executable, COMMAND, "convert", snapshot, "--to", "csv", "-o", snapshot, "--force"], stderr=subprocess.PIPE,
                          env=environment(CACHEALLOC_BUILD=BUILD), text=True, timeout=60, check=False)
    assert done.returncode == 2 and "is the recording itself" in done.stderr and snapshot.read_text() == "{}"
    for name in (trc, tmp_path / "link", snapshot):
        done = subprocess.run([REPLAY, trc, "--timeline", name], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 2 and f"{name} exists" in done.stderr and not done.stdout
    assert trc.read_text() == STEP and snapshot.read_text() == "{}"


def test_a_signal_leaves_no_folder_and_no_replay(trc, tmp_path):
    build = tmp_path / "build" / "allocator"
    (tmp_path / "t").mkdir()
    build.mkdir(parents=True)
    (build / "cachealloc-replay").write_text(f"#!/bin/sh\necho $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; exec sleep 1000\n")
    (build / "cachealloc-replay").chmod(0o755)
    with subprocess.Popen([sys.executable, COMMAND, "report", trc, "-o", tmp_path / "o.html"],
                          env=environment(CACHEALLOC_BUILD=tmp_path / "build", TMPDIR=tmp_path / "t")) as child:
        while not (tmp_path / "pid").exists():
            assert child.poll() is None
            time.sleep(0.01)
        child.terminate()
        assert child.wait(60) == -signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert not os.listdir(tmp_path / "t")


def test_a_reader_that_goes_away_leaves_no_folder(trc, tmp_path):
    (tmp_path / "t").mkdir()
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, COMMAND, "report", trc, "-o", "-"], stdout=writer, check=False, timeout=60,
                          env=environment(CACHEALLOC_BUILD=BUILD, TMPDIR=tmp_path / "t"))
    os.close(writer)
    assert done.returncode == -signal.SIGPIPE and not os.listdir(tmp_path / "t")


def test_what_cannot_be_written_is_1_and_leaves_nothing(trc, tmp_path):
    with open("/dev/full", "w", encoding="ascii") as full:
        done = subprocess.run([sys.executable, COMMAND, "report", trc, "--svg", "memory"], env=environment(CACHEALLOC_BUILD=BUILD),
                              stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (1, "cachealloc: error: report: standard output: No space left on device\n")
    done = subprocess.run(["sh", "-c", f"exec {sys.executable} {COMMAND} report {trc} -o - >&-"], env=environment(CACHEALLOC_BUILD=BUILD),
                          stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (1, "cachealloc: error: report: standard output: Bad file descriptor\n")
    page, before = tmp_path / "page.html", sorted([*os.listdir(tmp_path), "page.html"])
    page.write_text("precious")
    limited = report(trc, "-o", page, "--force", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000)))
    assert (limited.returncode, limited.stderr) == (1, f"cachealloc: error: report: {page}: File too large\n")
    assert page.read_text() == "precious" and sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("name, content, words", [
    ("empty.trace", b"", "empty"),
    ("other.bin", b"\x7fELF" + bytes(100), "no trace of a known format"),
    ("broken.trc", b"A 1 100 0\nF 2\n", "broken.trc:2: block 2 is freed"),
    ("evil.pickle", pickle.dumps(RuntimeError), "a snapshot is plain data"),
    ("cut.trc.xz", b"\xfd7zXZ\x00\x00\x04abc", "broken"),
    ("cut.gz", b"\x1f\x8b\x08abc", "broken"),
    ("bad.json", b'{"format":"stats","format_version":1}\n', "bad.json:1: not a line of statistics"),
    ("new.json", b'{"format":"stats","format_version":9,"devices":[]}\n', "format_version 9"),
    ("none.json", b'{"format":"stats","format_version":1,"devices":[]}\n', "no device"),
])
def test_bad_input_is_1_names_the_file_and_writes_nothing(name, content, words, trc, tmp_path):
    path = tmp_path / name
    path.write_bytes(content)
    before = sorted(os.listdir(tmp_path))
    done = report(trc, path, "-o", tmp_path / "page.html")
    assert done.returncode == 1 and str(path) in done.stderr and words in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and "/cachealloc-report-" not in done.stderr and sorted(os.listdir(tmp_path)) == before


def test_a_missing_file_is_named(tmp_path):
    done = report(tmp_path / "nothing.trace", "-o", tmp_path / "page.html")
    assert done.returncode == 1 and "nothing.trace" in done.stderr and "No such file" in done.stderr


def test_every_beginning_of_a_trace_is_drawn_or_refused(tmp_path):
    whole = crafted(records=[(6, 0x7f0000000000, 2 * MIB), (1, 0x7f0000000000, MIB), (5, 8 * MIB, 2), (3, 0x7f0000000000, 0xffffffffffff), (7, 0x7f0000000000, 2 * MIB)])
    for length in range(0, len(whole), 37):
        (tmp_path / "cut.trace").write_bytes(whole[:length])
        done = report(tmp_path / "cut.trace", "-o", tmp_path / "page.html", "--force")
        assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stderr


# ---- figures


@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.xz")), ids=lambda path: path.name)
def test_a_replays_page_has_the_replays_figures(path, tmp_path):
    if path.stat().st_size > 200000 and not os.environ.get("CACHEALLOC_TEST_LONG"):
        pytest.skip("long: CACHEALLOC_TEST_LONG is not set")
    page = made(tmp_path / "page.html", path, "--replayed")
    expected = replayed(path)["devices"][0]
    part, (live, rounded, reserved, kinds, last) = page.parts[0], sums(page.columns())
    assert part["source"] == "replayed" and part["figures"] == expected
    assert (live, rounded, reserved) == (expected["peak_live_bytes"], expected["allocated_bytes"]["peak"], expected["reserved_bytes"]["peak"])
    assert kinds[LIVE] + kinds[ALLOC] == expected["live_at_start"] + expected["allocations"] and kinds[FREED] == expected["frees"]
    assert kinds[TAKEN] == expected["driver_alloc_calls"] and kinds[FLUSH] + kinds[GIVE_BACK] + kinds[TRIM] == expected["driver_free_calls"]
    assert last == expected["reserved_bytes"]["current"] and kinds[HELD] == 0
    assert page.columns()["waiting"][-1] == expected["active_bytes"]["current"] - expected["allocated_bytes"]["current"]


@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.pickle.xz")), ids=lambda path: path.name)
def test_a_snapshot_is_drawn_as_pytorch_recorded_it(path, tmp_path):
    page = made(tmp_path / "page.html", path)
    expected, columns = replayed(path)["devices"][0], page.columns()
    live, _, reserved, kinds, last = sums(columns)
    assert page.parts[0]["source"] == "recorded" and page.parts[0]["figures"] == expected
    assert live == expected["peak_live_bytes"] and last == expected["recorded_reserved_bytes"] <= reserved
    assert kinds[LIVE] + kinds[ALLOC] == expected["live_at_start"] + expected["allocations"] and kinds[FREED] == expected["frees"]
    assert max(columns["waiting"]) == 0  # each free was completed at once
    # each block lies in a segment of PyTorch's
    assert all(home != 0xffffffff for home in columns["segment"])


def test_the_json_is_the_same_with_a_timeline(tmp_path, trc):
    plain = subprocess.run([REPLAY, trc, "--json"], stdout=subprocess.PIPE, check=True).stdout
    drawn = subprocess.run([REPLAY, trc, "--json", "--timeline", tmp_path / "t"], stdout=subprocess.PIPE, check=True).stdout
    assert plain == drawn and (tmp_path / "t").stat().st_size > 1000


@pytest.mark.parametrize("words", [["--time"], ["--to-refusal"], ["--replayed"]])
def test_a_timeline_is_not_timed_nor_to_a_refusal_and_replayed_needs_one(words, tmp_path, trc):
    words = [*words, *(["--timeline", tmp_path / "t"] if words != ["--replayed"] else [])]
    done = subprocess.run([REPLAY, trc, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 2 and not done.stdout and not (tmp_path / "t").exists()


def test_a_broken_file_leaves_no_timeline(tmp_path):
    (tmp_path / "bad.trc").write_text("A 1 100 0\nF 2\n")
    for words, status in ((["bad.trc", "--timeline", "t"], 1), (["bad.trc", "--timeline", "no/t"], 1)):
        done = subprocess.run([REPLAY, *words], cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, check=False)
        assert done.returncode == status and not (tmp_path / "t").exists()


def device(path, minor):
    """A copy of /dev/null (3) or /dev/full (7), so that a mistake harms nobody."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, minor))
        path.open("wb").close()
    except OSError as error:
        pytest.skip(f"no device can be made here: {error}")
    return path


def test_a_device_that_cannot_be_written_stays(tmp_path, trc):
    full = device(tmp_path / "full", 7)
    done = subprocess.run([REPLAY, trc, "--timeline", full], stderr=subprocess.PIPE, stdout=subprocess.PIPE, check=False)
    assert done.returncode == 1 and b"the timeline cannot be written" in done.stderr and full.is_char_device()


@pytest.mark.parametrize("words", [["report"], ["report", "--svg", "map"], ["convert", "--to", "csv"]], ids=" ".join)
def test_a_device_is_written_to_and_stays(tmp_path, oom, words):
    for minor, status in ((3, 0), (7, 1)):
        path = device(tmp_path / str(minor), minor)
        done = subprocess.run([COMMAND, *words, oom, "--force", "-o", path], stderr=subprocess.PIPE, stdout=subprocess.PIPE, check=False,
                              env=environment(CACHEALLOC_BUILD=BUILD))
        assert done.returncode == status and path.is_char_device(), done.stderr
    assert sorted(one.name for one in tmp_path.iterdir() if one.is_char_device()) == ["3", "7"]


def test_a_refused_request_is_there_with_what_was_free(oom, tmp_path):
    page = made(tmp_path / "page.html", oom)
    part, columns = page.parts[0], page.columns()
    kinds = sums(columns)[3]
    assert part["source"] == "recorded" and part["program"] == "trace_program" and part["limit_bytes"] == SIM_MEMORY
    assert kinds[FAILED] == 1 and kinds[REFUSED] >= 1
    at = list(columns["kind"]).index(FAILED)
    assert columns["failed"][columns["arg"][at]] == 12 * MIB
    picture = report(oom, "--svg", "map").stdout
    assert "200.0 MiB free in 40 pieces, the largest 5.0 MiB" in picture and "refused: 12.0 MiB" in picture
    assert "out of memory: 12.0 MiB refused" in report(oom, "--svg", "memory").stdout


def test_a_limit_that_was_set_is_the_limit(tmp_path):
    path = tmp_path / "a.trace"
    for settings, limit in (("", 8 << 30), ("CACHEALLOC_LIMIT=3G\n", 3 << 30), ("CACHEALLOC_LIMIT=25%\n", 2 << 30),
                            ("CACHEALLOC_CONF=per_process_memory_fraction:0.5\n", 4 << 30), ("CACHEALLOC_LIMIT=64G\n", 8 << 30)):
        path.write_bytes(crafted(settings=settings, records=[(6, 1 << 40, MIB), (1, 1 << 40, 100)]))
        assert made(tmp_path / "page.html", path, "--force").parts[0]["limit_bytes"] == limit, settings


def test_settings_of_the_replay(trc, tmp_path):
    full = made(tmp_path / "full.html", trc, "--replayed", "--memory", "100M", "--conf", "large_segment_size_mb:32")
    part, kinds = full.parts[0], sums(full.columns())[3]
    assert not part["found_completed"] and part["limit_bytes"] == 100 * MIB and kinds[FAILED] == 1


def test_snapshots_events_of_segments_and_out_of_memory(tmp_path):
    """PyTorch's documented format: mapped parts of an expandable segment, memory that waits, a refused request."""
    base, event = 0x7f0000000000, 0
    events = []
    for action, offset, size in (("segment_map", 0, 20 * MIB), ("segment_map", 20 * MIB, 20 * MIB), ("alloc", 0, 30 * MIB),
                                 ("free_requested", 0, 30 * MIB), ("alloc", 30 * MIB, MIB), ("free_completed", 0, 30 * MIB),
                                 ("segment_unmap", 0, 20 * MIB), ("oom", None, 90 * MIB), ("snapshot", 0, 0)):
        event += 1
        place = {"device_free": 5} if offset is None else {"addr": base + offset}
        events.append({"action": action, **place, "size": size, "stream": 0, "time_us": event, "frames": []})
    snapshot = {"device_traces": [events], "segments": [{"device": 0, "address": base, "total_size": 20 * MIB, "stream": 0, "blocks": []}]}
    snapshot["segments"][0]["address"] = base + 20 * MIB
    snapshot["segments"].append({"device": 0, "address": base + 99 * MIB, "total_size": 2 * MIB, "stream": 0, "blocks": [
        {"address": base + 99 * MIB, "size": MIB, "requested_size": 1000000, "state": "active_allocated"}]})
    (tmp_path / "s.pickle").write_bytes(pickle.dumps(snapshot))
    (tmp_path / "s.json").write_text(json.dumps(snapshot))
    pages = [made(tmp_path / f"{name}.html", tmp_path / name) for name in ("s.pickle", "s.json")]
    assert pages[0].columns() == pages[1].columns()
    columns = pages[0].columns()
    assert list(columns["kind"]) == [HELD, LIVE, TAKEN, TAKEN, ALLOC, FREED, ALLOC, 12, GIVE_BACK, FAILED]
    assert list(columns["waiting"]) == [0, 0, 0, 0, 0, 30 * MIB, 30 * MIB, 0, 0, 0] and list(columns["failed"]) == [90 * MIB]
    assert sum(columns["time_ns"]) == 7000


# ---- the page's text


def test_text_of_the_input_stays_text(tmp_path):
    name = "</script><script>alert(1)</script> &lt; @BLOBS@ \u2028"
    path = tmp_path / "a<b>&'\"@DATA@.trace"
    path.write_bytes(crafted(program=name, settings="CACHEALLOC_CONF=<!--</script>", name="<img src=x>", records=[(6, 1 << 40, MIB), (1, 1 << 40, 100)]))
    page = made(tmp_path / "page.html", path)
    assert page.parts[0]["program"] == name and page.parts[0]["name"] == str(path)
    assert [tag for tag, _ in page.tags if tag == "script"] == ["script"] * 3 and "img" not in [tag for tag, _ in page.tags]
    assert "alert(1)" not in page.text["script"] and page.text["title"] == f"{path}: device memory"
    for view in VIEWS:
        root = ElementTree.fromstring(report(path, "--svg", view).stdout)
        assert any(name.replace("\u2028", "") in (each.text or "").replace("\u2028", "") for each in root.iter()), view


def test_the_page_asks_for_nothing(trc, tmp_path):
    text = (made(tmp_path / "page.html", trc).path).read_text()
    assert "default-src 'none'" in text and not re.search(r"(?i)https?://(?!www\.w3\.org/2000/svg)|src=|@import|url\(", text)


def test_several_files_and_devices(trc, tmp_path):
    (tmp_path / "log.csv").write_text("Thread,Time,Action,Pointer,Size,Stream\n1,00:00:00.1,allocate,0x10,100,0x0\n")
    page = made(tmp_path / "page.html", trc, tmp_path / "log.csv", trc)
    assert [part["name"] for part in page.parts] == [str(trc), str(tmp_path / "log.csv"), str(trc)]
    assert page.parts[1]["format"] == "RMM log" and len({part["blob"] for part in page.parts}) == 3


def test_the_pages_scripts_are_sound():
    """The elements that the page's scripts name are in the page."""
    folder = ROOT / "scripts" / "cachealloc_cli" / "report_page"
    ids = set(re.findall(r'id="([\w-]+)"', (folder / "page.html").read_text()))
    used = {name for script in folder.glob("*.js") for name in re.findall(r'byId\("([\w-]+)"\)', script.read_text())}
    assert used <= ids and len(used) > 15


# ---- statistics


@pytest.fixture
def statistics(tmp_path):
    for path in (PROGRAM, LIBRARY):
        if not path.exists():
            pytest.skip(f"not built: {path.name}")
    (tmp_path / "step.trc").write_text(STEP)
    stats = tmp_path / "stats.json"
    run([PROGRAM, "--steps", "20", "--spin-us", "200", tmp_path / "step.trc"], check=0, CACHEALLOC_STATS=stats, CACHEALLOC_STATS_INTERVAL="10ms")
    return stats


def test_lines_of_statistics(statistics, tmp_path):
    lines = [json.loads(line) for line in statistics.read_text().splitlines()]
    page = made(tmp_path / "page.html", statistics)
    part, = page.parts
    assert part["source"] == "statistics" and len(part["rows"]) == len(lines) >= 1
    for row, line in zip(part["rows"], lines):
        for name in ("requested_bytes", "reserved_bytes", "driver_alloc_calls", "ooms"):
            assert row[name] == line["devices"][0][name]
    for view in ("memory", "waste"):
        assert ElementTree.fromstring(report(statistics, "--svg", view).stdout) is not None
    refused = report(statistics, "--svg", "map")
    assert refused.returncode == 1 and "statistics tell no single blocks" in refused.stderr


def test_one_device_of_several(tmp_path):
    events = [[{"action": "alloc", "addr": 4096 * (n + 1), "size": 1000 * (n + 1), "stream": 0, "time_us": 1}] for n in range(2)]
    segments = [{"device": n, "address": 4096 * (n + 1), "total_size": 4096, "stream": 0, "blocks": []} for n in range(2)]
    path = tmp_path / "two.json"
    path.write_text(json.dumps({"segments": segments, "device_traces": events}))
    assert [part["device"] for part in made(tmp_path / "two.html", path).parts] == [0, 1]
    page = made(tmp_path / "one.html", path, "--device", "1")
    assert [part["device"] for part in page.parts] == [1] and sums(page.columns())[0] == 2000
    assert "--device" in report(path, "--svg", "memory").stderr and report(path, "--svg", "memory", "--device", "0").returncode == 0
    assert report(path, "--svg", "memory", "--device", "7").returncode == 1


# ---- pictures


@pytest.mark.parametrize("view", VIEWS)
def test_pictures_are_whole_and_small(view, oom, tmp_path):
    done = report(oom, "--svg", view, "-o", tmp_path / "a.svg")
    assert done.returncode == 0 and not done.stdout and not done.stderr
    text = (tmp_path / "a.svg").read_text()
    root = ElementTree.fromstring(text)
    assert root.tag.endswith("svg") and len(text) < 60000 and "prefers-color-scheme" in text
    assert {each.tag.split("}")[1] for each in root} <= {"title", "style", "rect", "text", "path", "circle"}
    _, _, width, height = map(float, root.get("viewBox").split())
    for each in root.iter():
        if each.tag.endswith("text"):
            assert 0 <= float(each.get("x")) <= width and 0 <= float(each.get("y")) <= height, each.text


def test_the_moment_of_a_map(oom, trc):
    assert "At event 5: " in report(trc, "--svg", "map", "--at", "5").stdout
    assert report(oom, "--svg", "map", "--at", "oom").stdout == report(oom, "--svg", "map").stdout != report(oom, "--svg", "map", "--at", "peak").stdout
    for words, said in ((["--at", "oom"], "no request was refused"), (["--at", "9999"], "there are")):
        done = report(trc, "--svg", "map", *words)
        assert done.returncode == 1 and said in done.stderr and not done.stdout


@pytest.mark.parametrize("view", ["memory", "map"])
def test_the_pictures_of_the_documentation_are_these(view):
    """docs/report.md shows what the command makes of the trace beside it."""
    folder = ROOT / "docs" / "report"
    done = report("oom.trace.xz", "--svg", view, cwd=folder)
    assert done.returncode == 0
    assert done.stdout == (folder / f"{view}.svg").read_text(), "write it anew by the command that docs/report.md tells"


# ---- progress


def test_progress_on_a_terminal_from_the_third_second_on(trc, tmp_path):
    """A stand-in for a slow replay ends when the progress was seen."""
    fifo, tool = tmp_path / "seen", tmp_path / "build" / "allocator" / "cachealloc-replay"
    os.mkfifo(fifo)
    tool.parent.mkdir(parents=True)
    tool.write_text(f"#!/bin/sh\nread line <'{fifo}'\nexec '{REPLAY}' \"$@\"\n")
    tool.chmod(0o755)
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, COMMAND, "report", trc, "-o", tmp_path / "page.html"], stderr=theirs,
                          env=environment(CACHEALLOC_BUILD=tmp_path / "build", NO_COLOR="1")) as process:
        os.close(theirs)
        seen = b""
        while b"replaying" not in seen and select.select([ours], [], [], 60)[0]:
            seen += os.read(ours, 1000)
        fifo.write_text("go on\n")
        assert process.wait(60) == 0
    os.close(ours)
    assert f"cachealloc: replaying {trc} (".encode() in seen
    assert Page(tmp_path / "page.html").parts


def test_segments_of_pools_are_told_apart(tmp_path):
    """A program that goes from one road to the other on a full device: both are on the page, each in its segments."""
    run([BUILD / "tests" / "process" / "told" / "told_cases", "both_roads"], check=0, cwd=tmp_path, SIMCUDA_MEM="256M",
        CACHEALLOC_CONF="async:pool", CACHEALLOC_TRACE="roads.trace", CACHEALLOC_STATS="s.json")
    device = json.loads((tmp_path / "s.json").read_text())["devices"][0]
    for words in ((), ("--replayed", "--conf", "async:pool", "--memory", "256M")):
        columns = made(tmp_path / f"{len(words)}.html", tmp_path / "roads.trace", *words).columns()
        taken = {road: sum(b for b, r in zip(columns["segment_bytes"], columns["segment_road"]) if r == road) for road in (0, 1)}
        assert taken == {0: device["reserved_bytes"]["total"], 1: device["async_reserved_bytes"]["total"]}
        roads = [columns["segment_road"][segment] for segment in columns["segment"]]
        assert roads == [1, 0] * 3
