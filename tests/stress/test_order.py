# SPDX-License-Identifier: MIT
"""Random programs in which a free orders only the block's old users (order/program.c, and several.c of the process suite):
the library, and its mutants. What no random program meets is caught by a case of the rules (rules_*.c of that suite).

CACHEALLOC_TEST_SEED=N runs that seed instead of fresh ones; CACHEALLOC_TEST_LONG=1 runs ten times the operations.
Operations are the program's driver calls that allocate, free, submit, order or wait.
"""

import os
import random
import re
import subprocess

import pytest

from conftest import BUILD, LIBRARY, MUTANTS, ROOT, run
import test_leases

STRESS = BUILD / "tests" / "stress"
ORDER = BUILD / "tests" / "process" / "order"
SANITIZER = os.environ.get("CACHEALLOC_TEST_SANITIZER")
LONG = bool(os.environ.get("CACHEALLOC_TEST_LONG"))
SYSTEM = random.SystemRandom()
TURNS = 5
QUICK_EVERY = 6  # conftest.py
DEVICES = 2


def fresh():
    return int(os.environ.get("CACHEALLOC_TEST_SEED", SYSTEM.randrange(1 << 32)))


def program(seed, operations, mode, workers, streams, *, preload=None, conf="", jitter=0, timeout=600, **env):
    """One run: (status, what it printed on stderr, operations done)."""
    argv = [STRESS / "order_program", seed, operations, mode, workers, DEVICES, streams]
    if mode == "several":
        argv = [ORDER / "order_several", "random"]
        env = {"ORDER_SEED": seed, "ORDER_OPERATIONS": operations, **env}
    elif mode.startswith("case:"):
        argv = [ORDER / "order_rules", mode.removeprefix("case:")]
    env = {"SIMCUDA_RACES": "abort", "SIMCUDA_DEVICES": DEVICES, "SIMCUDA_DEADLOCK": 60000, **env}
    if env.get("SIMCUDA_CLOCK") == "manual":  # the library polls at the end of the memory, and the device has to go on
        env["SIMCUDA_CLOCK"] = "manual:16"
    if preload:
        env["LD_PRELOAD"] = preload
    if conf:
        env["CACHEALLOC_CONF"] = conf
    if jitter:
        env["SIMCUDA_JITTER"] = jitter if ":" in str(jitter) else f"{jitter}:{seed}"
    if "table" in mode:
        env["SIMCUDA_PRIVATE_TABLE"] = 1
    print(*argv, *(f"{k}={v}" for k, v in env.items()))
    done = run(argv, preload=False, timeout=timeout, **env)
    counted = re.findall(r"(\d+) operations", done.stdout + done.stderr)
    return done.returncode, done.stderr, int(counted[-1]) if counted else 0


def sound(result):
    status, stderr, _ = result
    ours = "\n".join(line for line in stderr.splitlines() if "SIMCUDA_JITTER=" not in line)
    assert (status, ours) == (0, ""), (status, stderr[-2000:])


# ------------------------------------------------------------------ the program itself ---

# mode, workers, streams
SHAPES = [
    ("mix", 1, 4), ("mix+table", 3, 3), ("solo", 2, 3), ("pipe+solo", 1, 2), ("pipe", 4, 5), ("team+wide", 3, 4),
    ("team+pipe+wide", 4, 4), ("pipe+solo+quiet", 1, 1), ("mix+meet", 2, 4), ("mix+green", 3, 5), ("several", 1, 3),
]


@pytest.mark.parametrize("clock", ["real", "manual"])
@pytest.mark.parametrize("mode, workers, streams", SHAPES)
def test_native(mode, workers, streams, clock):
    """No race by itself: what the tests below find is the library's."""
    if SANITIZER:
        pytest.skip(f"proves the program, not the library; not repeated under {SANITIZER}")
    sound(program(fresh(), 10000, mode, workers, streams, SIMCUDA_CLOCK=clock))


