# SPDX-License-Identifier: MIT
"""Random programs of stream-ordered and synchronous memory (async/program.c) natively and with the library, under each word
that `async` accepts, judged by contents, by the race oracle and by what pools say is used.

CACHEALLOC_TEST_SEED=N runs that seed instead of the fixed and the fresh one; CACHEALLOC_TEST_LONG=1 runs a million
operations in all (some 1,500 a second), a tenth of them under a sanitizer.
"""

import json
import os
import random
import re

import pytest

from conftest import BUILD, LIBRARY, ROOT, async_words, run

STRESS = BUILD / "tests" / "stress"
SHAPES = [(1, 1, 1), (4, 1, 1), (4, 2, 1), (9, 3, 1), (6, 3, 2)]  # streams, threads, devices
CLOCKS = ["real", "manual:16"]  # at the end of the memory the library polls, and the device has to go on
SANITIZER = os.environ.get("CACHEALLOC_TEST_SANITIZER")
LONG = bool(os.environ.get("CACHEALLOC_TEST_LONG"))
#: an operation of the library may have had a byte of the driver's pool (docs/limits.md)
FIGURES = {"driver": "near", "keep": "near", "pool": "exact"}
FRESH = random.SystemRandom().randrange(1 << 32)
QUICK_EVERY = 4  # conftest.py
NOT_ALWAYS = {"ooms", "wrong_words"}


def seeds():
    if "CACHEALLOC_TEST_SEED" in os.environ:
        return [int(os.environ["CACHEALLOC_TEST_SEED"])]
    return [FRESH] if SANITIZER else [1, FRESH]


def program(seed, shape, operations=500, preload=True, races="abort", timeout=120, **env):
    streams, threads, devices = shape
    argv = [STRESS / "async_program", seed, operations, streams, threads, devices]
    env = {"SIMCUDA_RACES": races, "SIMCUDA_DEVICES": devices, "SIMCUDA_MEM": "512M", "SIMCUDA_DEADLOCK": 60000,
           "CACHEALLOC_LOG": "error", **env}  # out of memory is a warning
    print(*argv, f"preload={preload}", *(f"{k}={v}" for k, v in env.items()))
    return run(argv, preload=preload, timeout=timeout, **env)


def sound(done):
    """What the program did, by its own count."""
    assert done.returncode == 0, (done.returncode, done.args, done.stdout[-2000:], done.stderr[-2000:])
    assert done.stderr == ""
    return json.loads(done.stdout)


def proves_the_program():
    if SANITIZER:
        pytest.skip(f"proves the program, not the library; not repeated under {SANITIZER}")


@pytest.fixture(name="library")
def _library():
    assert LIBRARY.is_file(), f"{LIBRARY} is not built"


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", seeds())
def test_native(seed, shape, clock):
    """No race by itself, and on the simulator's pools: what the tests below find is the library's."""
    proves_the_program()
    sound(program(seed, shape, preload=False, SIMCUDA_CLOCK=clock))


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("word", async_words())
def test_preload(word, shape, clock, library):
    if SANITIZER and word == "driver":
        pytest.skip(f"the library does nothing of its own; not repeated under {SANITIZER}")
    for seed in seeds()[-1:] if word == "driver" else seeds():
        sound(program(seed, shape, SIMCUDA_CLOCK=clock, ASYNC_FIGURES=FIGURES[word],
                      CACHEALLOC_CONF=f"async:{word}"))


#: on the manual clock an allocation would wait for frees of other threads, which nothing completes, for 10 s
PRESSURE = [
    ((4, 1, 1), "manual:16", "128M", "reuse_slack_mb:0"), ((9, 1, 1), "manual:16", "160M", "reuse:finished"),
    ((4, 2, 1), "real", "96M", "reuse_slack_mb:0"), ((9, 3, 1), "real", "96M", "reuse:finished"),
    ((6, 3, 2), "real", "160M", "reuse_slack_mb:0"), ((4, 2, 1), "real", "128M", "free_sync:host"),
]


@pytest.mark.parametrize("shape, clock, memory, conf", PRESSURE)
@pytest.mark.parametrize("word", [word for word in async_words() if word != "driver"])
def test_pressure(word, shape, clock, memory, conf, library):
    """Little memory, and the words under which memory is handed out otherwise."""
    sound(program(FRESH, shape, SIMCUDA_CLOCK=clock, SIMCUDA_MEM=memory, ASYNC_FIGURES=FIGURES[word],
                  CACHEALLOC_CONF=f"async:{word},{conf}"))


@pytest.mark.parametrize("word", async_words())
def test_a_byte_of_the_pool(word, library):
    """Of the seed that had one: the most that a pool says was used is at most one step of 512 bytes more."""
    sound(program(3546684617, (4, 1, 1), SIMCUDA_CLOCK="manual:16", ASYNC_FIGURES=FIGURES[word], CACHEALLOC_CONF=f"async:{word}"))


