# SPDX-License-Identifier: MIT
"""tinygrad, as the package index has it, on the simulator: the same program (drive_tinygrad.py) with and without the preload, judged by
contents and by the race oracle. Where it stops here: at compiled code, an image that the simulator refuses.
"""

import json
import os
from pathlib import Path

import pytest
from conftest import run
from packages import python_with

PROGRAM = Path(__file__).resolve().parent / "drive_tinygrad.py"
CONFIGURATIONS = {
    "default": {}, "manual clock": {"SIMCUDA_CLOCK": "manual:4"}, "jitter": {"SIMCUDA_JITTER": "100:1"},
    "pinned": {"CACHEALLOC_CONF": "pinned:cache"}, "host": {"CACHEALLOC_CONF": "free_sync:host,pinned:cache"},
}
SEEDS = range(10 if os.environ.get("CACHEALLOC_TEST_LONG") else 1)


@pytest.fixture(scope="module", name="python")
def _python():
    return python_with("tinygrad")


def drive(python, folder, seed, preload=True, **env):
    """(what the program saw, how often the driver was called)"""
    simulator = folder / "simulator.json"
    simulator.unlink(missing_ok=True)
    done = run([python, PROGRAM, seed], preload=preload, check=0, timeout=300, SIMCUDA_STATS=simulator, SIMCUDA_RACES="abort",
               DEV="CUDA", LRU=0, CACHELEVEL=0, XDG_CACHE_HOME=folder, **env)
    figures = json.loads(simulator.read_text())
    assert figures["races"] == 0 and not figures["not_built"], figures
    return json.loads(done.stdout), figures["calls"]


@pytest.fixture(scope="module", name="native")
def _native(python, tmp_path_factory):
    return {seed: drive(python, tmp_path_factory.mktemp("native"), seed, preload=False) for seed in SEEDS}


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_same_as_without_the_library(configuration, python, native, tmp_path):
    env = CONFIGURATIONS[configuration]
    for seed in SEEDS:
        wanted, natively = native[seed]
        seen, calls = drive(python, tmp_path, seed, **env)
        assert seen == wanted and seen["wrong"] == 0
        assert natively["cuMemAlloc_v2"] == natively["cuMemHostAlloc"] == seen["arrays"]
        assert calls["cuMemAlloc_v2"] <= 20
        if "pinned:cache" in env.get("CACHEALLOC_CONF", ""):
            assert calls["cuMemHostAlloc"] <= seen["arrays"] / 4
        else:
            assert calls["cuMemHostAlloc"] == seen["arrays"]