@pytest.mark.parametrize("clock", ["real", "manual"])
@pytest.mark.parametrize("mode, workers, streams", [*SHAPES, ("mix+cross", 3, 3), ("pipe+wide+cross", 2, 4)])
def test_order_of_its_own(mode, workers, streams, clock):
    """No race either when frees wait for nothing and no address comes back."""
    if SANITIZER:
        pytest.skip(f"proves the program, not the library; not repeated under {SANITIZER}")
    sound(program(fresh(), 10000, mode, workers, streams, preload=STRESS / "libnever_free.so", SIMCUDA_CLOCK=clock,
                  SIMCUDA_MEM="2000G"))


# -------------------------------------------------------------------------- the library ---

# mode, workers, streams, clock, jitter (us), configuration: a million operations in all, ten with CACHEALLOC_TEST_LONG
RUNS = [
    ("mix", 1, 4, "manual", 0, ""),
    ("mix", 3, 4, "manual", 0, "reuse_slack_mb:0"),
    ("mix", 4, 3, "real", 5, "reuse_slack_mb:0"),
    ("mix", 2, 6, "real", 0, "reuse:finished"),
    ("mix", 2, 4, "manual", 5, "free_sync:host"),
    ("mix+table", 2, 3, "manual", 0, "reuse_slack_mb:0"),
    ("solo", 1, 3, "manual", 0, "reuse_slack_mb:0"),
    ("solo+wide", 3, 3, "real", 0, "reuse_slack_mb:0"),
    ("pipe+solo", 1, 2, "manual", 0, "reuse_slack_mb:0"),
    ("pipe+solo+wide", 1, 5, "manual", 0, "reuse_slack_mb:0"),
    ("pipe+solo+quiet", 1, 1, "manual", 0, ""),
    ("pipe+solo+wide", 2, 4, "manual", 5, "reuse_slack_mb:0"),
    ("pipe", 3, 4, "manual", 5, ""),
    ("pipe", 4, 4, "manual", 0, "reuse_slack_mb:0"),
    ("pipe+wide", 3, 7, "real", 0, "reuse_slack_mb:0"),
    ("team+wide", 3, 4, "manual", 5, "reuse_slack_mb:0"),
    ("team+wide", 4, 3, "real", 5, "reuse_slack_mb:0"),
    ("team+pipe+wide", 3, 4, "manual", 0, "reuse_slack_mb:0"),
    ("team+storm+pipe+wide", 3, 4, "manual", 5, "reuse_slack_mb:0"),
    ("team+pipe", 2, 2, "manual", 0, ""),
    ("mix+green", 3, 5, "real", 5, "reuse_slack_mb:0"),
    ("pipe+wide+green", 2, 5, "manual", 0, "reuse_slack_mb:0"),
    ("several", 1, 3, "manual", 0, "reuse_slack_mb:0"),
    ("several", 1, 3, "manual", 0, "reuse_slack_mb:16"),
    ("several", 1, 3, "real", 5, "reuse_slack_mb:0"),
]
OPERATIONS = 50000 * (10 if LONG else 1)
operations_done = []


@pytest.mark.parametrize("mode, workers, streams, clock, jitter, conf", RUNS)
def test_library(mode, workers, streams, clock, jitter, conf):
    assert LIBRARY.is_file(), f"{LIBRARY} is not built"
    operations = OPERATIONS // 20 if SANITIZER else OPERATIONS
    result = program(fresh(), operations, mode, workers, streams, preload=LIBRARY, conf=conf, jitter=jitter,
                     timeout=1800, SIMCUDA_CLOCK=clock)
    sound(result)
    operations_done.append(result[2])
    print(f"{sum(operations_done)} operations so far")


# mode, workers, streams, memory
LITTLE = [
    ("mix", 2, 4, "224M"), ("pipe+solo", 1, 2, "160M"), ("pipe", 4, 4, "192M"), ("team+pipe+wide", 3, 4, "256M"),
    ("mix+meet", 2, 4, "192M"), ("mix+table", 2, 3, "192M"),
]