@pytest.mark.parametrize("word", ["native", *async_words()])
def test_interesting_things_happen(word, library):
    """Else the tests above would prove nothing."""
    env = {} if word == "native" else {"CACHEALLOC_CONF": f"async:{word}", "ASYNC_FIGURES": FIGURES[word]}
    done = [sound(program(1, shape, 1500, preload=word != "native", SIMCUDA_CLOCK="manual:16", **env))
            for shape in [(4, 1, 1), (6, 3, 2)]]
    missing = {name for name in done[0] if not sum(counts[name] for counts in done)} - NOT_ALWAYS
    assert not missing, done
    assert done[0]["used_compared"] and done[1]["moved_to_other_device"]


# ------------------------------------------------------------------ the program itself ---

@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("shape", SHAPES[1:])
def test_reuse_at_once_is_caught(shape, clock):
    """Told memory that goes to another stream at once (async/wrong_pool.c): by the oracle, on several shapes."""
    proves_the_program()
    wrong = STRESS / "libtold_at_once.so"
    caught = [seed for seed in range(1, 7)
              if "simcuda: race" in program(seed, shape, 1000, preload=False, LD_PRELOAD=wrong, SIMCUDA_CLOCK=clock,
                                   ASYNC_FIGURES="off").stderr]
    assert len(caught) >= 2, caught


def test_reuse_at_once_shows_in_the_contents():
    """Without the oracle; on the manual clock, so that speed plays no part."""
    proves_the_program()
    wrong = STRESS / "libtold_at_once.so"
    codes = [program(seed, (9, 1, 1), 1000, preload=False, races="off", LD_PRELOAD=wrong, SIMCUDA_CLOCK="manual:16",
                     ASYNC_FIGURES="off").returncode for seed in range(1, 7)]
    assert 1 in codes and set(codes) <= {0, 1}, codes


def test_memory_runs_out():
    """Natively, in some run of twenty (of single ones a third had enough): where the tests of pressure have it, the library
    finds some more."""
    proves_the_program()
    assert any(sound(program(seed, (4, 2, 1), 1000, preload=False, SIMCUDA_CLOCK="manual:16", SIMCUDA_MEM="96M"))["ooms"]
               for seed in range(1, 21))


def test_wrong_figures_are_caught():
    proves_the_program()
    done = program(1, (4, 1, 1), 1000, preload=False, races="off", LD_PRELOAD=STRESS / "libtold_at_once.so",
                   SIMCUDA_CLOCK="manual:16")
    assert done.returncode == 1 and "attribute 7 of pool" in done.stderr, done.stderr


# ------------------------------------------------------------------ the library's mutants ---

#: of stream-ordered memory that the library serves; no correct program can tell that TOLD_HOST_FREE is one, and these programs
#: have no order that is passed on by a free alone (tests/process/told has)
TOLD = [name for name in re.findall(r"X\((TOLD_\w+)\)", (ROOT / "config" / "mutant.h").read_text())
        if name not in ("TOLD_HOST_FREE", "TOLD_NO_OPERATION")]
#: memory, clock, shape; the wait that INTERNAL inserts is for a device without memory
CATCHING = [("512M", "manual:16", (4, 1, 1)), ("512M", "real", (9, 3, 1)), ("96M", "real", (4, 2, 1)), ("512M", "manual:16", (2, 1, 1))]


@pytest.mark.parametrize("mutant", TOLD)
def test_mutant_is_caught(mutant):
    """By the oracle or the contents, within 40 runs."""
    proves_the_program()
    for seed in range(1, 11):
        for memory, clock, shape in CATCHING:
            done = program(seed, shape, 1000, preload=False, LD_PRELOAD=STRESS / "libcachealloc_mutants.so",
                           CACHEALLOC_TEST_MUTANT=mutant, SIMCUDA_MEM=memory, SIMCUDA_CLOCK=clock, CACHEALLOC_CONF="async:pool")
            if "simcuda: race" in done.stderr or "wrong" in done.stderr:
                return
    pytest.fail(f"{mutant} not caught")


# -------------------------------------------------------------------------------- long ---

@pytest.mark.skipif(not LONG, reason="CACHEALLOC_TEST_LONG=1")
@pytest.mark.parametrize("word", ["native", *async_words()])
def test_many_operations(word, library):
    env = {} if word == "native" else {"CACHEALLOC_CONF": f"async:{word},reuse_slack_mb:0", "ASYNC_FIGURES": FIGURES[word]}
    turn = [(shape, clock, memory) for shape in SHAPES for clock in CLOCKS for memory in ("512M", "128M")
            if memory == "512M" or clock == "real" or shape[1] == 1]
    total, count = 0, 1_000 if SANITIZER else 10_000
    for number in range(25):
        shape, clock, memory = turn[number % len(turn)]
        seed = random.SystemRandom().randrange(1 << 32)
        jitter = {"SIMCUDA_JITTER": f"5:{seed}"} if number % 3 == 0 else {}
        done = program(seed, shape, count, preload=word != "native", timeout=600, SIMCUDA_CLOCK=clock, SIMCUDA_MEM=memory,
                       **env, **jitter)
        lines = [line for line in done.stderr.splitlines() if "SIMCUDA_JITTER=" not in line]
        assert (done.returncode, lines) == (0, []), (done.returncode, done.args, done.stderr[-2000:])
        total += json.loads(done.stdout)["operations"]
    print(f"{word}: {total} operations")
