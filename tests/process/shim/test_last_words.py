# SPDX-License-Identifier: MIT
"""What is written at the end of a process waits for a thread that is writing something older (last_words.c)."""

import json
import pickle

from conftest import BUILD, run

PROGRAM = BUILD / "tests" / "process" / "shim" / "last_words"
LAST = 123456789


def test_statistics(tmp_path):
    run([PROGRAM], check=0, cwd=tmp_path, CACHEALLOC_STATS="s.json", CACHEALLOC_STATS_INTERVAL="10ms")
    lines = [json.loads(line)["devices"][0] for line in (tmp_path / "s.json").read_text().splitlines()]
    assert lines[-1]["requested_bytes"]["current"] >= LAST > lines[0]["requested_bytes"]["current"]


def test_a_snapshot(tmp_path):
    run([PROGRAM, "signal"], check=0, cwd=tmp_path, CACHEALLOC_SNAPSHOT="s.%n.pickle", CACHEALLOC_SNAPSHOT_ON="usr1,exit")
    sizes = [sum(s["allocated_size"] for s in pickle.loads(path.read_bytes())["segments"])
             for path in sorted(tmp_path.iterdir())]
    assert len(sizes) == 2 and sizes[1] >= LAST > sizes[0]