@pytest.mark.parametrize("free", ["waits", "at_once"])
@pytest.mark.parametrize("mode, workers, streams, memory", LITTLE)
def test_little_memory(mode, workers, streams, memory, free):
    """Memory goes back to the driver all the time, and its own free is not relied upon to wait."""
    for _ in range(TURNS if LONG else 2):
        result = program(fresh(), 600 if SANITIZER else 6000, mode, workers, streams, preload=LIBRARY, SIMCUDA_FREE=free,
                         SIMCUDA_MEM=memory, CACHEALLOC_LOG="off")
        if result[0] != 2 or not re.fullmatch(r"[^\n]*: 2\n", result[1]):  # the program ends where it cannot do without memory
            sound(result)


def test_two_at_the_end_of_the_memory():
    """Each asked for the other's marks, and took that for a change: rounds without end (a million searches)."""
    sound(program(997568778, 6000, "mix+meet", 2, 4, preload=LIBRARY, SIMCUDA_CLOCK="manual", SIMCUDA_MEM="256M",
                  CACHEALLOC_LOG="off", timeout=120))


def test_a_million_operations_were_done():
    if len(operations_done) < len(RUNS) or SANITIZER:
        pytest.skip("not all of the tests above ran and passed")
    print(f"{sum(operations_done)} operations")
    assert sum(operations_done) >= (10_000_000 if LONG else 1_000_000)


# -------------------------------------------------------------------------- its mutants ---

