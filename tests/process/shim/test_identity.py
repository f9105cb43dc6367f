# SPDX-License-Identifier: MIT
"""Statistics and log lines say which process they are of."""

import json
import os
import re
import time

import pytest

from conftest import BUILD, ROOT, run

PROGRAM = BUILD / "tests" / "process" / "shim" / "cases_shim"
RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PALS_RANKID", "FLUX_TASK_RANK", "JSM_NAMESPACE_RANK", "SLURM_PROCID")
NAMES = [name for name, field in json.loads((ROOT / "scripts/schema/stats.schema.json").read_text())["properties"].items()
         if "description" in field and name != "from_counts"]


def case():
    """A case that allocates."""
    text = (ROOT / "tests/process/shim/test_shim.py").read_text()
    return re.search(r'run_case\(tmp_path, "(\w+)"', text).group(1)


def facts(tmp_path, **env):
    for name in RANKS:
        env.setdefault(name, "")
    begun = time.time_ns()
    done = run([PROGRAM, case()], check=0, CACHEALLOC_STATS=tmp_path / "s.json", CACHEALLOC_LOG="info", **env)
    data = json.loads((tmp_path / "s.json").read_text())
    assert begun <= data["time_unix_ns"] <= time.time_ns() and 0 < data["elapsed_ns"] <= time.time_ns() - begun
    return data, done.stderr


def test_every_field_is_there(tmp_path):
    data, lines = facts(tmp_path, CACHEALLOC_CONF="reuse:finished")
    assert set(data) == {"format", "format_version", "devices", *NAMES}
    assert data["program"] == "cases_shim" and data["command"] == f"{PROGRAM} {case()}" and data["conf"] == "reuse:finished"
    assert data["ppid"] == os.getpid() and data["seq"] == 1 and data["host"] and data["driver_version"] >= 11000
    assert data["rank"] is None and lines.startswith(f"cachealloc[{data['pid']}]: info: ")


@pytest.mark.parametrize("name", RANKS)
def test_the_rank_is_the_launchers(tmp_path, name):
    data, lines = facts(tmp_path, **{name: "03"})
    assert data["rank"] == 3 and data["conf"] is None
    assert all(line.startswith(f"cachealloc[{data['pid']} r03]: ") for line in lines.splitlines() if line.startswith("cachealloc"))


def test_each_writing_has_its_number(tmp_path):
    path = tmp_path / "s.json"
    run([PROGRAM, "slow"], check=0, CACHEALLOC_STATS=path, CACHEALLOC_STATS_INTERVAL="50ms")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(rows) > 1 and [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    assert len({row["pid"] for row in rows}) == 1
    assert [row["elapsed_ns"] for row in rows] == sorted(row["elapsed_ns"] for row in rows)
