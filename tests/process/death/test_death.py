# SPDX-License-Identifier: MIT
"""However a process ends, `cachealloc stats FILE` gives its last figures, off by at most one call of each thread."""

import json
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "cli"))

from schema import check  # noqa: E402

from conftest import ROOT, run  # noqa: E402
from dying import COMMAND, DIE, EMULATED, bare, calls, die, pages, started, stats, until  # noqa: E402
from dying import _nothing_is_left  # noqa: E402,F401

QUICK_EVERY = 4  # conftest.py
WORKER = ROOT / "tests" / "process" / "death" / "worker.py"
SCHEMA = json.loads((ROOT / "scripts" / "schema" / "stats.schema.json").read_text())
WAYS = {"underscore": 0, "quick": 0, "kill": -signal.SIGKILL, "term": -signal.SIGTERM, "interrupt": -signal.SIGINT,
        "segv": -signal.SIGSEGV, "bus": -signal.SIGBUS, "abort": -signal.SIGABRT, "exec": 0, "parent": -signal.SIGKILL}

pytestmark = pytest.mark.usefixtures("nothing_is_left")
CONF = "async:pool,pinned:cache"


def usual_end(tmp_path_factory, **env):
    path = tmp_path_factory.mktemp("usual") / "s.json"
    die("exit", 1, path, 0, SIMCUDA_CLOCK="manual", **env)
    return json.loads(path.read_text())


@pytest.fixture(name="usual", scope="module")
def _usual(tmp_path_factory):
    """What the library itself writes at the usual end."""
    return usual_end(tmp_path_factory)


def test_every_road_counts(tmp_path_factory, tmp_path):
    usual = usual_end(tmp_path_factory, CACHEALLOC_CONF=CONF)
    device = usual["devices"][0]
    assert device["async_alloc_calls"] == device["pinned_alloc_calls"] == 20 and device["order_marks"] > 10
    assert device["async_cache_hits"] and device["pinned_cache_hits"], device
    die("kill", 1, tmp_path / "s.json", WAYS["kill"], SIMCUDA_CLOCK="manual", CACHEALLOC_CONF=CONF)
    report, = stats(tmp_path / "s.json")
    check(report, SCHEMA)
    assert bare(report) == bare(usual)


@pytest.mark.parametrize("way", WAYS)
def test_the_last_figures_are_those_of_the_usual_end(way, usual, tmp_path):
    path = tmp_path / "s.json"
    die(way, 1, path, WAYS[way], SIMCUDA_CLOCK="manual")
    assert path.read_text() == ""
    report, = stats(path)
    assert bare(report) == bare(usual) and report["from_counts"] is True and report["seq"] == 1
    assert set(report["devices"][0]) == set(usual["devices"][0])
    assert [json.loads(line) for line in path.read_text().splitlines()] == [report], "it is in FILE now"
    assert stats(path) == [report], "and only once"
    assert [one.name for one in tmp_path.iterdir()] == ["s.json"], "a child that nothing was served to leaves nothing"


def test_a_table_is_written_as_a_table(tmp_path):
    path = tmp_path / "s.txt"
    die("kill", 1, path, WAYS["kill"])
    stats(path)
    assert "340 alloc, 332 free" in path.read_text()


def test_the_threads_of_a_killed_process_are_added_up(tmp_path):
    path = tmp_path / "s.json"
    die("kill", 4, path, WAYS["kill"])
    device = stats(path)[0]["devices"][0]
    requested = sum(4096 * (1 + i % 5) + thread for thread in range(4) for i in range(300))
    assert (device["alloc_calls"], device["free_calls"], device["requested_bytes"]["total"]) == (1240, 1208, requested + 40 * (3 << 20))
    assert device["allocated_bytes"]["current"] + device["cached_bytes"]["current"] <= device["reserved_bytes"]["current"]


