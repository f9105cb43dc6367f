# SPDX-License-Identifier: MIT
"""RAPIDS's memory resources, as the package index has them, compiled against the stand-in runtime: the same program (drive_rmm.cpp)
with and without the preload, for each way of handling stream-ordered memory, judged by the contents and the race oracle.

Version 25.2 is the last whose resources are headers. Later ones are a library with NVIDIA's own runtime inside, which refuses
the simulator; so does that of CuPy's package.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import LIBRARY, ROOT, SIM, run
from packages import words_of

PROGRAM = Path(__file__).resolve().parent / "drive_rmm.cpp"
RMM = ROOT / "build-rmm" / "librmm" / "include"
CUDA = ROOT / "build-headers" / "13.0.48" / "include"
CLOCKS = {"manual": {"SIMCUDA_CLOCK": "manual"}, "jitter": {"SIMCUDA_JITTER": "50:1"}}
SEEDS = range(1, 21 if os.environ.get("CACHEALLOC_TEST_LONG") else 2)


@pytest.fixture(scope="module", name="program")
def _program(tmp_path_factory):
    for needed, what in ((LIBRARY, "not built"), (SIM / "libcudart.so.13", "not built"), (RMM, "no package of RMM (build-rmm.log)"),
                         (CUDA, "no headers of CUDA 13.0 (build-headers.log)")):
        if not needed.exists():
            pytest.skip(f"{what}: {needed}")
    if not shutil.which("g++"):
        pytest.skip("no g++")
    program = tmp_path_factory.mktemp("rmm") / "drive_rmm"
    folders = [RMM, RMM / "rapids" / "libcudacxx", RMM / "rapids", CUDA]
    subprocess.run(["g++", "-std=c++17", "-O0", *(option for folder in folders for option in ("-isystem", folder)),
                    "-DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE", "-DRMM_LOG_ACTIVE_LEVEL=6",  # off: its log is not compiled
                    PROGRAM, "-o", program, f"-L{SIM}", "-l:libcudart.so.13",
                    "-l:libcuda.so.1", "-pthread"], check=True, timeout=600)
    return program


def drive(program, folder, seed, **options):
    """(what it printed, the simulator's calls)"""
    simulator = folder / "simulator.json"
    simulator.unlink(missing_ok=True)
    done = run([program, seed], check=0, timeout=120, SIMCUDA_RACES="abort", SIMCUDA_STATS=simulator, CACHEALLOC_LOG="error", **options)
    assert not [line for line in done.stderr.splitlines() if "SIMCUDA_JITTER=" not in line], done.stderr
    figures = json.loads(simulator.read_text())
    assert figures["races"] == 0 and not figures["not_built"]
    return done.stdout, figures["calls"]


@pytest.fixture(scope="module", name="native")
def _native(program, tmp_path_factory):
    folder = tmp_path_factory.mktemp("native")
    return {seed: drive(program, folder, seed, preload=False) for seed in SEEDS}


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("word", words_of("async"))
def test_same_as_without_the_library(word, clock, program, native, tmp_path):
    for seed in SEEDS:
        wanted, calls = native[seed]
        assert wanted.endswith("done\n") and "out_of_memory" in wanted
        seen, ours = drive(program, tmp_path, seed, CACHEALLOC_CONF=f"async:{word},pinned:cache", **CLOCKS[clock])
        assert seen == wanted
        assert ours["cuMemAlloc_v2"] < calls["cuMemAlloc_v2"] / 2  # of rmm::mr::cuda_memory_resource
        natively = calls["cuMemAllocFromPoolAsync"]
        if word == "pool":
            assert ours["cuMemAllocFromPoolAsync"] < natively / 2
        else:
            assert ours["cuMemAllocFromPoolAsync"] >= natively > 200
