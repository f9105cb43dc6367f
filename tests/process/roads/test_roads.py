# SPDX-License-Identifier: MIT
"""Each road to cuMemAlloc_v2, natively and with our library: every allocation is counted exactly once, and the
cache answers some of them. What each program does stands in programs/road.h."""

import json
import os
import sys

import pytest

from conftest import BUILD, LIBRARY, ROOT, run

QUICK_EVERY = 4  # conftest.py
PROGRAMS = BUILD / "tests" / "process" / "programs"
N = 600
ROADS = [
    "road_direct", "road_dlsym", "road_dlsym_default",
    "road_proc", "road_proc_v2", "road_proc_legacy", "road_proc_ptsz", "road_proc_v2_ptsz",
    "road_self_v1_to_v2", "road_self_v2_to_v1", "road_self_twice",
    "road_runtime_shared", "road_runtime_shared_ptsz", "road_runtime_static", "road_runtime_static_ptsz",
]
COMMANDS = {f"{road}-O{level}": [PROGRAMS / f"{road}-O{level}"] for road in ROADS for level in (0, 2)}
COMMANDS["road_ctypes"] = [sys.executable, ROOT / "tests" / "process" / "programs" / "road_ctypes.py"]


@pytest.fixture(params=COMMANDS, name="command")
def _command(request):
    return COMMANDS[request.param]


@pytest.fixture(name="library")
def _library():
    assert LIBRARY.is_file(), f"{LIBRARY} is not built"


def walk(command, tmp_path, preload, *sizes, **env):
    """Runs a road program; returns the simulator's count of driver calls by name."""
    sim = tmp_path / "sim.json"
    if not preload and command[0] == sys.executable:  # built without the sanitizer that the simulator needs
        env["LD_PRELOAD"] = os.environ.get("CACHEALLOC_TEST_PRELOAD_FIRST", "")
    done = run([*command, N, *sizes], preload=preload, check=0, SIMCUDA_STATS=sim, **env)
    assert (done.stdout, done.stderr) == ("", "")
    return json.loads(sim.read_text())["calls"]


def test_native(command, tmp_path):
    calls = walk(command, tmp_path, False)
    assert calls["cuMemAlloc_v2"] == calls["cuMemFree_v2"] == N


def test_counted_once(command, tmp_path, library):
    stats = tmp_path / "stats.json"
    calls = walk(command, tmp_path, True, CACHEALLOC_STATS=stats)
    device = json.loads(stats.read_text())["devices"][0]
    assert (device["alloc_calls"], device["free_calls"]) == (N, N)
    assert device["driver_alloc_calls"] == calls["cuMemAlloc_v2"] < N


def test_counted_once_without_cache(command, tmp_path, library):
    stats = tmp_path / "stats.json"
    calls = walk(command, tmp_path, True, CACHEALLOC_STATS=stats, CACHEALLOC_DISABLE="count")
    device = json.loads(stats.read_text())["devices"][0]
    assert (device["alloc_calls"], device["free_calls"]) == (N, N)
    assert calls["cuMemAlloc_v2"] == calls["cuMemFree_v2"] == N


@pytest.mark.parametrize("size", [1, 511, 4096, 1 << 20, (1 << 20) + 1, 5 << 20])
def test_one_size(size, tmp_path, library):
    """Of whichever pool. How many hits there are depends on how soon a freed block is known to be idle."""
    stats = tmp_path / "stats.json"
    calls = walk(COMMANDS["road_direct-O2"], tmp_path, True, size, CACHEALLOC_STATS=stats)
    device = json.loads(stats.read_text())["devices"][0]
    assert (device["alloc_calls"], device["free_calls"]) == (N, N)
    assert device["driver_alloc_calls"] == calls["cuMemAlloc_v2"] < N
