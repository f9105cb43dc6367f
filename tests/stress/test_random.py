# SPDX-License-Identifier: MIT
"""Random programs (random_program.c) natively and with our library, judged by their contents and the race oracle.

CACHEALLOC_TEST_SEED=N runs that seed instead of the fixed ones and a fresh one; CACHEALLOC_TEST_LONG=1 runs 100 seeds of
each shape, 20 under a sanitizer.
"""

import concurrent.futures
import json
import os
import random

import pytest

from conftest import BUILD, LIBRARY, run

STRESS = BUILD / "tests" / "stress"
SHAPES = [(1, 1, 1), (2, 1, 1), (4, 2, 1), (9, 3, 1), (6, 3, 2), (3, 2, 2)]  # streams, threads, devices
SANITIZER = os.environ.get("CACHEALLOC_TEST_SANITIZER")
FRESH = random.SystemRandom().randrange(1 << 32)
QUICK_EVERY = 4  # conftest.py


def seeds():
    if "CACHEALLOC_TEST_SEED" in os.environ:
        return [int(os.environ["CACHEALLOC_TEST_SEED"])]
    count = (20 if SANITIZER else 100) if os.environ.get("CACHEALLOC_TEST_LONG") else 2
    return [*range(1, count + 1), FRESH]


def random_program(seed, shape, operations=400, preload=True, races="abort", **env):
    streams, threads, devices = shape
    argv = [STRESS / "random_program", seed, operations, streams, threads, devices]
    env = {"SIMCUDA_RACES": races, "SIMCUDA_DEVICES": devices, "SIMCUDA_MEM": "512M",
           "CACHEALLOC_LOG": "error", **env}  # out of memory is a warning
    if env.get("SIMCUDA_CLOCK") == "manual" and threads > 1:  # beside others the library asks, and the device has to go on
        env["SIMCUDA_CLOCK"] = "manual:64"
    print(*argv, f"preload={preload}", *(f"{k}={v}" for k, v in env.items()))
    return run(argv, preload=preload, timeout=120, **env)


def sound(done):
    assert done.returncode == 0, (done.returncode, done.args, done.stdout[-2000:], done.stderr[-2000:])
    assert done.stderr == ""


@pytest.fixture(name="library")
def _library():
    assert LIBRARY.is_file(), f"{LIBRARY} is not built"


@pytest.fixture(name="beside", scope="module", autouse=True)
def _beside(request):
    """The run of test_other_contexts_do_not_hold_up_out_of_memory, a minute asleep: beside the other tests."""
    if SANITIZER or not any("hold_up_out_of_memory" in item.name for item in request.session.items):
        yield None
        return
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        yield pool.submit(random_program, 84926962, (1, 1, 1), 600, SIMCUDA_CLOCK="manual", SIMCUDA_MEM="326M",
                          CACHEALLOC_CONF="reuse_slack_mb:0")


