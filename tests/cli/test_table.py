# SPDX-License-Identifier: MIT
"""The table of workloads: what it measures, and that its verdicts bite. Our replay is a stand-in: one of the peers."""

import json
import os
import re
import statistics
import subprocess
import sys

import pytest
from conftest import BUILD, ROOT

TABLE = ROOT / "tests" / "traces" / "table.py"
sys.path.insert(0, str(TABLE.parent))
import table  # noqa: E402

PEER = BUILD / "tests" / "traces" / "models" / "peer-replay"


@pytest.fixture
def stand_in(tmp_path):
    """stand_in(model): a build folder whose cachealloc-replay is that peer; None: has none."""
    if not PEER.exists():
        pytest.skip("not built: peer-replay")

    def make(model):
        build = tmp_path / "build"
        (build / "tests" / "traces").mkdir(parents=True)
        (build / "tests" / "traces" / "models").symlink_to(PEER.parent)
        (build / "allocator").mkdir()
        if model:
            program = build / "allocator" / "cachealloc-replay"
            program.write_text(f'#!/bin/sh\nexec "{PEER}" --model {model} "$@"\n')
            program.chmod(0o755)
        return build
    return make


def run_table(build, *argv, status=None):
    done = subprocess.run([sys.executable, TABLE, "--build", build, "--scale", "0.01", "--no-recorded", *argv], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=120,
                          env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    assert status is None or done.returncode == status, (done.returncode, done.stdout, done.stderr)
    return done.stdout


def test_without_our_replay_the_peers_are_shown_and_nothing_is_judged(stand_in):
    out = run_table(stand_in(None), "W9", "W10b", status=3)
    assert "ours: not built; nothing is judged" in out and "pass" not in out
    lines = {line.split()[0]: line.split() for line in out.splitlines() if line}
    assert set(lines) >= {"W9", "W10b", "mean"} and lines["W9"][2] == "-" and float(lines["W9"][3]) > 0


def test_a_perfect_allocator_passes(stand_in):
    data = json.loads(run_table(stand_in("limit"), "--json", "W1", "W5b", "W10d", status=0))
    assert [row["workload"] for row in data["rows"]] == ["W1a", "W1b", "W5b", "W10d"]
    assert all(promise["kept"] for promise in data["promises"]) and len(data["promises"]) == 10
    assert data["rows"][0]["ours"]["calls_after_step_1"] == 0
    assert data["rows"][0]["torch"]["driver_alloc_calls"] > 0


def test_a_bad_allocator_fails_and_the_rows_are_named(stand_in):
    out = run_table(stand_in("cub"), "--scale", "0.05", "W1b", "W8", "W10c", status=1)
    failed = [line for line in out.splitlines() if line.startswith("FAIL")]
    assert any("waste no higher" in line and "W8" in line for line in failed)
    assert any("no driver calls" in line and "W1b" in line for line in failed)
    assert "Compared: ours with a device that keeps up, the peers with one that keeps up." in out


def test_what_is_compared_is_said(tmp_path):
    said = table.compared("20us")
    assert said.startswith("Compared: ours with a device that is 20 us behind, the peers with one that keeps up (only ours knows --lag).")
    done = subprocess.run([sys.executable, TABLE, "--build", tmp_path], stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1 and "meson configure -Dtests=true" in done.stderr


def test_a_replay_that_dies_fails(stand_in):
    build = stand_in(None)
    program = build / "allocator" / "cachealloc-replay"
    program.write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
    program.chmod(0o755)
    out = run_table(build, "W9", status=1)
    assert "W9: ours failed: broken" in out and "FAIL: replays every workload: W9" in out


def test_the_lag_is_ours_alone(stand_in):
    build = stand_in(None)
    program = build / "allocator" / "cachealloc-replay"
    program.write_text('#!/bin/sh\ncase "$*" in *"--lag 20us"*) exec "%s" --model limit --json "$1" ;; esac\nexit 1\n' % PEER)
    program.chmod(0o755)
    assert "ours failed" in run_table(build, "W9", status=1)
    assert json.loads(run_table(build, "--json", "--lag", "20us", "W9"))["lag"] == "20us"


def test_an_unknown_workload_is_refused(stand_in):
    run_table(stand_in(None), "W99", status=2)


def row(name, group, ours, torch=(200, 1000), stock=1000):
    """Waste in thousandths and least capacity."""
    def one(waste, least):
        return {"waste_ppm": waste * 1000, "min_capacity_bytes": least, "peak_live_bytes": 900}
    return {"workload": name, "group": group, "ours": one(*ours), "torch": one(*torch), "stock": one(0, stock),
            "stock-reuse": one(0, stock)}


def kept(rows):
    return {promise: ok for promise, ok, _ in table.verdicts(rows)}


def test_each_promise_is_judged_by_its_own_figures():
    def broken(*rows):
        return {promise for promise, ok in kept(rows).items() if not ok}
    assert not broken(row("a", "A", (133, 1000)), row("b", "B", (133, 1000)))
    assert broken(row("a", "A", (201, 1000)), row("b", "B", (0, 1000))) == {
        "waste no higher than PyTorch's on every workload"}
    assert broken(row("a", "A", (134, 1000)), row("b", "B", (133, 1000))) == {
        "mean waste over rows lower than PyTorch's by a third",
        "mean waste over workloads lower than PyTorch's by a third"}
    # two rows of one workload count once
    assert broken(row("a", "A", (160, 1000)), row("b", "B", (100, 1000)), row("c", "B", (100, 1000))) == set()
    assert broken(row("a", "A", (180, 1000)), row("b", "B", (100, 1000)), row("c", "B", (100, 1000))) == {
        "mean waste over workloads lower than PyTorch's by a third"}
    assert broken(row("a", "A", (0, 1001))) == {"least capacity no higher than PyTorch's on every workload"}
    over = {f"least capacity at most 2 % above {peer}'s, mean over {what}"
            for peer in ("stock", "stock-reuse") for what in ("rows", "workloads")}
    assert broken(row("a", "A", (0, 1020), (200, 1100))) == set()
    assert broken(row("a", "A", (0, 1021), (200, 1100))) == over
    failed = row("a", "A", (0, 1000))
    failed["ours"] = {"failed": "why"}
    assert broken(failed) == {"replays every workload"}


def test_figures_are_found_at_any_depth():
    data = {"devices": [{"driver_alloc_calls": 4, "reserved_bytes": {"current": 1, "total": 7}}], "x": None}
    assert table.figure(data, "driver_alloc_calls") == 4 and table.figure(data, "reserved_bytes") == 7
    assert table.figure(data, "nothing") is None


# ------------------------------------------------------------------------- the document ---

DOCUMENT = ROOT / "tests" / "traces" / "README.md"
LAGS = ["idle", "20us", "100us", "300us"]  # the columns of its table
LONG = "CACHEALLOC_TEST_LONG" in os.environ


def documented(column):
    """{row: waste over live in %} of lines such as `| inf1024, medvar | 9.2, 4.0 | ...`."""
    found = {}
    for names, *cells in re.findall(r"^\| ([\w, ]+) \| ([\d., ]+) \| ([\d., ]+) \| ([\d., ]+) \| ([\d., ]+) \|$", DOCUMENT.read_text(), re.MULTILINE):
        figures = cells[column].split(", ")
        if len(figures) == len(names.split(", ")):
            found.update(zip(names.split(", "), map(float, figures)))
    return found


@pytest.mark.parametrize("lag", LAGS if LONG else LAGS[:2])
def test_the_document_has_the_figures_of_today(lag):
    """Of rows that a change of what is placed where moves. If it is wanted, tests/traces/README.md, README.md and
    docs/differences-from-pytorch.md say so in the same commit."""
    if not (BUILD / "allocator" / "cachealloc-replay").exists():
        pytest.skip("not built: cachealloc-replay")
    names = list(documented(0)) if LONG else ["W1b", "W3b", "inf1024", "medvar", "med128"]
    argv = [sys.executable, TABLE, "--build", BUILD, "--json", *([] if lag == "idle" else ["--lag", lag]), *names]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=600, check=False)
    ours = {row["workload"]: row["ours"] for row in json.loads(done.stdout)["rows"]}
    seen = {name: round(100 * (one["peak_reserved_bytes"] / one["peak_live_bytes"] - 1), 1) for name, one in ours.items()}
    assert seen == {name: documented(LAGS.index(lag))[name] for name in names}


@pytest.mark.skipif(not LONG, reason="CACHEALLOC_TEST_LONG=1")
@pytest.mark.parametrize("lag", LAGS)
def test_the_document_has_the_mean_of_today(lag):
    argv = [sys.executable, TABLE, "--build", BUILD, "--json", *([] if lag == "idle" else ["--lag", lag])]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, timeout=1800, check=False)
    waste = [100 * (row["ours"]["peak_reserved_bytes"] / row["ours"]["peak_live_bytes"] - 1)
             for row in json.loads(done.stdout)["rows"] if row["workload"] != "static"]
    row = re.search(r"^\| ours, mean \|(.*)\|$", DOCUMENT.read_text(), re.MULTILINE).group(1)
    assert f"{statistics.mean(waste):.1f} %" == row.split("|")[LAGS.index(lag)].strip()
