# SPDX-License-Identifier: MIT
"""Exposure forced (config/branch.h): unfinished memory is handed out wherever rule 5 of the order allows it, to whichever
thread asks, so that the guards of three threads and more have something to do. Random programs run so, with the race
oracle, until each branch of the guard has been counted.

What changes under force: other threads' streams and frees stand in nobody's way, the slack counts as used up, and what
is unfinished is preferred to what is not. Programs whose threads' kernels wait for each other could hang so, and are none
of these. CACHEALLOC_TEST_SEED=N runs that seed instead of fresh ones; with CACHEALLOC_TEST_LONG=1 ten million operations.
"""

import json
import re

import pytest

from conftest import ROOT, run
from test_order import LONG, MUTANTS, ORDER, SIGABRT, STRESS, fresh, program, sound

pytestmark = pytest.mark.skipif(not MUTANTS.exists(), reason="built without what counts branches")

# mode, workers, streams, clock, jitter (us)
RUNS = [
    ("mix", 3, 4, "manual", 0), ("mix", 4, 3, "real", 5), ("mix", 3, 4, "manual", 5), ("solo+wide", 3, 3, "manual", 0),
    ("pipe", 4, 4, "manual", 0), ("pipe", 8, 4, "manual", 5), ("pipe+wide", 3, 7, "manual", 5),
    ("pipe+wide", 4, 5, "real", 5), ("team+wide", 3, 4, "manual", 5), ("team+pipe+wide", 4, 4, "manual", 20),
    ("team+storm+pipe+wide", 3, 4, "manual", 5), ("team+wide", 4, 3, "real", 5),
]
#: the rarest branch, memory wanted while something captures: since a thread keeps what a request has no use for, 0 to 15 times in
#: a run of 40,000, by 2 threads in two of four runs, once in eight runs by no more
RARE = {"EXPOSED_IN_CAPTURE": 2}
OPERATIONS = 850_000 if LONG else 40_000
#: streams, threads, devices of random_program; its memory is small enough to come to an end
SHAPES = [(9, 3, 1), (6, 3, 2)]
PROGRAMS = 4
MORE = 60
QUICK_EVERY = 4  # conftest.py
#: what keeps a guard from making the device wait, so that the host does: for the mark, the stream, the context (the first
#: records are those by which the library tries the driver)
BROKEN = ["cuStreamWaitEvent:1+:999", "cuEventRecord:20+:999", "cuEventRecord:20+:999,cuStreamSynchronize:1+:999"]
#: the cases of the rules that come to what no random program does
CASES = [("t10_copies_of_what_many_streams_used", None),
         *(("t10_eight_threads_free_each_others_memory", fail) for fail in BROKEN)]
#: of threads' magazines, and of one thread's work: counted in tests/process/order/test_rules.py
NOT_OF_THE_GUARD = ("QUICK_",)

reached = {}
runs_done = []


def names():
    header = (ROOT / "config" / "branch.h").read_text(encoding="utf-8")
    return [name for name in re.findall(r"X\(([A-Z_]+)\)", header) if not name.startswith(NOT_OF_THE_GUARD)]


def missed():
    """Branches that no three threads of a process have reached, or no two where they are rare."""
    return [name for name in names() if reached.get(name, (0, 0))[1] < RARE.get(name, 3)]


def add_up(counts):
    for line in counts.read_text().splitlines() if counts.exists() else []:
        name, taken, threads = line.split()
        before = reached.get(name, (0, 0))
        reached[name] = (before[0] + int(taken), max(before[1], int(threads)))


@pytest.fixture(name="force")
def _force(tmp_path):
    """The environment of a run; what it reached is added up afterwards."""
    yield {"CACHEALLOC_TEST_BRANCHES": tmp_path / "branches", "CACHEALLOC_TEST_EXPOSE": 1}
    add_up(tmp_path / "branches")


def library(path):
    """As a run under the library, but for what is printed when memory comes to its end."""
    return {"LD_PRELOAD": path, "CACHEALLOC_LOG": "error", "CACHEALLOC_CONF": "reuse_slack_mb:0"}


