# SPDX-License-Identifier: MIT
"""When the host has no memory for more records, allocations are the driver's: they are counted, and keep to the limit. A
stream that came at such a moment is not tracked, and nothing unfinished is handed out from then on."""

import json
import os

import pytest

from conftest import BUILD, run

PROGRAM = BUILD / "tests" / "process" / "shim" / "no_records"
MANY, BLOCK = 20000, 4096

pytestmark = pytest.mark.skipif("CACHEALLOC_TEST_SANITIZER" in os.environ,
                                reason="a sanitizer watches mmap itself")


def test_allocations_without_a_record_succeed_and_are_counted(tmp_path):
    done = run([PROGRAM, MANY], check=0, cwd=tmp_path, CACHEALLOC_STATS="s.json")
    assert int(done.stdout) == MANY
    device = json.loads((tmp_path / "s.json").read_text())["devices"][0]
    assert 0 < device["alloc_calls"] < MANY
    assert device["alloc_calls"] + device["other_alloc_calls"] == MANY
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and "no memory for records" in lines[0]


def test_what_cannot_be_counted_against_the_limit_is_refused():
    allowed = MANY // 2
    done = run([PROGRAM, MANY], check=0, CACHEALLOC_LIMIT=str(allowed * BLOCK))
    assert 0 < int(done.stdout) <= allowed


def test_a_stream_that_came_at_such_a_moment(tmp_path):
    """By the race oracle: its work is not seen, while memory of its context is served again."""
    done = run([BUILD / "tests" / "process" / "shim" / "no_space"], cwd=tmp_path, SIMCUDA_RACES="abort", CACHEALLOC_STATS="s.json")
    assert (done.returncode, done.stderr) == (0, ""), (done.returncode, done.stdout, done.stderr)
    device = json.loads((tmp_path / "s.json").read_text())["devices"][0]
    assert device["alloc_calls"] == 2 and "too_many_streams" in device["finished_only_reasons"]