@pytest.mark.skipif(EMULATED, reason="another machine's program")
@pytest.mark.parametrize("threads", [1, 4])
def test_killed_at_any_moment(threads, tmp_path):
    seed = int(os.environ.get("CACHEALLOC_TEST_SEED", time.time_ns() & 0xffffff))
    moments = random.Random(seed)
    rounds = 60 if os.environ.get("CACHEALLOC_TEST_LONG") else 4
    for number in range(rounds):
        path, words = tmp_path / f"s.{number}.json", tmp_path / f"words.{number}"
        process = started(DIE, "loop", threads, words, CACHEALLOC_STATS=path)
        until(lambda w=words: w.exists() and w.stat().st_size and calls(w)[1] > 1000 * threads, "it does not begin")
        time.sleep(moments.random() / 50)
        process.kill()
        process.communicate()
        device = stats(path)[0]["devices"][0]
        allocs_begun, allocs, frees_begun, frees = calls(words)
        assert allocs <= device["alloc_calls"] <= allocs_begun <= allocs + threads, f"seed {seed}"
        assert frees <= device["free_calls"] <= frees_begun, f"seed {seed}"
        assert 0 <= device["requested_bytes"]["current"] <= device["requested_bytes"]["peak"] <= 9 * threads * 20500, f"seed {seed}"


def test_killed_while_counts_are_folded(usual, tmp_path):
    """Between its begin and its end neither the sums nor what is added to them count, but what both were before."""
    path = tmp_path / "s.json"
    die("kill", 1, path, WAYS["kill"], SIMCUDA_CLOCK="manual")
    page, = pages(tmp_path)
    data = bytearray(page.read_bytes())
    records = [at for at in range(8192, len(data), 4096) if data[at + 800:at + 808] in (b"device a", b"magazine")]
    sums, part = sorted(records, key=lambda at: data[at + 800:at + 808])
    size, part_size = struct.unpack_from("<I", data, sums + 8)[0], 120
    stats_size = size // 64 * 64 - 64
    struct.pack_into("<IQQ", data, sums + 12, stats_size, struct.unpack_from("<Q", data, sums + 16)[0] + 1, (part - 8192) // 4096)
    data[sums + 32:sums + 32 + stats_size] = data[sums + 4096 - size:sums + 4096 - size + stats_size]
    data[sums + 672:sums + 672 + part_size] = data[part + 4096 - 128:part + 4096 - 128 + part_size]
    data[sums + 4096 - size:sums + 4096 - size + 200] = b"\x77" * 200
    data[part + 4096 - 128:part + 4096 - 100] = bytes(28)
    os.chmod(page, 0o600)
    page.write_bytes(data)
    assert bare(stats(path)[0]) == bare(usual)


@pytest.mark.parametrize("harm", [b"", b"cachealloc counts 1\n", b"x" * 9000, None], ids=["empty", "short", "other", "random"])
def test_a_damaged_file_of_counts_is_no_answer(harm, tmp_path):
    path = tmp_path / "s.json"
    die("kill", 1, path, WAYS["kill"])
    page, = pages(tmp_path)
    if harm is None:
        seed = int(os.environ.get("CACHEALLOC_TEST_SEED", time.time_ns() & 0xffffff))
        data = bytearray(page.read_bytes())
        for at in range(8192, len(data), 4096):
            data[at:at + 1200] = random.Random(seed + at).randbytes(1200)
        harm = bytes(data)
    os.chmod(page, 0o600)
    page.write_bytes(harm)
    stats(path, check=1)
    os.unlink(page)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_believes_a_users_counts_of_that_users_file_only(tmp_path):
    path = tmp_path / "s.json"
    die("kill", 1, path, WAYS["kill"])
    page, = pages(tmp_path)
    os.chown(page, 1234, 1234)
    stats(path, check=1)
    os.chown(path, 1234, 1234)
    assert stats(path)[0]["devices"][0]["alloc_calls"] == 340


@pytest.mark.skipif(EMULATED, reason="another machine's program")
def test_a_process_that_runs_is_shown_and_left_alone(tmp_path):
    path, words = tmp_path / "s.json", tmp_path / "words"
    process = started(DIE, "loop", 2, words, CACHEALLOC_STATS=path)
    try:
        until(lambda: words.exists() and words.stat().st_size and calls(words)[1] > 1000, "it does not begin")
        first = stats(path)[0]["devices"][0]["alloc_calls"]
        before = calls(words)[1]
        second = stats(path)[0]["devices"][0]["alloc_calls"]
        assert 1000 < first < second and second >= before
        assert path.read_text() == "" and process.poll() is None
        page, = pages(tmp_path)
        assert page.stat().st_mode & 0o777 == 0o400, "nobody cuts it off by mistake"
        other = page.with_name(f"{page.stem}0.counts")  # as it is called elsewhere, by a link among its folders
        os.link(page, other)
        os.unlink(page)
        assert stats(path)[0]["devices"][0]["alloc_calls"] > second and other.exists()
    finally:
        process.kill()
        process.communicate()
    stats(path)


@pytest.mark.skipif(EMULATED, reason="another machine's program")
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_workers_of_multiprocessing(method, tmp_path):
    """They end by os._exit; one is killed, as by the kernel for want of memory."""
    done = run([sys.executable, WORKER, method, 3], check=0, CACHEALLOC_STATS=tmp_path / "s.%p.json")
    workers = [int(pid) for pid in done.stdout.split()]
    reports = {report["pid"]: report["devices"][0] for report in stats(*sorted(tmp_path.glob("s.*.json")))}
    assert sorted(reports) == sorted(workers) and len(workers) == 3, done.stdout
    assert all((device["alloc_calls"], device["free_calls"]) == (100, 96) for device in reports.values())


@pytest.mark.parametrize("change", [os.remove, lambda path: os.truncate(path, 0), lambda path: os.rename(path, f"{path}.1")],
                         ids=["removed", "cut off", "rotated"])
def test_the_file_changes_hands(change, tmp_path):
    path = tmp_path / "s.json"
    words = tmp_path / "words"
    process = started(DIE, "loop", 1, words, CACHEALLOC_STATS=path, CACHEALLOC_STATS_INTERVAL="20ms")
    try:
        until(lambda: path.exists() and path.stat().st_size, "it writes nothing")
        change(path)
        until(lambda: path.exists() and path.stat().st_size, "it does not write again")
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGKILL)
        text = process.communicate()[1]
    assert text == ""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert stats(path)[0]["seq"] == rows[-1]["seq"] + 1


