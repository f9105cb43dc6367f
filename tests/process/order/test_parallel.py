# SPDX-License-Identifier: MIT
"""Two streams do not tie the host to the device: the data-parallel programs of parallel.c.

On the manual clock nothing is done before somebody waits, so the host is as far ahead of the device as can be: a wait of
ours, or of the program, is seen in the work that was done by the time that everything was submitted. The race oracle
judges each run.
"""

import json

import pytest

from conftest import BUILD, run

QUICK_EVERY = 4  # conftest.py
PROGRAM = BUILD / "tests" / "process" / "order" / "order_parallel"
MIB = 1 << 20
OWN = 12 * MIB  # of each stream beside A
SLACK = 256 * MIB  # reuse_slack_mb
#: streams beside A of the programs that never make the host wait
AHEAD = {"joined": 1, "every": 1, "never": 1, "unrelated": 1, "two": 2, "two_never": 2}


def go(tmp_path, variant, conf="", timeout=120, **env):
    """(percent of the work that was done when all was submitted, our device 0)"""
    ours = tmp_path / f"{variant}.json"
    ours.unlink(missing_ok=True)
    if conf:
        env["CACHEALLOC_CONF"] = conf
    done = run([PROGRAM, variant], check=0, timeout=timeout, SIMCUDA_RACES="abort", SIMCUDA_DEADLOCK="20000",
               CACHEALLOC_STATS=ours, **env)
    assert done.stderr == ""
    words = done.stdout.split()
    device = json.loads(ours.read_text())["devices"][0]
    device["submitted_us"] = int(words[words.index("submitted_us") + 1])
    print(variant, conf, done.stdout.strip(), {name: device[name] for name in (
        "host_syncs", "order_waits", "order_marks", "taken_same_stream", "taken_exposed", "exposed_several", "finished_only_reasons")},
        device["reserved_bytes"]["peak"] // MIB, "MiB")
    return int(words[words.index("done_percent") + 1]), device


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The most that is held with stream A alone."""
    percent, ours = go(tmp_path_factory.mktemp("alone"), "alone", SIMCUDA_CLOCK="manual")
    assert percent == 0 and ours["host_syncs"] == ours["order_waits"] == 0
    # a mark only where a busy machine stopped the program for 2 to 4 ms (allocator/order/host_pause.c), of 11,000 hand-outs
    assert ours["order_marks"] <= 1 + ours["submitted_us"] // 1500
    return ours["reserved_bytes"]["peak"]


@pytest.mark.parametrize("variant", AHEAD)
def test_the_host_runs_ahead(tmp_path, alone, variant):
    percent, ours = go(tmp_path, variant, SIMCUDA_CLOCK="manual")
    assert (percent, ours["host_syncs"]) == (0, 0)
    assert ours["exposed_several"] > 0
    assert ours["reserved_bytes"]["peak"] <= alone + AHEAD[variant] * OWN + SLACK


@pytest.mark.parametrize("variant", AHEAD)
def test_the_host_does_not_wait_for_a_real_device(tmp_path, alone, variant):
    """How far ahead it gets depends on the machine: the figure is printed. Nothing unfinished is handed out before the driver
    has been tried, which a busy machine may put off for as long as the program runs (seen once; in 0 of 147 runs beside busy loops): then again."""
    for _ in range(3):
        _, ours = go(tmp_path, variant)
        if ours["exposed_several"]:
            break
    assert ours["host_syncs"] == 0
    assert ours["reserved_bytes"]["peak"] <= alone + AHEAD[variant] * OWN + SLACK


@pytest.mark.parametrize("variant", AHEAD)
def test_without_slack(tmp_path, variant):
    """Memory of several users goes round whenever it can: the race oracle judges, and nothing hangs."""
    _, ours = go(tmp_path, variant, conf="reuse_slack_mb:0", SIMCUDA_CLOCK="manual")
    assert ours["exposed_several"] > 0


@pytest.mark.parametrize("clock", ["real", "manual:64"])
@pytest.mark.parametrize("variant", ["thread", "host"])
def test_others_submit_or_the_program_waits(tmp_path, alone, variant, clock):
    """B driven by another thread, whose work is waited for on the host beyond the slack, as it would be natively; and a
    program that joins B on the host. No hang, and no more memory than the slack."""
    _, ours = go(tmp_path, variant, SIMCUDA_CLOCK=clock)
    assert ours["reserved_bytes"]["peak"] <= alone + OWN + SLACK