@pytest.mark.parametrize("clock", ["real", "manual"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", seeds())
def test_native(seed, shape, clock):
    """The program itself has no race: what the tests below find is the library's."""
    if SANITIZER:
        pytest.skip(f"proves the program, not the library; not repeated under {SANITIZER}")
    sound(random_program(seed, shape, preload=False, SIMCUDA_CLOCK=clock))


@pytest.mark.parametrize("clock", ["real", "manual"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", seeds())
def test_preload(seed, shape, clock, library):
    sound(random_program(seed, shape, SIMCUDA_CLOCK=clock))


#: on the manual clock alone an allocation would wait for other threads' work, which nothing completes, for 10 s
@pytest.mark.parametrize("clock, memory, slack", [("real", "96M", 256), ("real", "160M", 0), ("manual:16", "128M", 0)])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", seeds())
def test_pressure(seed, shape, clock, memory, slack, library):
    """Little memory: flushes, waits and out of memory all the time."""
    sound(random_program(seed, shape, SIMCUDA_CLOCK=clock, SIMCUDA_MEM=memory,
                         CACHEALLOC_CONF=f"reuse_slack_mb:{slack}"))


@pytest.mark.parametrize("shape", SHAPES)
def test_cache_is_used(shape, tmp_path, library):
    """Else the tests above would prove nothing."""
    sim, stats = tmp_path / "sim.json", tmp_path / "stats.json"
    sound(random_program(1, shape, 1500, SIMCUDA_STATS=sim, CACHEALLOC_STATS=stats))
    devices = json.loads(stats.read_text())["devices"]
    assert sum(d["cache_hits"] for d in devices) > 0
    assert json.loads(sim.read_text())["calls"]["cuMemAlloc_v2"] < sum(d["alloc_calls"] for d in devices)


# ------------------------------------------------------------------ the program itself ---

def preload_of_ours(name):
    if SANITIZER:
        pytest.skip(f"proves the program, not the library; not repeated under {SANITIZER}")
    return STRESS / f"lib{name}.so"


@pytest.mark.parametrize("clock", ["real", "manual"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", seeds())
def test_order_of_its_own(seed, shape, clock):
    """No race either when frees wait for nothing and no address comes back (wrong_free.c, WRONG_LEAK)."""
    sound(random_program(seed, shape, preload=False, LD_PRELOAD=preload_of_ours("never_free"), SIMCUDA_CLOCK=clock,
                         SIMCUDA_MEM="64G"))


@pytest.mark.parametrize("clock", ["real", "manual"])
@pytest.mark.parametrize("shape", [s for s in SHAPES if s[0] > 1])
def test_reuse_at_once_is_caught(shape, clock):
    """By the oracle, within a few seeds, on every shape with more than one stream."""
    wrong = preload_of_ours("reuse_at_once")
    caught = [seed for seed in range(1, 11)
              if "race" in random_program(seed, shape, preload=False, LD_PRELOAD=wrong, SIMCUDA_CLOCK=clock).stderr]
    assert len(caught) >= 5, caught


def test_reuse_at_once_shows_in_the_contents():
    """Without the oracle; on the manual clock, so that speed plays no part."""
    wrong = preload_of_ours("reuse_at_once")
    codes = [random_program(seed, (9, 1, 1), preload=False, races="off", LD_PRELOAD=wrong,
                            SIMCUDA_CLOCK="manual").returncode for seed in range(1, 11)]
    assert 1 in codes and set(codes) <= {0, 1}, codes


# ------------------------------------------------------------------ the library's mutants ---

def mutant(name):
    return {"LD_PRELOAD": preload_of_ours("cachealloc_mutants"), "CACHEALLOC_TEST_MUTANT": name}


@pytest.mark.parametrize("shape", [(4, 1, 1), (9, 3, 1)])
def test_mutant_that_reuses_at_once_is_caught(shape):
    """Every mark taken for done: races on the manual clock, within ten seeds."""
    caught = [seed for seed in range(1, 11)
              if "race" in random_program(seed, shape, preload=False, SIMCUDA_CLOCK="manual",
                                          **mutant("REUSE_AT_ONCE")).stderr]
    assert len(caught) >= 5, caught


def test_mutant_that_marks_one_context_is_caught():
    """A copy of another context is no race of the random programs (their frees are ordered natively): a case of its own."""
    case = [BUILD / "tests" / "process" / "shim" / "cases_shim", "reuse_waits_for_other_contexts"]
    env = {"SIMCUDA_DEVICES": 2, "SIMCUDA_CLOCK": "manual", "SIMCUDA_RACES": "report"}
    wrong = run(case, preload=False, **mutant("OWN_CONTEXT_ONLY"), **env)
    assert wrong.returncode == 1 or "race" in wrong.stderr
    assert "race" not in run(case, check=0, **env).stderr


def test_no_mutant_is_in_the_library(library):
    """Neither the switch nor its name; the object of the tests has both."""
    shipped, tests = LIBRARY.read_bytes(), preload_of_ours("cachealloc_mutants").read_bytes()
    for word in (b"CACHEALLOC_TEST_MUTANT", b"ca_mutant_chosen"):
        assert word in tests and word not in shipped, word
    for command in json.loads((BUILD / "compile_commands.json").read_text()):
        if "cachealloc_mutants" not in command["output"]:
            assert "CA_MUTANTS" not in command["command"], command["output"]


def test_a_mutant_that_does_not_exist_is_an_error():
    assert random_program(1, (1, 1, 1), 10, preload=False, **mutant("NO_SUCH")).returncode == 2


def test_other_contexts_do_not_hold_up_out_of_memory(beside):
    """Two contexts, of which one does not finish: the ladder once went round for ever."""
    if SANITIZER:
        pytest.skip(f"a minute asleep; one thread, whose rounds are counted without {SANITIZER}")
    sound(beside.result())
