# SPDX-License-Identifier: MIT
"""Which counts are those of FILE, and that they are what the library would have written."""

import json
import os
import struct
import sys

import pytest

from conftest import ROOT, run
from dying import DIE, EMULATED, _nothing_is_left, bare, calls, die, pages, started, stats, until  # noqa: F401

sys.path.insert(0, str(ROOT / "scripts"))

from cachealloc_cli import counts  # noqa: E402
from cachealloc_cli import stats as stats_verb  # noqa: E402

KILLED = -9
FIRST = ROOT / "tests" / "process" / "death" / "first.py"


def remove(paths):
    for path in paths:
        os.unlink(path)


def test_a_file_made_anew_is_not_an_earlier_processs(tmp_path):
    path = tmp_path / "s.json"
    die("kill", 2, path, KILLED)
    path.unlink()
    die("kill", 1, path, KILLED)
    assert stats(path)[0]["devices"][0]["alloc_calls"] == 340, "the later one's"
    path.unlink()
    die("exit", 1, path, 0)
    text = path.read_text()
    assert stats(path) == [json.loads(text)] and path.read_text() == text
    remove(pages(tmp_path))


@pytest.mark.skipif(EMULATED, reason="another machine's program")
def test_half_a_line_is_ended(tmp_path):
    """The disk was full, and has room again."""
    path, words = tmp_path / "s.json", tmp_path / "words"
    process = started(DIE, "loop", 1, words, CACHEALLOC_STATS=path, CACHEALLOC_STATS_INTERVAL="20ms")
    try:
        until(lambda: path.exists() and path.stat().st_size, "it writes nothing")
        with path.open("a") as file:
            file.write('{"half')
        size = path.stat().st_size
        until(lambda: path.stat().st_size > size, "it does not write again")
    finally:
        process.kill()
        process.communicate()
    with path.open("a") as file:
        file.write('{"half')
    report, = stats(path)
    lines = path.read_text().splitlines()
    assert json.loads(lines[-1]) == report and lines.count('{"half') == 2
    assert [json.loads(line)["seq"] for line in lines if line != '{"half'] == list(range(1, len(lines) - 1))
    assert pages(tmp_path) == []


def test_one_file_without_figures_hides_no_other(tmp_path):
    """They are read, and written to their FILE, although no sum can be given."""
    for name, asked in (("a", ()), ("b", ("--merge",))):
        path = tmp_path / f"{name}.json"
        die("kill", 1, path, KILLED)
        reports = stats(*asked, tmp_path / "none.json", path, check=1, says="none.json: No such file")
        assert reports == ([] if asked else [json.loads(path.read_text())])


def test_a_link_to_file(tmp_path):
    path, link = tmp_path / "s.json", tmp_path / "latest.json"
    die("kill", 1, path, KILLED)
    link.symlink_to("s.json")
    report, = stats(link)
    assert json.loads(path.read_text()) == report and pages(tmp_path) == []


def test_what_others_put_beside_it(tmp_path):
    """A pipe, and a file too large for any memory: it answers at once."""
    path = tmp_path / "s.json"
    path.touch()
    os.mkfifo(tmp_path / "cachealloc-0-1-1.counts")
    with open(tmp_path / "cachealloc-0-1-2.counts", "wb") as file:
        file.truncate(1 << 40)
    stats(path, check=1, says="s.json: no statistics in it, it is empty: ", TMPDIR=tmp_path)


@pytest.mark.parametrize("what", ["pinned 0", "pinned 1 device 1"])
@pytest.mark.skipif(EMULATED, reason="another machine's program")
def test_what_is_counted_first(what, tmp_path):
    for end, code in (("exit", 0), ("kill", KILLED)):
        run([sys.executable, FIRST, end, *what.split()], check=code, CACHEALLOC_STATS=tmp_path / f"{end}.json",
            CACHEALLOC_CONF="pinned:cache", SIMCUDA_DEVICES=2)
    usual, report = stats(tmp_path / "exit.json", tmp_path / "kill.json")
    assert bare(report) == bare(usual) and sum(device["pinned_alloc_calls"] for device in usual["devices"]) == what.count("pinned")
    assert pages(tmp_path) == []


def test_a_thread_is_cancelled_in_its_first_call(tmp_path):
    """It is not: no call of ours is a cancellation point. Were one, others would wait for its lock forever."""
    die("cancelled", 1, tmp_path / "s.json", KILLED, timeout=20)
    assert stats(tmp_path / "s.json")[0]["devices"][0]["alloc_calls"] == 342


def test_it_ends_while_it_is_read(monkeypatch, tmp_path):
    """Its last figures are in FILE then; what was read of its counts is older."""
    path = tmp_path / "s.json"
    die("kill", 1, path, KILLED)
    page, = pages(tmp_path)
    last = {"format": "stats", "format_version": 1, "seq": 1, "devices": [{"index": 0}]}

    def ends(_self, _info):
        path.write_text(json.dumps(last) + "\n")
        page.unlink()
        return False

    monkeypatch.setattr(counts.Counts, "_is_alive", ends)
    assert stats_verb.read_one(str(path)) == last and len(path.read_text().splitlines()) == 1


def test_no_fold_between_what_is_read(monkeypatch):
    """A record of a page before the device's has been added to it meanwhile: one number of folds in two readings is not enough."""
    def reading(folds, name):
        return bytes(8192) + struct.pack("<IIIIQQ", 0, 0, 0, 0, folds, 0) + name

    readings = [reading(2, b"torn"), reading(2, b"before"), reading(4, b"torn"), reading(4, b"good"), reading(4, b"after")]
    monkeypatch.setattr(counts.os, "pread", lambda *_: readings.pop(0))
    assert counts.Counts._at_one_moment(0, header=8192, page=4096).endswith(b"good")  # noqa: SLF001
