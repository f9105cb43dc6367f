# SPDX-License-Identifier: MIT
"""async:pool, natively and with the library; the race oracle and the contents judge. told_*.c say what the cases do."""

import json

import pytest

from conftest import BUILD, run

QUICK_EVERY = 4  # conftest.py

MUTANTS = BUILD / "tests" / "stress" / "libcachealloc_mutants.so"
PROGRAM = BUILD / "tests" / "process" / "told" / "told_cases"
POOL = "async:pool"
CLOCKS = [{}, {"SIMCUDA_CLOCK": "manual"}, {"SIMCUDA_JITTER": "40:1"}]
ORDER = ["same_stream", "same_stream_pieces", "unordered", "unordered_small", "followed", "followed_too_early", "joined", "opportunistic",
         "behind", "born", "legacy_free", "blocking_free", "legacy_order", "per_thread", "programmatic", "destroyed_stream"]
ROADS = ["host_free", "host_free_used", "wrong_frees", "capture", "capture_free_outside", "context_destroyed", "primary_reset", "two_contexts", "fork_child"]
#: of which the driver sees to something that the library has to: memory, knobs
DRIVER_ORDER = {"taken_in_legacy": {}, "freed_and_taken_in_legacy": {}, "synchronized_blocking": {},
                "guarded_unstamped": {"SIMCUDA_MEM": "72M"}, "unseen_legacy": {"SIMCUDA_FUTURE": "1"}, "unseen_capture": {"SIMCUDA_FUTURE": "1"}}
POOLS = ["attributes", "own_pool", "limited_pool", "trim", "threshold", "pointers", "both_roads", "out_of_memory"]
#: streams that are not tracked, threads that end, calls that are not allowed
MISUSE = ["untracked_free", "many_threads", "threads_end", "codes", "refused_free", "early_threshold", "ended_threads", "no_context",
          "destroyed_context", "early_zero", "refused_at_once", "answered", "destroyed_pool", "filled_pool"]
ENDS = ["reset_device", "reset_working", "released", "destroyed_working", "freed_without", "own_pool_reset", "forked"]
#: where the program can tell that memory is reused before it has finished
EARLY = ["same_stream", "followed", "behind"]
SETTINGS = ["", ",reuse:finished", ",give_back:oom"]


def case(name, conf=POOL, preload=True, **env):
    if conf:
        env["CACHEALLOC_CONF"] = conf
    knobs = {"SIMCUDA_RACES": "abort", "SIMCUDA_DEADLOCK": "20000", "SIMCUDA_MEM": "256M", **env}
    return run([PROGRAM, name], preload=preload, check=0, **knobs)


def calls(tmp_path, name, conf=POOL, preload=True, **env):
    path = tmp_path / "sim.json"
    case(name, conf, preload, SIMCUDA_STATS=path, **env)
    found = json.loads(path.read_text())["calls"]
    return sum(found.get(one, 0) for one in ("cuMemAllocAsync", "cuMemAllocFromPoolAsync"))


@pytest.mark.parametrize("clock", CLOCKS, ids=str)
def test_a_thousand_pairs(tmp_path, clock):
    assert calls(tmp_path, "pairs", **clock) <= 2
    assert calls(tmp_path, "pairs", "async:driver", **clock) == calls(tmp_path, "pairs", None, False, **clock) == 1000


def test_it_is_counted(tmp_path):
    path = tmp_path / "stats.json"
    done = case("pairs", CACHEALLOC_STATS=path)
    device = json.loads(path.read_text())["devices"][0]
    assert (device["async_alloc_calls"], device["async_free_calls"], device["other_alloc_calls"]) == (1000, 1000, 0)
    assert 998 <= device["async_cache_hits"] < 1000
    mib = 1 << 20
    assert device["async_bytes"] == {"current": 0, "peak": 3 * mib, "total": 3000 * mib}
    assert 3 * mib <= device["async_reserved_bytes"]["peak"] <= 40 * mib
    done = case("pairs", CACHEALLOC_STATS=1)
    assert "async   1000 alloc, 1000 free; 99." in done.stderr and "(peak 3.00 MiB)" in done.stderr


