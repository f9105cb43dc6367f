# SPDX-License-Identifier: MIT
"""A model of PyTorch's backend:cudaMallocAsync on the simulator's pools and on ours, under each word that `async` accepts: the
same calls must have the same outcomes, the same used bytes and the same high marks; reserved is what the driver gave (the
program compares it with the simulator's figures at each line).

CACHEALLOC_TEST_SEED=N runs that seed instead of the fixed and the fresh one.
"""

import os
import random
import re

import pytest

from conftest import BUILD, async_words, run

QUICK_EVERY = 4  # conftest.py

PROGRAM = BUILD / "tests" / "process" / "pool_model" / "pool_model"
FRESH = int(os.environ.get("CACHEALLOC_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
#: devices, streams
SHAPES = [(1, 2), (1, 5), (2, 4)]


def play(what, shape, word=None, seed=1, operations=400, retry=False, memory="4G", races="abort", **env):
    devices, streams = shape
    argv = [PROGRAM, what, seed, operations, devices, streams, *(["retry"] if retry else [])]
    env = {"SIMCUDA_DEVICES": devices, "SIMCUDA_MEM": memory, "SIMCUDA_RACES": races, "SIMCUDA_DEADLOCK": 60000,
           "CACHEALLOC_LOG": "error", **({"CACHEALLOC_CONF": f"async:{word}"} if word else {}), **env}
    print(*argv, *(f"{k}={v}" for k, v in env.items()))
    done = run(argv, preload=word is not None, timeout=120, **env)
    assert (done.returncode, done.stderr) == (0, ""), (done.returncode, done.stdout[-500:], done.stderr[-2000:])
    return done.stdout.splitlines()


def same(ours, native):
    for mine, theirs in zip(ours, native):
        assert mine == theirs
    assert len(ours) == len(native)


@pytest.mark.parametrize("clock", ["real", "manual:16"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("word", async_words())
def test_same_as_native(word, shape, clock):
    for seed in (1, FRESH):
        same(play("random", shape, word, seed, SIMCUDA_CLOCK=clock), play("random", shape, None, seed, SIMCUDA_CLOCK=clock))


@pytest.mark.parametrize("clock", ["real", "manual:16"])
@pytest.mark.parametrize("retry", [False, True], ids=["", "retry"])
@pytest.mark.parametrize("word", async_words())
def test_same_at_the_end_of_the_memory(word, retry, clock):
    native = play("short", (1, 2), None, retry=retry, memory="256M", SIMCUDA_CLOCK=clock)
    same(play("short", (1, 2), word, retry=retry, memory="256M", SIMCUDA_CLOCK=clock), native)
    assert sum("OutOfMemoryError" in line for line in native) == 3
    assert any(" grew 0 on" in line for line in native)


def test_everything_is_called():
    """Else the tests above would prove nothing."""
    lines = [line for seed in (1, 2, 3) for line in play("random", (2, 4), None, seed)]
    seen = {re.sub(r"^\d+ (.*) \d+ on \d: (\w+).*", r"\1: \2", line) for line in lines}
    assert seen >= {"before anything: ok", "malloc: ok", "malloc: OutOfMemoryError", "free: ok", "free of nothing: AssertionError",
                    "empty_cache: ok", "fraction: ok", "reset_peaks: ok", "workspace: ok", "malloc in a capture: ok",
                    "free in a capture: ok", "free of a graph's: ok", "a second capture: AssertionError", "capture ends: ok"}
    assert any(re.search(r"deferred [1-9]", line) for line in lines)


def test_wrong_figures_are_caught():
    """By an allocator that reuses what the pool counts as live (tests/stress/async/wrong_pool.c)."""
    wrong = BUILD / "tests" / "stress" / "libtold_at_once.so"
    argv = [PROGRAM, "random", 1, 400, 1, 5]
    done = run(argv, preload=False, SIMCUDA_CLOCK="manual:16", SIMCUDA_MEM="4G", LD_PRELOAD=wrong)
    native = run(argv, preload=False, check=0, SIMCUDA_CLOCK="manual:16", SIMCUDA_MEM="4G")
    assert done.stdout != native.stdout


def test_reserved_bytes_are_compared():
    """With memory that the simulator has given and the pool does not have: what another allocation holds."""
    argv = [PROGRAM, "random", 1, 400, 1, 5]
    done = run(argv, preload=False, SIMCUDA_MEM="4G", SIMCUDA_FAIL="cuMemPoolTrimTo:1+:1")
    assert done.returncode == 1 and "bytes reserved in the end are" in done.stderr
