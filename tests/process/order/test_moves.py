# SPDX-License-Identifier: MIT
"""Free memory of extents moves while earlier work may use it: under the race oracle, to which two mappings of a page are the same
bytes and an unmapping is a write of the addresses by the host; and the mutants of it. tests/unit/allocator/block/test_move.c has
the rest.
"""

import json
import os
import random
import zlib

import pytest

from conftest import BUILD, LIBRARY, MUTANTS, run

QUICK_EVERY = 4  # conftest.py
PROGRAM = BUILD / "tests" / "process" / "order" / "order_moves"
CONF = "expandable_segments:True,expandable_slack_percent:0"
SANITIZER = os.environ.get("CACHEALLOC_TEST_SANITIZER")
CASES = ["one_stream", "its_own_of_two", "another_stream"]
ALIAS, UNMAP = "cuMemRetainAllocationHandle", "cuMemUnmap"


def go(case, stats, conf=CONF, clock="manual:16", preload=LIBRARY, **env):
    stats.unlink(missing_ok=True)
    done = run([PROGRAM, case], preload=False, LD_PRELOAD=preload, SIMCUDA_RACES="abort", SIMCUDA_STATS=stats, SIMCUDA_DEADLOCK=60000,
               SIMCUDA_DEVICES=1, SIMCUDA_CLOCK=clock, CACHEALLOC_CONF=conf, CACHEALLOC_LOG="off", timeout=300, **env)
    return done, json.loads(stats.read_text()) if stats.is_file() and stats.stat().st_size else {}


def right(done):
    assert "race on" not in done.stderr and "deadlock" not in done.stderr, done.stderr[-3000:]
    assert done.returncode == 0, (done.returncode, done.stderr[-3000:])


def seed_of(*case):
    if "CACHEALLOC_TEST_LONG" in os.environ:
        case += (random.SystemRandom().random(),)
    return int(os.environ.get("CACHEALLOC_TEST_SEED", zlib.crc32(repr(case).encode())))


@pytest.mark.parametrize("clock", ["manual", "manual:16", "real"])
@pytest.mark.parametrize("case", CASES)
def test_what_is_free_in_two_places_serves_one_request(tmp_path, case, clock):
    done, said = go(case, tmp_path / "sim.json", clock=clock)
    right(done)
    assert said["calls"].get(ALIAS, 0) >= 3 or clock == "real"  # where the work may be over before more is asked for


def test_below_the_slack_nothing_moves(tmp_path):
    done, said = go("one_stream", tmp_path / "sim.json", conf="expandable_segments:True,expandable_slack_percent:100")
    right(done)
    assert ALIAS not in said["calls"]


@pytest.mark.parametrize("conf", [CONF + ",give_back:oom", "expandable_segments:False"])
def test_nothing_moves_where_it_is_not_wanted(tmp_path, conf):
    done, said = go("one_stream", tmp_path / "sim.json", conf=conf)
    right(done)
    assert ALIAS not in said["calls"]


def test_finished_only(tmp_path):
    """Nothing unfinished moves: the old addresses go at once."""
    done, said = go("one_stream", tmp_path / "sim.json", conf=CONF + ",reuse:finished", clock="manual")
    right(done)
    assert said["calls"].get(ALIAS, 0) <= said["calls"][UNMAP]


@pytest.mark.parametrize("memory", ["4G", "192M"])
@pytest.mark.parametrize("clock", ["manual:16", "manual", "real"])
@pytest.mark.parametrize("streams", [1, 2, 3])
def test_random(tmp_path, streams, clock, memory):
    seed = seed_of(streams, clock, memory)
    print("ORDER_SEED", seed)
    done, said = go("random", tmp_path / "sim.json", clock=clock, ORDER_SEED=seed, ORDER_STREAMS=streams,
                    ORDER_OPERATIONS=200 if SANITIZER or clock == "real" else 1000, SIMCUDA_MEM=memory)
    right(done)
    assert said["races"] == 0 and (memory != "4G" or said["calls"].get(ALIAS, 0) > 0)


@pytest.mark.skipif(SANITIZER is not None, reason="a child has the sanitizer's locks as other threads held them")
@pytest.mark.parametrize("clock", ["manual:16", "real"])
def test_a_child_is_forked_in_the_middle_of_moves(tmp_path, clock):
    """It does not wait for what another thread of its parent had in hand, and its parent goes on."""
    seed = seed_of(clock)
    print("ORDER_SEED", seed)
    done, said = go("forks", tmp_path / "sim.json", clock=clock, ORDER_SEED=seed, ORDER_STREAMS=2, ORDER_OPERATIONS=400,
                    SIMCUDA_LATENCY="cuMemMap:50us,cuMemUnmap:50us")
    right(done)
    assert said["races"] == 0 and said["calls"].get(ALIAS, 0) > 0


@pytest.mark.parametrize("name", ["cuMemRetainAllocationHandle", "cuMemMap", "cuMemSetAccess", "cuMemRelease", "cuMemUnmap", "cuMemCreate"])
def test_nth_call_fails(tmp_path, name):
    for streams in (1, 3):
        for code in (999, 2):
            for n in (*range(1, 12), *range(12, 200, 11)):
                done, said = go("random", tmp_path / "sim.json", ORDER_SEED=seed_of(name), ORDER_STREAMS=streams, ORDER_OPERATIONS=200,
                                SIMCUDA_FAIL=f"{name}:{n}:{code}")
                right(done)
                if not said["injected"]:
                    break


VMM = ["cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemRelease", "cuMemRetainAllocationHandle", "cuMemUnmap",
       "cuMemAddressFree"]


@pytest.mark.parametrize("streams", [1, 2])
@pytest.mark.parametrize("name", VMM)
def test_calls_fail_at_the_end_of_the_memory(tmp_path, name, streams):
    """Where growth, moves and what goes back to the driver follow each other: once, for good, and as what is not supported. The
    driver's answer may be out of memory."""
    for code in (999, 2, 801):
        for n in ("1+", "4+", "30+", 1, 2, 3, 4, 6, 9, 14, 22, 35, 56, 90, 145):
            done, said = go("random", tmp_path / "sim.json", ORDER_SEED=seed_of(name, streams), ORDER_STREAMS=streams, ORDER_OPERATIONS=200,
                            SIMCUDA_MEM="192M", SIMCUDA_FAIL=f"{name}:{n}:{code}")
            assert "race on" not in done.stderr and "deadlock" not in done.stderr, (n, code, done.stderr[-3000:])
            assert done.returncode == 0 or done.stderr.endswith("= 2\n") and "not so" not in done.stderr, (n, code, done.stderr[-3000:])
            if not said.get("injected", 1) and isinstance(n, int):
                break


@pytest.mark.skipif(SANITIZER is not None, reason="proves the programs, not the library")
@pytest.mark.parametrize("mutant, streams", [("EXTENT_LEFT_EARLY", 1), ("EXTENT_LEFT_EARLY", 3), ("EXTENT_USER_LOST", 2), ("PDL_KEPT", 1)])
def test_mutant_is_caught(tmp_path, mutant, streams):
    for seed in range(1, 21):
        done, _ = go("random", tmp_path / "sim.json", preload=MUTANTS, CACHEALLOC_TEST_MUTANT=mutant, ORDER_SEED=seed, ORDER_STREAMS=streams,
                     ORDER_OPERATIONS=1000)
        if "simcuda: race" in done.stderr or done.returncode == 1:
            return
    pytest.fail(f"{mutant} not caught")