def test_what_is_out_at_the_end_is_counted(tmp_path):
    """Freed by the other road, of pools that the program made and destroyed, on a full device."""
    for name in POOLS + ROADS:
        path = tmp_path / f"{name}.json"
        case(name, CACHEALLOC_STATS=path)
        if not path.exists():  # its context is gone, or the child has it
            continue
        device = json.loads(path.read_text())["devices"][0]
        assert device["async_free_calls"] <= device["async_alloc_calls"]
        assert device["async_cache_hits"] <= device["async_alloc_calls"]
        for gauge in ("async_bytes", "async_reserved_bytes"):
            assert 0 <= device[gauge]["current"] <= device[gauge]["peak"] <= device[gauge]["total"], (name, gauge, device[gauge])
        if device["async_free_calls"] == device["async_alloc_calls"]:
            assert device["async_bytes"]["current"] == 0


@pytest.mark.parametrize("clock", CLOCKS, ids=str)
@pytest.mark.parametrize("name", ORDER + ROADS + POOLS)
def test_the_program_sees_what_it_sees_natively(name, clock):
    for warm in ({}, {"TOLD_WARM": "1"}):
        if name == "behind":  # room for one block only
            warm = {**warm, "SIMCUDA_MEM": "72M"}
        natively = case(name, None, False, **clock, **warm).stdout
        for setting in SETTINGS if not clock else SETTINGS[:1]:
            if "finished" not in setting or name not in EARLY:
                assert case(name, POOL + setting, **clock, **warm).stdout == natively


@pytest.mark.parametrize("warm", [{}, {"TOLD_WARM": "1"}], ids=str)
@pytest.mark.parametrize("name", DRIVER_ORDER)
def test_order_that_is_the_drivers(name, warm):
    env = {**DRIVER_ORDER[name], **(warm if "guarded" not in name else {})}
    assert case(name, **env).stdout == case(name, None, False, **env).stdout


@pytest.mark.parametrize("warm", [{}, {"TOLD_WARM": "1"}], ids=str)
@pytest.mark.parametrize("name", MISUSE + ENDS)
def test_the_edges_are_as_natively(name, warm):
    assert case(name, **warm).stdout == case(name, None, False, **warm).stdout


@pytest.mark.parametrize("clock", CLOCKS[:2], ids=str)
def test_a_crowd(clock):
    case("crowd", TOLD_SEED=1, **clock)


def test_threads_that_take_from_each_other():
    case("starved", SIMCUDA_MEM="240M")


@pytest.mark.parametrize("clock", CLOCKS, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_random_programs(seed, clock):
    print("seed", seed)
    for setting in SETTINGS[:2]:
        for name in ("random_one", "random_team"):
            case(name, POOL + setting, TOLD_SEED=seed, TOLD_STEPS=700, SIMCUDA_MEM="1G", **clock)


@pytest.mark.parametrize("mutant, name", [
    ("TOLD_ANY_STREAM", "unordered"), ("TOLD_ANY_STREAM", "unordered_small"), ("TOLD_ANY_STREAM", "random_one"),
    ("TOLD_FOLLOWS_ANY", "followed_too_early"), ("TOLD_FOLLOWS_ANY", "random_one"), ("TOLD_MARK_EARLY", "unordered"),
    ("TOLD_MARK_EARLY", "destroyed_stream"), ("TOLD_WAIT_SKIPPED", "behind"), ("TOLD_BIRTH_UNORDERED", "born"),
    ("TOLD_LEGACY_ALONE", "legacy_free"), ("TOLD_KEPT_FREE", "unordered"), ("TOLD_HOST_FREE", "host_free"), ("REUSE_AT_ONCE", "unordered"), ("PDL_KEPT", "programmatic")])
def test_mistakes_are_seen(mutant, name):
    if not MUTANTS.exists():
        pytest.skip("built without mistakes")
    memory = "72M" if name == "behind" else "1G"
    env = {"SIMCUDA_RACES": "abort", "SIMCUDA_DEADLOCK": "20000", "SIMCUDA_MEM": memory, "CACHEALLOC_CONF": POOL, "LD_PRELOAD": MUTANTS}
    run([PROGRAM, name], preload=False, check=0, **env)
    # where the machine is busy the work may have ended before the mistake matters
    assert any(run([PROGRAM, name], preload=False, CACHEALLOC_TEST_MUTANT=mutant, **env).returncode for _ in range(20))


@pytest.mark.parametrize("env", [{"CACHEALLOC_DISABLE": "1"}, {"CACHEALLOC_DISABLE": "count"}, {"CACHEALLOC_CONF": "async:pool,zero:1"}], ids=str)
def test_where_it_is_off_the_driver_serves(tmp_path, env):
    assert calls(tmp_path, "pairs", env.pop("CACHEALLOC_CONF", POOL), **env) == 1000
