# SPDX-License-Identifier: MIT
"""Processes that die, where they count, and what `cachealloc stats` says of them."""

import glob
import json
import os
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import BUILD, LIBRARY, ROOT, clean_env, run

DIE = BUILD / "tests" / "process" / "death" / "die"
COMMAND = ROOT / "scripts" / "cachealloc"
EMULATED = bool(os.environ.get("CACHEALLOC_TEST_EMULATOR"))
# Of the moment, of the host, or counted by nobody.
APART = {"time_unix_ns", "elapsed_ns", "pid", "seq", "command", "from_counts"}
DEVICE_APART = {"driver_ns", "largest_free_block_bytes", "pending_blocks", "unseen_calls"}


@pytest.fixture(name="nothing_is_left")
def _nothing_is_left(tmp_path):
    yield
    assert pages(tmp_path) == [], "a file of counts is left"


def pages(folder):
    """Of processes that have a file of statistics there."""
    return [Path(name) for name in glob.glob("/dev/shm/cachealloc-*.counts") if bytes(folder) in beginning(name)]


def beginning(name):
    """b"": it is gone by now, as other tests' come and go."""
    try:
        return Path(name).read_bytes()[:8192]
    except FileNotFoundError:
        return b""


def stats(*paths, check=0, says="", **env):
    done = subprocess.run([sys.executable, COMMAND, "stats", "--json", *paths], env=clean_env(**env), text=True, timeout=60,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == check and says in done.stderr, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def bare(report):
    devices = [{key: value for key, value in device.items() if key not in DEVICE_APART} for device in report["devices"]]
    return {**{key: value for key, value in report.items() if key not in APART}, "devices": devices}


def die(way, threads, path, check, **env):
    # a sanitizer's runtime has an answer of its own to these
    env.setdefault("ASAN_OPTIONS", os.environ.get("ASAN_OPTIONS", "") + ":handle_segv=0:handle_sigbus=0:handle_abort=0")
    env.setdefault("TSAN_OPTIONS", os.environ.get("TSAN_OPTIONS", "") + ":handle_segv=0:handle_sigbus=0:handle_abort=0")
    return run([DIE, way, threads], check=check, CACHEALLOC_STATS=path, **env)


def started(*argv, **env):
    first = os.environ.get("CACHEALLOC_TEST_PRELOAD_FIRST", "")
    return subprocess.Popen([str(a) for a in argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=clean_env(LD_PRELOAD=":".join(filter(None, [first, str(LIBRARY)])), **env))


def until(question, what):
    for _ in range(3000):
        if question():
            return
        time.sleep(0.01)
    pytest.fail(what)


def calls(path):
    """Of all threads: allocations begun and ended, frees begun and ended."""
    words = struct.unpack("64Q", path.read_bytes())
    return [sum(words[i::4]) for i in range(4)]