# What catches it: mode, workers, streams, jitter, configuration. All on the manual clock, so that speed plays no part.
CATCHERS = {
    "STAMP_BEFORE_CALL": ("team+pipe+wide", 3, 4, 20, "reuse_slack_mb:0"),
    "SEEN_BEFORE_WAIT": ("team+pipe+wide", 3, 4, 20, "reuse_slack_mb:0"),
    "SNAPSHOT_UNCHECKED": ("case:t3_recorded_anew_while_others_wait", 3, 3, 40, "reuse_slack_mb:0"),
    "INHERITED_DROPPED": ("pipe+solo+wide", 1, 4, 0, "reuse_slack_mb:0"),
    "DTOD_IS_FINISH": ("pipe+solo+wide", 1, 4, 0, "reuse_slack_mb:0"),
    "MARK_AT_GUARD": ("pipe+solo+wide+meet", 1, 4, 0, "reuse_slack_mb:0"),
    "GUARD_OFF_IN_CAPTURE": ("solo+wide", 1, 7, 0, "reuse_slack_mb:0"),
    "PDL_KEPT": ("pipe+solo+quiet", 1, 1, 0, "reuse_slack_mb:0"),
    "PER_THREAD_MARK": ("mix", 3, 1, 0, "reuse_slack_mb:0"),
    "LEGACY_IN_FRONT": ("case:t11_before_a_legacy_kernel_that_waits", 3, 3, 0, "reuse_slack_mb:0"),
    "STALE_HANDLE": ("pipe+solo+wide", 1, 4, 0, "reuse_slack_mb:0"),
    "BLOCK_BEFORE_MARK": ("pipe", 3, 3, 0, "reuse_slack_mb:0"),
    "GUARD_OFF": ("pipe+solo+wide", 1, 4, 0, "reuse_slack_mb:0"),
    "REUSE_AT_ONCE": ("pipe+solo+wide", 1, 4, 0, "reuse_slack_mb:0"),
    "OLD_ORDER_COUNTS": ("pipe+solo+wide", 1, 4, 0, "reuse_slack_mb:0"),
    "OLD_STAMP_STANDS": ("several", 1, 3, 0, "reuse_slack_mb:0"),
    "ONE_USER_UNGUARDED": ("several", 1, 3, 0, "reuse_slack_mb:0"),
    "OWN_CONTEXT_ONLY": ("pipe+wide+cross", 1, 3, 0, ""),
    "SNAPSHOT_AFTER_QUERY": ("case:t3_recorded_anew_while_others_ask", 3, 3, 40, "reuse_slack_mb:0"),
    "SNAPSHOT_AFTER_WAIT": ("case:t3_recorded_anew_while_others_wait", 3, 3, 40, "reuse_slack_mb:0"),
    "KEPT_UNFINISHED": ("pipe+solo+wide", 1, 4, 0, "reuse_slack_mb:0"),
    "KEPT_OF_SEVERAL": ("pipe+solo+wide", 1, 4, 0, "reuse_slack_mb:0"),
    "KEPT_LEFT_OUT": ("case:t10_memory_that_two_threads_read", 3, 3, 0, "reuse_slack_mb:0"),
    "ATTENTION_IGNORED": ("case:t12_private_table_submits_after_a_warm_up", 1, 2, 5, "reuse_slack_mb:0"),
    "WRONG_SHELF": ("case:t11_contexts_in_turn", 1, 2, 5, "reuse_slack_mb:0"),
    "FAILED_RECORD_TEACHES": ("case:t8_a_query_after_a_record_that_was_refused", 1, 2, 5, "reuse_slack_mb:0"),
    "GREEN_UNSEEN": ("pipe+wide+green", 2, 5, 0, "reuse_slack_mb:0"),
    "BARRIER_TRUSTED": ("case:t9_programmatic_launch_behind_the_legacy_stream", 1, 2, 0, "reuse_slack_mb:0"),
    "CAPTURE_UNASKED": ("case:t16_scratch_of_a_graph_stays", 1, 2, 0, ""),
    "CAPTURED_KEPT": ("case:t16_scratch_of_a_graph_stays", 1, 2, 0, ""),
    "MISS_OF_SEVERAL": ("case:t14_one_of_two_users_is_gone", 1, 2, 0, ""),
    "MISS_UNEXPOSED": ("case:t1_only_stream_then_a_second_one", 1, 2, 0, ""),
    "FOREIGN_UNSTAMPED": ("case:t11_still_read_by_another_context_only", 1, 2, 0, "reuse_slack_mb:0"),
    "MERGED_STAMP_OLD": ("case:t1_merged_neighbours_of_two_frees", 1, 2, 0, "reuse_slack_mb:0"),
    "CAPTURED_RECORD_TEACHES": ("case:t8_recorded_in_a_capture_that_forks", 1, 3, 5, "reuse_slack_mb:0"),
}
#: caught where a card gets at the memory, in tests/process/register; where the host pauses, in tests/process/order; where
#: frees name their stream, in tests/process/told; where memory is mapped, in test_expandable.py and test_moves.py there
CAUGHT_ELSEWHERE = {"SETTLE_SKIPPED", "REGISTRATION_LOST", "OLDER_FORGOTTEN", "PAUSE_UNSEEN", "ASSUMPTIONS_UNPROBED",
                    "PINNED_AT_ONCE", "PINNED_ONE_CONTEXT", "TOLD_ANY_STREAM", "TOLD_FOLLOWS_ANY", "TOLD_MARK_EARLY",
                    "TOLD_WAIT_SKIPPED", "TOLD_BIRTH_UNORDERED", "TOLD_LEGACY_ALONE", "TOLD_NO_OPERATION", "TOLD_KEPT_FREE",
                    "TOLD_HOST_FREE", "EXTENT_UNMAPPED_EARLY", "HELD_UNMAPPED", "HANDLE_CUT", "EXTENT_LEFT_EARLY",
                    "EXTENT_USER_LOST", "EXTENT_HAND_IGNORED", "EXTENT_ADDRESSES_GONE", "EXTENT_GROWS_DEAD",
                    "EXTENT_UNMAPPED_ONCE", "DEAD_WITH_BLOCKS", "TAKING_UNCOUNTED", "LEFT_UNCOUNTED"}
MUTANT_OPERATIONS = 200_000
HANGS = ("MARK_AT_GUARD", "LEGACY_IN_FRONT")  # a wait for what waits for us
#: two to six seconds a seed (the others: half a second), a tenth of what the whole suite took
SLOW = (*HANGS, "SEEN_BEFORE_WAIT", "STAMP_BEFORE_CALL")
SIGABRT = -6


def names_of_mutants():
    header = (ROOT / "config" / "mutant.h").read_text(encoding="utf-8")
    return re.findall(r"X\(([A-Z_]+)\)", header)


