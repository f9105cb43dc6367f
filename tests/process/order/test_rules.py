# SPDX-License-Identifier: MIT
"""Rules T1-T17 of reuse, hole by hole (rules_*.c): natively, where the programs must be right, and with our library.

Every case runs with both clocks of the simulated driver, with and without delays in it, and with several settings of
the library; the race oracle and the contents judge. Of the settings but the first two, half of the clocks: a case that
fails prints the seed that chose them. CACHEALLOC_TEST_SEED=N takes that seed; CACHEALLOC_TEST_LONG=1 takes all.
"""

import os
import random
import subprocess

import pytest

from conftest import BUILD, MUTANTS, clean_env, run

PROGRAM = BUILD / "tests" / "process" / "order" / "order_rules"
#: memory is mapped, and moves before the cache grows
EXTENTS = "expandable_segments:True,expandable_slack_percent:0,reuse_slack_mb:0"
#: no cache growth where unfinished memory may be handed out; the default; what turns parts of it off; small memory, and with
#: a driver whose free waits for nothing; mapped memory
SETTINGS = {
    "default": {},
    "no_slack": {"CACHEALLOC_CONF": "reuse_slack_mb:0"},
    "finished": {"CACHEALLOC_CONF": "reuse:finished,reuse_slack_mb:0"},
    "host": {"CACHEALLOC_CONF": "free_sync:host"},
    "small": {"SIMCUDA_MEM": "320M", "CACHEALLOC_CONF": "reuse_slack_mb:0"},
    "at_once": {"SIMCUDA_MEM": "320M", "SIMCUDA_FREE": "at_once", "CACHEALLOC_CONF": "reuse_slack_mb:0"},
    "extents": {"CACHEALLOC_CONF": EXTENTS},
    "extents_small": {"SIMCUDA_MEM": "320M", "CACHEALLOC_CONF": EXTENTS},
}
MANUAL = "manual:64"  # beside other threads the library asks rather than waits, and the device has to go on
CLOCKS = [{}, {"SIMCUDA_CLOCK": MANUAL}, {"SIMCUDA_JITTER": "40:1"}, {"SIMCUDA_JITTER": "200:2"}]
WARM_CLOCKS = [{"SIMCUDA_CLOCK": MANUAL}, {"SIMCUDA_JITTER": "40:3"}]
#: with these, every clock: the most is handed out unfinished
EVERY_CLOCK = ("default", "no_slack")
LONG = os.environ.get("CACHEALLOC_TEST_LONG") == "1"
SEED = os.environ.get("CACHEALLOC_TEST_SEED", str(random.SystemRandom().randrange(1 << 32)))
QUICK_EVERY = 8  # conftest.py
#: what natively is an error of the program, and what we promise all the same: memory taken and freed inside a capture
#: stays for its graph, and a copy in another context counts as a user (but memory that goes back to the driver, as
#: without slack it may, goes as it does natively)
MORE_THAN_NATIVE = ("t16_scratch", "t11_still_read")
KNOBS = {case: {"SIMCUDA_PRIVATE_TABLE": "1"}
         for case in ("t12_private_table_submits", "t12_private_table_submits_after_a_warm_up")}


def cases():
    if not PROGRAM.exists():
        return ["(no build)"]
    listed = subprocess.run([str(PROGRAM), "--list"], env=clean_env(), capture_output=True, text=True)
    return listed.stdout.split()


def go(case, preload, **env):
    knobs = {"SIMCUDA_RACES": "abort", "SIMCUDA_DEVICES": "2", "SIMCUDA_DEADLOCK": "20000", **KNOBS.get(case, {}), **env}
    done = run([PROGRAM, case], preload=preload, timeout=60, **knobs)
    quiet = [line for line in done.stderr.splitlines() if "SIMCUDA_JITTER=" not in line]
    assert done.returncode == 0 and not quiet, (knobs, done.returncode, done.stdout[-1000:], done.stderr[-3000:])


