# SPDX-License-Identifier: MIT
"""Eight ranks under `mpirun` on the simulator: a file a rank, and one merged report."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from conftest import BUILD, LIBRARY, ROOT, clean_env

PROGRAM = BUILD / "tests" / "process" / "shim" / "cases_shim"
RANKS = 8


@pytest.mark.skipif(not shutil.which("mpirun"), reason="no mpirun: scripts/setup.sh installs openmpi-bin")
@pytest.mark.skipif("CACHEALLOC_TEST_EMULATOR" in os.environ, reason="mpirun is of this machine, the program is not")
def test_eight_ranks_become_one_report(tmp_path):
    first = os.environ.get("CACHEALLOC_TEST_PRELOAD_FIRST", "")
    ours = [f"LD_PRELOAD={':'.join(filter(None, (first, str(LIBRARY))))}", f"CACHEALLOC_STATS={tmp_path}/s.%r.json"]
    subprocess.run(["mpirun", "--oversubscribe", "--allow-run-as-root", "-n", str(RANKS), "env", *ours, PROGRAM, "reuse_waits"],
                   env=clean_env(), check=True, timeout=120, stdout=subprocess.DEVNULL)
    paths = sorted(tmp_path.glob("s.*.json"))
    each = [json.loads(path.read_text()) for path in paths]
    assert [path.name for path in paths] == [f"s.{rank}.json" for rank in range(RANKS)]
    assert [one["rank"] for one in each] == list(range(RANKS)) and len({one["pid"] for one in each}) == RANKS
    done = subprocess.run([sys.executable, ROOT / "scripts" / "cachealloc", "stats", "--merge", "--json", *paths],
                          check=True, stdout=subprocess.PIPE, text=True)
    merged = json.loads(done.stdout)
    device, = merged["devices"]
    assert merged["processes"] == RANKS and merged["ranks"] == list(range(RANKS))
    for name in ("alloc_calls", "free_calls", "driver_alloc_calls"):
        assert device[name] == sum(one["devices"][0][name] for one in each) > 0
    assert device["requested_bytes"]["total"] == sum(one["devices"][0]["requested_bytes"]["total"] for one in each)
