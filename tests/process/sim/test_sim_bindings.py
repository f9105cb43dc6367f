# SPDX-License-Identifier: MIT
"""NVIDIA's own Python bindings of the driver on the simulated driver, without our library."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from conftest import run  # noqa: E402

PYTHON = Path(os.environ.get("CACHEALLOC_TEST_VENV", "")) / "bin" / "python"


def has_bindings():
    """Whether $CACHEALLOC_TEST_VENV has the package; test.sh leaves an empty one where no index can be reached."""
    found = [PYTHON, "-c", "import cuda.bindings.driver"]
    return PYTHON.exists() and subprocess.run(found, stderr=subprocess.DEVNULL, check=False).returncode == 0


@pytest.mark.skipif(not has_bindings(), reason="no cuda-bindings in $CACHEALLOC_TEST_VENV")
@pytest.mark.skipif("CACHEALLOC_TEST_SANITIZER" in os.environ, reason="the package is not built for a sanitizer")
@pytest.mark.parametrize("per_thread", [0, 1])
def test_cuda_bindings(per_thread, tmp_path):
    stats = tmp_path / "s.json"
    done = run([PYTHON, Path(__file__).with_name("bindings.py")], preload=False, SIMCUDA_STATS=stats,
               SIMCUDA_RACES="abort", CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM=per_thread)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    figures = json.loads(stats.read_text())
    calls = figures["calls"]
    assert calls["cuMemAlloc_v2"] == 2 and calls["cuMemFree_v2"] == 3 and figures["races"] == 0
    assert calls["cuMemcpyHtoD_v2" + "_ptds" * per_thread] == 1
    assert calls["cuLaunchKernel" + "_ptsz" * per_thread] == 1
    assert figures["not_built"] == {}
