# SPDX-License-Identifier: MIT
"""NVIDIA's cuda.core, as the package index has it, on the simulator: the same program (drive_cuda_core.py) with and without the
preload, for each way of handling stream-ordered memory, judged by the contents and the race oracle.

Where it stops here: Device.sync, which is the bundled runtime's; occupancy, virtual memory and NVML, which the simulator lacks; and
compiled code.
"""

import json
import os
from pathlib import Path

import pytest
from conftest import run
from packages import python_with, words_of

QUICK_EVERY = 4  # conftest.py
PROGRAM = Path(__file__).resolve().parent / "drive_cuda_core.py"
CLOCKS = {"manual": {"SIMCUDA_CLOCK": "manual"}, "jitter": {"SIMCUDA_JITTER": "100:1"}}
SEEDS = range(20 if os.environ.get("CACHEALLOC_TEST_LONG") else 1)


@pytest.fixture(scope="module", name="python")
def _python():
    return python_with("cuda.core")


def drive(python, folder, seed, preload=True, **env):
    """(what the program saw, the simulator's statistics)"""
    simulator = folder / "simulator.json"
    simulator.unlink(missing_ok=True)
    done = run([python, PROGRAM, seed], preload=preload, check=0, timeout=120, SIMCUDA_STATS=simulator,
               SIMCUDA_RACES="abort", **env)
    assert not [line for line in done.stderr.splitlines() if "SIMCUDA_JITTER=" not in line], done.stderr
    seen, figures = json.loads(done.stdout), json.loads(simulator.read_text())
    assert seen["errors"] == figures["races"] == 0 and "problems" not in seen and not figures["not_built"], (seen, figures)
    return seen, figures["calls"]


@pytest.fixture(scope="module", name="native")
def _native(python, tmp_path_factory):
    folder = tmp_path_factory.mktemp("native")
    return {seed: drive(python, folder, seed, preload=False) for seed in SEEDS}


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("word", words_of("async"))
def test_same_as_without_the_library(word, clock, python, native, tmp_path):
    for seed in SEEDS:
        seen, calls = drive(python, tmp_path, seed, CACHEALLOC_CONF=f"async:{word}", **CLOCKS[clock])
        assert seen == native[seed][0]
        assert calls["cuLaunchKernelEx"] == native[seed][1]["cuLaunchKernelEx"] > 300
        natively = native[seed][1]["cuMemAllocFromPoolAsync"]
        if word == "pool":
            assert calls["cuMemAllocFromPoolAsync"] < natively / 2
        else:
            assert calls["cuMemAllocFromPoolAsync"] >= natively > 100


@pytest.mark.parametrize("clock", CLOCKS)
def test_cached_pinned_memory(clock, python, native, tmp_path):
    """Written, copied from and given back 40 times: none is handed out while a copy still reads it."""
    for seed in SEEDS:
        assert drive(python, tmp_path, seed, CACHEALLOC_CONF="pinned:cache", **CLOCKS[clock])[0] == native[seed][0]


def test_cached_pinned_memory_is_reused(python, native, tmp_path):
    """A clock by which a question about a mark completes what came before it."""
    seen, calls = drive(python, tmp_path, 0, CACHEALLOC_CONF="pinned:cache", SIMCUDA_CLOCK="manual:1")
    assert seen == native[0][0]
    assert native[0][1]["cuMemAllocHost_v2"] == 41 and calls["cuMemAllocHost_v2"] <= 3
