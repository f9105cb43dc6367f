# SPDX-License-Identifier: MIT
"""Memory runs short while a kernel waits for what its own thread submits next (short.c): the library waits for that kernel
for ten seconds at most, and asks nothing of the driver that would wait for it. (The simulated driver's free does.)"""

import concurrent.futures
import subprocess

import pytest

from conftest import BUILD, clean_env, run

PROGRAM = BUILD / "tests" / "process" / "order" / "order_short"
CLOCKS = [{}, {"SIMCUDA_CLOCK": "manual"}, {"SIMCUDA_JITTER": "40:1"}]
QUICK_EVERY = 6  # conftest.py
#: The manual clock knows no work that goes on beside a thread.
REAL_ONLY = ("while_another_thread_keeps_the_device_busy",)


def cases():
    if not PROGRAM.exists():
        return ["(no build)"]
    return subprocess.run([str(PROGRAM), "--list"], env=clean_env(), capture_output=True, text=True).stdout.split()


def go(case, preload, **env):
    done = run([PROGRAM, case], preload=preload, timeout=100, SIMCUDA_RACES="abort", SIMCUDA_MEM="320M",
               SIMCUDA_DEADLOCK="40000", CACHEALLOC_LOG="error", **env)
    quiet = [line for line in done.stderr.splitlines() if "SIMCUDA_JITTER=" not in line]
    assert done.returncode == 0 and not quiet, (case, env, done.returncode, done.stderr[-3000:])


@pytest.fixture(name="started", scope="module")
def _started(request):
    """The runs of each case that was chosen. Most of the time is spent asleep, so they sleep together."""
    chosen = [item.callspec.params["case"] for item in request.session.items if item.module is request.module]
    with concurrent.futures.ThreadPoolExecutor(6 * len(chosen)) as pool:
        yield {case: [pool.submit(go, case, preload, **clock) for preload in (False, True) for clock in CLOCKS
                      if not (clock.get("SIMCUDA_CLOCK") and case in REAL_ONLY)] for case in chosen}


@pytest.mark.parametrize("case", cases())
def test_it_ends(case, started):
    """Natively and with the library."""
    for each in started[case]:
        each.result()
