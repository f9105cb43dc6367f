# SPDX-License-Identifier: MIT
"""A package that nobody here wrote: NVIDIA's Python bindings of the driver, under the preload, on the simulator.

$CACHEALLOC_TEST_VENV is a virtual environment with cuda-bindings from the Python package index (scripts/test.sh makes
one); without it the tests are skipped.
"""

import json
import os
from pathlib import Path

import pytest

from conftest import run

DRIVE = Path(__file__).parent / "drive_bindings.py"
ROUNDS = 40
CALLS = ROUNDS * 5


@pytest.fixture(scope="module")
def python():
    venv = os.environ.get("CACHEALLOC_TEST_VENV")
    if not venv:
        pytest.skip("no cuda-bindings: the Python package index could not be reached ($CACHEALLOC_TEST_VENV is unset)")
    return Path(venv) / "bin" / "python"


def drive(python, tmp_path, preload, **env):
    """Returns (calls that reached the simulated driver, the device's statistics or None)."""
    sim, stats = tmp_path / "sim.json", tmp_path / "stats.json"
    if preload:
        env["CACHEALLOC_STATS"] = stats
    done = run([python, DRIVE, ROUNDS], preload=preload, check=0, SIMCUDA_STATS=sim, SIMCUDA_RACES="abort", **env)
    assert done.stdout.split()[0] == str(CALLS) and done.stderr == ""
    return json.loads(sim.read_text())["calls"], json.loads(stats.read_text())["devices"][0] if preload else None


def test_native(python, tmp_path):
    calls, _ = drive(python, tmp_path, preload=False)
    assert calls["cuMemAlloc_v2"] == CALLS


def test_cached(python, tmp_path):
    calls, device = drive(python, tmp_path, preload=True)
    assert (device["alloc_calls"], device["free_calls"]) == (CALLS, CALLS)
    assert calls["cuMemAlloc_v2"] == device["driver_alloc_calls"] < CALLS // 4
    assert device["requested_bytes"]["current"] == 0


def test_passed_through(python, tmp_path):
    calls, device = drive(python, tmp_path, preload=True, CACHEALLOC_DISABLE="count")
    assert calls["cuMemAlloc_v2"] == device["alloc_calls"] == CALLS