@pytest.mark.parametrize("mode, workers, streams, clock, jitter", RUNS)
def test_order_program(mode, workers, streams, clock, jitter, force):
    result = program(fresh(), OPERATIONS, mode, workers, streams, preload=MUTANTS, conf="reuse_slack_mb:0", jitter=jitter,
                     timeout=3600 if LONG else 600, SIMCUDA_CLOCK=clock, **force)
    sound(result)
    print(f"{result[2]} operations")
    runs_done.append(mode)


def random_program(seed, shape, clock, **env):
    streams, threads, devices = shape
    clock = "manual:16" if clock == "manual" else clock  # as in test_order.py
    argv = [STRESS / "random_program", seed, 4000, streams, threads, devices]
    print(*argv, clock)
    done = run(argv, preload=False, timeout=300, SIMCUDA_RACES="abort", SIMCUDA_DEVICES=devices, SIMCUDA_CLOCK=clock,
               SIMCUDA_MEM="512M", **library(MUTANTS), **env)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[-2000:]


@pytest.mark.parametrize("clock", ["real", "manual"])
@pytest.mark.parametrize("shape", SHAPES)
def test_random_program(shape, clock, force):
    for seed in (fresh() + n for n in range(PROGRAMS)):
        random_program(seed, shape, clock, **force)
    runs_done.append(shape)


@pytest.mark.parametrize("case, fail", CASES)
def test_case(case, fail, force):
    env = {"SIMCUDA_FAIL": fail} if fail else {}
    for clock in ("real", "manual"):
        done = run([ORDER / "order_rules", case], preload=False, timeout=120, SIMCUDA_RACES="abort", SIMCUDA_CLOCK=clock,
                   SIMCUDA_DEADLOCK=20000, **env, **library(MUTANTS), **force)
        assert done.returncode == 0, done.stderr[-2000:]
        assert "race" not in done.stderr and "deadlock" not in done.stderr
    runs_done.append(case)


def test_each_branch_was_reached(tmp_path):
    """In a process with three threads or more that went anywhere, and itself by three of them (RARE: two). What comes only at the
    end of the memory may want a few programs more."""
    if len(runs_done) < len(RUNS) + 2 * len(SHAPES) + len(CASES):
        pytest.skip("not all of the tests above ran and passed")
    for turn in range(MORE):
        if not missed():
            break
        counts = tmp_path / str(turn)
        random_program(fresh(), SHAPES[turn % 2], "manual", CACHEALLOC_TEST_BRANCHES=counts, CACHEALLOC_TEST_EXPOSE=1)
        add_up(counts)
    for name in names():
        print(name, *reached.get(name, (0, 0)))
    assert not missed()


@pytest.mark.parametrize("mutant", ["GUARD_OFF", "ONE_USER_UNGUARDED", "INHERITED_DROPPED", "STAMP_BEFORE_CALL"])
def test_mutant_is_caught(mutant, force):
    """Else the runs above would prove nothing."""
    for turn in range(5):
        status, stderr, _ = program(
            fresh(), 40_000, "team+pipe+wide", 4, 4, preload=MUTANTS, conf="reuse_slack_mb:0", jitter=20, timeout=120,
            SIMCUDA_CLOCK="manual", CACHEALLOC_TEST_MUTANT=mutant, **force)
        if status == 1 or (status == SIGABRT and "simcuda: race" in stderr):
            return
    pytest.fail(f"{mutant} not caught")


def test_force_exposes_to_several_threads(tmp_path, force):
    """Where hardly anything is exposed without it."""
    exposed = {}
    for name, env in {"forced": force, "usual": {}}.items():
        stats = tmp_path / f"{name}.json"
        random_program(1, SHAPES[0], "manual", CACHEALLOC_STATS=stats, **env)
        exposed[name] = sum(d["taken_exposed"] for d in json.loads(stats.read_text())["devices"])
    print(exposed)
    assert exposed["forced"] > 10 * exposed["usual"], exposed