def test_no_file_may_grow(tmp_path):
    """As on a full disk: the program is as it would be without."""
    path = tmp_path / "s.json"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        done = die("exit", 2, path, 0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_text() == "" and "incomplete: file too large" in done.stderr
    stats(path, check=1)


def can_mount():
    return shutil.which("unshare") and subprocess.run(
        ["unshare", "-m", "sh", "-c", "mount -t tmpfs -o size=4k none /mnt"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(EMULATED or not can_mount(), reason="no file system can be mounted")
@pytest.mark.parametrize("way", ["exit", "kill"])
def test_a_full_disk(way, tmp_path):
    """FILE is on one that is full: what was counted elsewhere is shown all the same."""
    script = f"""mount -t tmpfs -o size=4k none {tmp_path} && head -c 4096 /dev/zero > {tmp_path}/full
        {DIE} {way} 2; echo "ended $?"; unset LD_PRELOAD; {sys.executable} {COMMAND} stats {tmp_path}/s.json
        rm {tmp_path}/full; {sys.executable} {COMMAND} stats {tmp_path}/s.json; tail -c 30 {tmp_path}/s.json"""
    done = run(["unshare", "-m", "sh", "-c", script], check=0, CACHEALLOC_STATS=tmp_path / "s.json", PYTHONDONTWRITEBYTECODE=1)
    assert f"ended {0 if way == 'exit' else 137}" in done.stdout and done.stdout.count("640 alloc, 624 free") == 2, done
    assert "not written there" in done.stderr and done.stdout.rstrip().endswith("}"), done


@pytest.mark.skipif(EMULATED or not can_mount(), reason="no file system can be mounted")
@pytest.mark.parametrize("size, found", [("4m", True), ("64k", False)])
def test_the_place_of_counts(size, found, tmp_path):
    """A small /dev/shm is left to others; where the counts find no place the program goes on."""
    script = f"mount -t tmpfs -o size={size} none /dev/shm && {DIE} kill 2; unset LD_PRELOAD; ls /dev/shm; " \
             f"{sys.executable} {COMMAND} stats {tmp_path}/s.json"
    done = run(["unshare", "-m", "sh", "-c", script], CACHEALLOC_STATS=tmp_path / "s.json", TMPDIR="/proc", CACHEALLOC_LOG="info")
    assert ("cachealloc-" in done.stdout) is found and ("640 alloc, 624 free" in done.stdout) is found, done
    assert ("the last figures of a killed process are in no file" in done.stderr) is not found
