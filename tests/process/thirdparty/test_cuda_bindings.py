# SPDX-License-Identifier: MIT
"""NVIDIA's own Python driver bindings, as the package index has them, on the simulator under the preload.

The package is installed into $CACHEALLOC_TEST_VENV or BUILD/venv; without an index the tests are skipped and say so.
"""

import json
from pathlib import Path

import pytest
from conftest import run
from packages import python_with

PROGRAM = Path(__file__).resolve().parent / "drive_cuda_bindings.py"


@pytest.fixture(scope="module", name="python")
def _python():
    return python_with("cuda.bindings.driver")


def drive(python, folder, **env):
    """(what the program counted, library's device 0 or None, simulator's calls)."""
    stats, simulator = folder / "stats.json", folder / "simulator.json"
    done = run([python, PROGRAM], check=0, timeout=120, CACHEALLOC_STATS=stats, SIMCUDA_STATS=simulator,
               SIMCUDA_RACES="abort", **env)
    assert not done.stderr, done.stderr
    devices = json.loads(stats.read_text())["devices"] if stats.exists() else None
    return json.loads(done.stdout), devices and devices[0], json.loads(simulator.read_text())


def test_served_from_the_cache(python, tmp_path):
    counts, device, simulator = drive(python, tmp_path)
    assert counts["allocs"] == counts["frees"] > 150
    assert device["alloc_calls"] == counts["allocs"] and device["free_calls"] == counts["frees"]
    assert device["cache_hits"] > counts["allocs"] / 2
    assert simulator["calls"]["cuMemAlloc_v2"] == device["driver_alloc_calls"] < counts["allocs"] / 3
    assert simulator["races"] == 0


def test_counted_when_passed_through(python, tmp_path):
    counts, device, simulator = drive(python, tmp_path, CACHEALLOC_DISABLE="count")
    assert device["alloc_calls"] == counts["allocs"] == simulator["calls"]["cuMemAlloc_v2"]
    assert device["cache_hits"] == 0


def test_same_program_without_the_library(python, tmp_path):
    """The program itself is right: stock, every allocation reaches the driver."""
    simulator = tmp_path / "simulator.json"
    done = run([python, PROGRAM], preload=False, check=0, timeout=120, SIMCUDA_STATS=simulator)
    assert json.loads(simulator.read_text())["calls"]["cuMemAlloc_v2"] == json.loads(done.stdout)["allocs"]
