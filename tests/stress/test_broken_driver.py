# SPDX-License-Identifier: MIT
"""Random programs on a driver that breaks an assumption of the order of several streams, or that has one queue: the library
finds out and uses finished memory only, without a race, a wrong word or a hang; exposure is forced wherever it is allowed.

Of two of the programs the threads are at work, and the device is busy, while the library tries the driver. With
CACHEALLOC_TEST_LONG=1 a million operations: a library that uses finished memory only waits, at 1,300 of them a second.
"""

import json

import pytest

from test_exposed import library
from test_order import LONG, MUTANTS, SIGABRT, fresh, program, sound

QUICK_EVERY = 4  # conftest.py
pytestmark = pytest.mark.skipif(not MUTANTS.exists(), reason="built without what forces exposure")

LEGACY, CONTEXT = "legacy_record_early", "context_record_early"
BROKEN = [{"SIMCUDA_BELIEFS": LEGACY}, {"SIMCUDA_BELIEFS": CONTEXT}, {"SIMCUDA_BELIEFS": f"{LEGACY},{CONTEXT}"},
          {"SIMCUDA_QUEUES": 1}]
# mode, workers, streams, clock, jitter (us)
RUNS = [
    ("mix", 3, 4, "manual", 0), ("mix", 4, 3, "real", 5), ("pipe", 4, 4, "manual", 5), ("team+wide", 4, 3, "real", 5),
    ("team+pipe+wide", 4, 4, "manual", 20),
]
OPERATIONS = 1_000_000 // (len(RUNS) * len(BROKEN)) if LONG else 2_000


#: the reasons that one of which is found; eight trials on a busy machine may show nothing, and fewer may be all a run has
FOUND = {CONTEXT: {"context_record", "no_trial"}, LEGACY: {"legacy_record", "no_trial"}}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda knobs: "+".join(map(str, knobs.values())))
@pytest.mark.parametrize("mode, workers, streams, clock, jitter", RUNS)
def test_order_program(tmp_path, mode, workers, streams, clock, jitter, broken):
    stats = tmp_path / "ours.json"
    env = {**library(MUTANTS), "CACHEALLOC_TEST_EXPOSE": 1, "CACHEALLOC_STATS": stats, **broken}
    beliefs = broken.get("SIMCUDA_BELIEFS", "")
    # of a legacy record nothing is found before a context uses its legacy stream, too
    wanted = FOUND[CONTEXT] if CONTEXT in beliefs else FOUND[LEGACY] if beliefs else None
    for _ in range(5):
        sound(program(fresh(), OPERATIONS, mode, workers, streams, jitter=jitter, timeout=3600 if LONG else 600,
                      SIMCUDA_CLOCK=clock, **env))
        devices = json.loads(stats.read_text())["devices"]
        stats.unlink()
        reasons = {reason for device in devices for reason in device["finished_only_reasons"]}
        if CONTEXT in beliefs:
            assert not any(device["taken_exposed"] for device in devices)
        if not wanted or reasons & wanted:
            return
    pytest.fail(f"not found out in five runs: {reasons}")


def test_a_library_that_tries_nothing_is_caught():
    """Else the runs above would prove nothing. Random programs seldom need a mark of the context for another thread's stream:
    of that assumption only tests/process/order/test_broken.py proves that a library without trials goes wrong."""
    for _ in range(5):
        status, stderr, _ = program(fresh(), 40_000, "mix", 4, 4, jitter=5, timeout=120, SIMCUDA_CLOCK="manual",
                                    SIMCUDA_BELIEFS=LEGACY, CACHEALLOC_TEST_MUTANT="ASSUMPTIONS_UNPROBED",
                                    CACHEALLOC_TEST_EXPOSE=1, **library(MUTANTS))
        if status == 1 or (status == SIGABRT and "simcuda: race" in stderr):
            return
    pytest.fail("not caught")
