# SPDX-License-Identifier: MIT
"""scripts/gpu_check.sh as far as it goes without a GPU: its programs compile, and it says what is missing."""

import ast
import json
import os
import shutil
import subprocess

import pytest
from command import ROOT, environment
from conftest import LIBRARY, SIM, run

QUICK_EVERY = 4  # conftest.py
GPU = ROOT / "tests" / "gpu"
NVCC = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
PARTS = ("build", "static", "shared", "torch", "latency", "native", "alloc_latency", "torch_policy", "framework", "naive")


def has_gpu():
    smi = shutil.which("nvidia-smi")
    return bool(smi) and subprocess.run([smi, "-L"], capture_output=True, check=False).stdout.startswith(b"GPU")


def gpu_check(*words):
    return subprocess.run([ROOT / "scripts" / "gpu_check.sh", *words], env=environment(), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)


def compiled(folder, name, options):
    stubs = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(NVCC))), "lib64", "stubs")
    done = subprocess.run([NVCC, *options, "-Xcompiler", "-Wall,-Wextra", "-o", folder / name, GPU / f"{name}.cu",
                           f"-L{stubs}", "-lcuda"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr, done.stderr
    return folder / name


needs_nvcc = pytest.mark.skipif(not NVCC, reason="no nvcc: tests/gpu/*.cu are not compiled")


@needs_nvcc
@pytest.mark.parametrize("name, options", [("runtime", ["-cudart=static"]), ("runtime", ["-cudart=shared"]),
                                           ("latency", [])])
def test_programs_compile_without_warnings(tmp_path, name, options):
    compiled(tmp_path, name, options)


@needs_nvcc
def test_native_cases_end_well_on_the_simulator(tmp_path):
    """The table of native answers needs the driver only, so every case can be tried without a GPU."""
    if not LIBRARY.exists() or not (SIM / "libcuda.so.1").exists():
        pytest.skip("library or simulator is not built")
    program = compiled(tmp_path, "native", [])
    names = run([program, "--list"], preload=False, check=0).stdout.split()
    assert len(names) > 15
    for name in names:
        for preload in (False, True):
            done = run([program, name], preload=preload, check=0)
            data = json.loads(done.stdout)
            assert data["case"] == name and len(data["answers"]) >= 2


@needs_nvcc
def test_latencies_of_all_calls_can_be_taken_on_the_simulator(tmp_path):
    if not LIBRARY.exists() or not (SIM / "libcuda.so.1").exists():
        pytest.skip("library or simulator is not built")
    program = compiled(tmp_path, "alloc_latency", ["-x=c++"])
    for preload in (False, True):
        data = json.loads(run([program, 4 << 20], preload=preload, check=0, SIMCUDA_MEM="256M").stdout)
        for call in ("cuMemAlloc_v2", "cuMemFree_v2", "cuMemAllocPitch_v2", "cuMemAllocManaged", "cuMemAllocAsync",
                     "cuMemHostAlloc", "cuMemAlloc_v2 while the device works"):
            assert data["calls"][call]["131072"]["n"] >= 20 and call not in data["refused"]
        assert data["calls"]["cuMemAlloc_v2 (out of memory)"]["0"]["p50_ns"] > 0


@needs_nvcc
def test_the_naive_program_runs_on_the_simulator(tmp_path):
    if not LIBRARY.exists() or not (SIM / "libcudart.so.13").exists():
        pytest.skip("library or simulator is not built")
    program = compiled(tmp_path, "naive", ["-x=c++", "-cudart=shared"])
    calls = []
    for preload in (False, True):
        stats = tmp_path / f"{preload}.json"
        data = json.loads(run([program, 20, 64], preload=preload, check=0, SIMCUDA_STATS=stats, SIMCUDA_RACES="abort").stdout)
        assert data["wrong"] == 0 and data["allocs"] == 20 * 20
        calls.append(json.loads(stats.read_text())["calls"]["cuMemAlloc_v2"])
    assert calls[0] >= 400 and calls[1] < 40


@pytest.mark.parametrize("name", ["check.py", "torch_train.py", "torch_framework.py"])
def test_scripts_parse(name):
    ast.parse((GPU / name).read_text(), name, feature_version=(3, 9))


@pytest.mark.parametrize("part", PARTS[1:])
@pytest.mark.skipif(has_gpu(), reason="there is a GPU: the parts would run")
def test_without_a_gpu_one_line_and_3(tmp_path, part):
    done = gpu_check(part, "--out", tmp_path / "out")
    assert done.returncode == 3 and done.stderr.count("\n") == 1 and not done.stdout
    assert "no NVIDIA GPU here" in done.stderr or "nvcc is needed" in done.stderr
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("words", [[], ["build"], ["bild", "--out", "x"], ["build", "-o", "x"]])
def test_wrong_usage_names_the_parts(words):
    done = gpu_check(*words)
    assert done.returncode == 2 and all(part in done.stderr for part in PARTS)


def test_a_part_that_is_done_is_not_run_again(tmp_path):
    (tmp_path / "latency.json").write_text("{}")
    done = gpu_check("latency", "--out", tmp_path)
    assert done.returncode == 0 and "--force" in done.stdout