def test_every_mutant_has_a_catcher():
    assert set(names_of_mutants()) == set(CATCHERS) | CAUGHT_ELSEWHERE | set(test_leases.MUTANTS)


def caught(status, stderr, mutant):
    """By the race oracle, wrong contents, or a deadlock; nothing else will do."""
    if status == SIGABRT:
        return "simcuda: race" in stderr or (mutant in HANGS and "simcuda: deadlock" in stderr)
    return status == 1


def catch(seed, mode, workers, streams, jitter, conf, mutant):
    """(caught, operations): MUTANT_OPERATIONS at most, in runs of the programs that the seed and the turn make. A run that
    has come to where nothing unfinished is handed out any more would go on in vain, and so would a program that lacks
    what the mutant needs."""
    hangs = mutant in HANGS
    operations = 0
    for turn in range(TURNS):
        try:
            status, stderr, done = program(
                seed + (turn << 32), MUTANT_OPERATIONS // TURNS, mode, workers, streams, preload=MUTANTS, conf=conf,
                jitter=jitter and f"{jitter}:{seed + turn}", timeout=20 if hangs else 60, SIMCUDA_CLOCK="manual", SIMCUDA_DEADLOCK=2000,
                CACHEALLOC_TEST_MUTANT=mutant)
        except subprocess.TimeoutExpired:
            return hangs, operations
        operations += done
        if caught(status, stderr, mutant):
            return True, operations
    return False, operations


@pytest.mark.parametrize("mutant", CATCHERS)
def test_mutant_is_caught(mutant):
    """With each of five seeds, and of five that are new each time; with two of both where it takes long."""
    if SANITIZER:
        pytest.skip(f"proves the programs, not the library; not repeated under {SANITIZER}")
    mode, workers, streams, jitter, conf = CATCHERS[mutant]
    needed = []
    each = 2 if mutant in SLOW and not LONG else 5
    for seed in [*SYSTEM.sample(range(1, 6), each), *(SYSTEM.randrange(1 << 32) for _ in range(each))]:
        found, operations = catch(seed, mode, workers, streams, jitter, conf, mutant)
        assert found, f"mutant {mutant} not caught, seed {seed}, {operations} operations"
        needed.append(operations)
    print(f"{mutant}: median {sorted(needed)[each]}, at most {max(needed)} operations")


@pytest.mark.parametrize("mode, workers, streams, jitter, conf", sorted(set(CATCHERS.values())))
def test_no_mutant_no_catch(mode, workers, streams, jitter, conf):
    """The same object without a mistake passes the same programs."""
    if "cross" in mode or "meet" in mode or SANITIZER:
        pytest.skip("see test_meet and test_cross" if not SANITIZER else f"not repeated under {SANITIZER}")
    sound(program(fresh(), 20000, mode, workers, streams, preload=MUTANTS, conf=conf, jitter=jitter,
                  SIMCUDA_CLOCK="manual"))


# ------------------------------------------------------- what must neither hang nor fault ---

@pytest.mark.parametrize("clock", ["real", "manual"])
@pytest.mark.parametrize("conf", ["", "reuse_slack_mb:0"])
@pytest.mark.parametrize("mode, workers", [("mix+meet", 1), ("pipe+solo+wide+meet", 3), ("team+meet", 3),
                                           ("mix+green+meet", 3)])
def test_meet(mode, workers, conf, clock):
    """Kernels that wait for kernels submitted later: never a hang that there is not natively."""
    sound(program(fresh(), 10000, mode, workers, 4, preload=LIBRARY, conf=conf, SIMCUDA_CLOCK=clock,
                  SIMCUDA_DEADLOCK=10000))


@pytest.mark.parametrize("clock", ["real", "manual"])
@pytest.mark.parametrize("mode, workers", [("mix+cross", 1), ("pipe+wide+cross", 3)])
def test_cross(mode, workers, clock):
    """Copies of another context keep a freed block from its next life, and its memory from the driver."""
    sound(program(fresh(), 10000, mode, workers, 3, preload=LIBRARY, SIMCUDA_CLOCK=clock))
