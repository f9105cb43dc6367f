# SPDX-License-Identifier: MIT
"""PyTorch's package on NVIDIA's newest driver: scripts/test.sh --long, since 3 GB are fetched for it.

Without a device it asks for our functions and gets no further. What follows, that PyTorch is recognised and that the
libraries it brings along (libcufile) restrict nothing, needs a device: there it is imported on the simulator.
"""

import json
import os
from pathlib import Path

import pytest

from conftest import LIBRARY, ROOT, SIM, run
from probing import asked_for, drivers, without_devices

PYTHON = ROOT / "build-torch" / "bin" / "python"
PROGRAM = Path(__file__).resolve().parent / "torch_program.py"

pytestmark = [pytest.mark.skipif("CACHEALLOC_TEST_LONG" not in os.environ, reason="scripts/test.sh --long"),
              pytest.mark.skipif(not (ROOT / "build-torch" / "ok").exists(), reason="no package of PyTorch's (build-torch.log)")]


def start(preload=True, **env):
    return run([*without_devices(), PYTHON, PROGRAM], preload=preload, check=0, timeout=300, **env)


@pytest.mark.skipif(not drivers(), reason="no driver library of NVIDIA's (build-drivers.log)")
def test_as_natively():
    folder = drivers()[-1].parent
    plain = start(preload=False, LD_LIBRARY_PATH=folder)
    assert plain.stdout.splitlines()[1:3] == ["False", "0"]
    quiet = start(LD_LIBRARY_PATH=folder)
    assert (quiet.stdout, quiet.stderr) == (plain.stdout, plain.stderr)

    told = start(LD_LIBRARY_PATH=folder, CACHEALLOC_LOG="debug")
    assert told.stdout == plain.stdout
    asked = asked_for(told.stderr)
    for name in ("cuMemAlloc", "cuMemFree", "cuMemAllocAsync", "cuLaunchKernel"):
        assert asked[name] == "ours", sorted(asked)
    assert set(asked.values()) == {"ours"}
    assert "only finished memory" not in told.stderr


KEYS = {
    "neither": {}, "older": {"PYTORCH_CUDA_ALLOC_CONF": "pinned_use_cuda_host_register:True"},
    "older, empty": {"PYTORCH_CUDA_ALLOC_CONF": ""}, "newer": {"PYTORCH_ALLOC_CONF": "max_split_size_mb:64"},
    "both": {"PYTORCH_CUDA_ALLOC_CONF": "pinned_use_cuda_host_register:True",
             "PYTORCH_ALLOC_CONF": "garbage_collection_threshold:0.8"},
}


@pytest.mark.skipif(not drivers(), reason="no driver library of NVIDIA's (build-drivers.log)")
@pytest.mark.parametrize("case", KEYS)
def test_taken_over(case):
    """By its own answer; and its start is otherwise that of a user who sets the same."""
    folder, keys = drivers()[-1].parent, KEYS[case]
    told = start(LD_LIBRARY_PATH=folder, CACHEALLOC_TAKEOVER="torch", CACHEALLOC_LOG="info", **keys)
    assert told.stdout.splitlines()[-1] == "backend cudaMallocAsync"
    assert "info: CACHEALLOC_TAKEOVER=torch: PYTORCH_CUDA_ALLOC_CONF=" in told.stderr
    quiet = start(LD_LIBRARY_PATH=folder, CACHEALLOC_TAKEOVER="torch", **keys)
    value = ",".join(part for part in (keys.get("PYTORCH_CUDA_ALLOC_CONF", keys.get("PYTORCH_ALLOC_CONF")),
                                       "backend:cudaMallocAsync") if part)
    plain = start(preload=False, LD_LIBRARY_PATH=folder, PYTORCH_CUDA_ALLOC_CONF=value)
    assert (quiet.stdout, quiet.stderr) == (plain.stdout, plain.stderr)


@pytest.mark.skipif(not drivers(), reason="no driver library of NVIDIA's (build-drivers.log)")
@pytest.mark.parametrize("keys", [{"PYTORCH_CUDA_ALLOC_CONF": "backend:native"}, {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}], ids=str)
def test_not_taken_over_where_the_user_has_chosen(keys):
    folder = drivers()[-1].parent
    told = start(LD_LIBRARY_PATH=folder, CACHEALLOC_TAKEOVER="torch", **keys)
    plain = start(preload=False, LD_LIBRARY_PATH=folder, **keys)
    assert told.stdout == plain.stdout and told.stdout.splitlines()[-1] == "backend native"
    assert told.stderr.count("CACHEALLOC_TAKEOVER=torch changes nothing") == 1


def test_recognised(tmp_path):
    """By the line about its cache, which is off here: while it is on, one comes with PyTorch's first allocation."""
    stats = tmp_path / "stats.json"
    done = run([PYTHON, PROGRAM, "memory"], check=0, timeout=300, CACHEALLOC_LOG="info", CACHEALLOC_STATS=stats,
               PYTORCH_NO_CUDA_MEMORY_CACHING="1")
    assert "PyTorch's own cache is off (PYTORCH_NO_CUDA_MEMORY_CACHING)" in done.stderr, done.stderr
    device = json.loads(stats.read_text())["devices"][0]
    assert device["alloc_calls"] == 10 and device["cache_hits"] == 9
    assert device["finished_only_reasons"] == [] and device["unseen_calls"] == 0


def test_told_beforehand():
    done = run([ROOT / "scripts" / "cachealloc", "doctor", PYTHON], preload=False, timeout=120)
    assert "PyTorch" in done.stdout, done.stdout


def test_the_lines_of_the_page_work_up_to_the_first_tensor(tmp_path):
    """docs/pytorch-pluggable.md, with PyTorch's own classes. Without a device no tensor can be made."""
    page = (ROOT / "docs" / "pytorch-pluggable.md").read_text()
    lines = page.split("```python\n")[1].split("```")[0].replace("/opt/cachealloc/lib/libcachealloc.so", str(LIBRARY))
    program = tmp_path / "lines.py"
    program.write_text(lines + "print('taken', type(torch._C._cuda_getAllocator()).__name__)\n")
    for preload in (True, False):
        done = run([*without_devices(), PYTHON, program], preload=preload, check=0, timeout=300, LD_LIBRARY_PATH=SIM)
        assert done.stdout.startswith("taken"), done
