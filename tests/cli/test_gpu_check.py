# SPDX-License-Identifier: MIT
"""scripts/gpu_check.sh as far as it goes without a GPU: its programs compile, and it says what is missing."""

import ast
import os
import shutil
import subprocess

import pytest
from command import ROOT, environment

GPU = ROOT / "tests" / "gpu"
NVCC = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
PARTS = ("build", "static", "shared", "torch", "latency", "native")


def has_gpu():
    smi = shutil.which("nvidia-smi")
    return bool(smi) and subprocess.run([smi, "-L"], capture_output=True, check=False).stdout.startswith(b"GPU")


def gpu_check(*words):
    return subprocess.run([ROOT / "scripts" / "gpu_check.sh", *words], env=environment(), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)


@pytest.mark.skipif(not NVCC, reason="no nvcc: tests/gpu/*.cu are not compiled")
@pytest.mark.parametrize("name, options", [("runtime", ["-cudart=static"]), ("runtime", ["-cudart=shared"]),
                                           ("latency", []), ("native", [])])
def test_programs_compile_without_warnings(tmp_path, name, options):
    stubs = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(NVCC))), "lib64", "stubs")
    done = subprocess.run([NVCC, *options, "-Xcompiler", "-Wall,-Wextra", "-o", tmp_path / name, GPU / f"{name}.cu",
                           f"-L{stubs}", "-lcuda"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr, done.stderr


@pytest.mark.parametrize("name", ["check.py", "torch_train.py"])
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
