# SPDX-License-Identifier: MIT
"""numba-cuda with its own memory manager, as the package index has it, on the simulator: the same program (drive_numba.py) with and
without the preload. scripts/test.sh --long, since 65 MB are fetched for it.

Where it stops here: at the launch of what it has compiled, an image that the simulator refuses.
"""

import json
import os
from pathlib import Path

import pytest
from conftest import BUILD, run
from packages import python_with

PROGRAM = Path(__file__).resolve().parent / "drive_numba.py"
CONFIGURATIONS = {
    "default": {}, "manual clock": {"SIMCUDA_CLOCK": "manual"}, "jitter": {"SIMCUDA_JITTER": "100:1"},
    "pinned": {"CACHEALLOC_CONF": "pinned:cache,reuse_slack_mb:0", "SIMCUDA_CLOCK": "manual"},
    "host": {"CACHEALLOC_CONF": "free_sync:host,pinned:cache"},
}
pytestmark = pytest.mark.skipif("CACHEALLOC_TEST_LONG" not in os.environ,
                                reason="fetches 65 MB: scripts/test.sh --long (CACHEALLOC_TEST_LONG=1)")


@pytest.fixture(scope="module", name="python")
def _python():
    return python_with("numba_cuda", "cuda.core", folder=Path(os.environ.get("CACHEALLOC_TEST_NUMBA") or BUILD / "venv-numba"),
                       packages=["cuda-bindings", "numba-cuda"])


def drive(python, folder, seed, *options, preload=True, quiet=True, **env):
    """(what the program saw, the simulator's statistics, the library's device 0)"""
    simulator, stats = folder / "simulator.json", folder / "stats.json"
    for old in (simulator, stats):
        old.unlink(missing_ok=True)
    done = run([python, "-W", "ignore", PROGRAM, seed, *options], preload=preload, check=0, timeout=300, SIMCUDA_STATS=simulator,
               SIMCUDA_RACES="abort", CACHEALLOC_STATS=stats, **env)
    said = [line for line in done.stderr.splitlines() if "SIMCUDA_JITTER=" not in line]
    assert not (quiet and said), done.stderr
    seen, figures = json.loads(done.stdout), json.loads(simulator.read_text())
    assert figures["races"] == 0 and "problems" not in seen and not figures["not_built"], (seen, figures)
    return seen, figures["calls"], json.loads(stats.read_text())["devices"][0] if preload else None


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_same_as_without_the_library(configuration, python, tmp_path):
    for seed in range(5):
        wanted, calls, _ = drive(python, tmp_path, seed, preload=False)
        seen, ours, device = drive(python, tmp_path, seed, **CONFIGURATIONS[configuration])
        assert seen == wanted and seen["manager"] == "NumbaCUDAMemoryManager" and seen["arrays"] == 180
        assert device["alloc_calls"] == calls["cuMemAlloc_v2"] > 100
        assert ours["cuMemAlloc_v2"] == device["driver_alloc_calls"] < calls["cuMemAlloc_v2"] / 5


def test_it_stops_at_compiled_code(python, tmp_path):
    """So that a version of the simulator or of numba that goes further is noticed."""
    for preload in (False, True):
        seen = drive(python, tmp_path, 1, "--compile", preload=preload, quiet=False)[0]
        assert seen["compiled kernel"] == "CUDAError"