def clocks_for(case, setting, clocks):
    """All, or half of them, others in each run: so each setting of a case has each clock in some run, and in --long in each."""
    if LONG or setting in EVERY_CLOCK:
        return clocks
    print(f"CACHEALLOC_TEST_SEED={SEED}")
    return random.Random(f"{SEED} {case} {setting}").sample(clocks, len(clocks) // 2)


@pytest.mark.parametrize("case", [c for c in cases() if not c.startswith(MORE_THAN_NATIVE)])
def test_native(case):
    for clock in CLOCKS:
        go(case, False, **clock)


def can(case, setting):
    """Natively it is an error of the program; mapped memory cannot be exported."""
    if setting.startswith("extents") and case == "t13_export_to_another_process":
        return False
    return setting == "default" or not case.startswith("t11_still_read")


#: A known limit: at the end of the memory, what other threads freed is only looked at, for ten seconds; on the manual
#: clock that is not often enough for anything to finish, and the answer is "out of memory" where stock, whose free waits,
#: goes on.
NOTHING_FINISHES = {("t10_memory_of_another_thread_at_the_end", setting) for setting in ("small", "at_once", "extents_small")}


@pytest.mark.parametrize("case, setting", [(case, setting) for case in cases() for setting in SETTINGS if can(case, setting)])
def test_with_the_library(case, setting):
    for clock in clocks_for(case, setting, CLOCKS):
        if (case, setting) in NOTHING_FINISHES and clock.get("SIMCUDA_CLOCK") == MANUAL:
            continue
        go(case, True, **clock, **SETTINGS[setting])


@pytest.mark.parametrize("case", cases())
def test_with_kernels_of_a_library(case):
    """As cuda.core and the runtime launch: a CUkernel in a CUfunction's place, in the context of the stream."""
    go(case, True, ORDER_LIBRARY=1, SIMCUDA_CLOCK=MANUAL, **SETTINGS["no_slack"])


#: Natively they would hang, too, as would free_sync:host: a thread warms up while a kernel waits for what it does next.
WARMED_TOO_LATE = ("t5_wait_value_after_the_free_released_by_a_thread", "t5_memory_of_a_stream_that_another_thread_uses_next")
#: Blocks that share a segment are not exported, and what was free before is cut. A thread that warms up takes memory while
#: another one captures, which the driver refuses natively, too.
NEVER_WARM = ("t13_export_to_another_process", "t6_storm_of_captures_beside_frees")
#: They take and free in another context than the one that is warmed up.
WARMED_ELSEWHERE = ("t11_null_is_a_stream_of_the_current_context", "t11_streams_are_used_from_elsewhere")
#: more than a magazine takes
NEVER_KEPT = ("t11_most_memory_before_a_legacy_kernel_that_waits",)


def warm_cases():
    return [case for case in cases() if case not in NEVER_WARM]


@pytest.mark.parametrize("case, setting", [
    (case, setting) for case in warm_cases() for setting in SETTINGS
    if can(case, setting) and not (setting == "host" and case in WARMED_TOO_LATE)])
def test_with_warm_magazines(case, setting):
    """What a case takes and frees first goes the threads' own quick way."""
    for clock in clocks_for(case, setting, WARM_CLOCKS):
        if (case, setting) in NOTHING_FINISHES and clock.get("SIMCUDA_CLOCK") == MANUAL:
            continue
        go(case, True, ORDER_WARM=1, **clock, **SETTINGS[setting])


@pytest.mark.parametrize("case", [case for case in warm_cases() if case not in (*WARMED_ELSEWHERE, *NEVER_KEPT)])
def test_a_warm_case_goes_the_quick_way(case, tmp_path):
    if not MUTANTS.exists():
        pytest.skip("built without what counts branches")
    counts = tmp_path / "branches"
    go(case, False, ORDER_WARM=1, SIMCUDA_CLOCK=MANUAL, LD_PRELOAD=MUTANTS, CACHEALLOC_TEST_BRANCHES=counts)
    threads = {line.split()[0]: int(line.split()[2]) for line in counts.read_text().splitlines()}
    assert threads["QUICK_TAKEN"] and threads["QUICK_GIVEN"], threads
