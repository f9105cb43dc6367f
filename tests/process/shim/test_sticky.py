# SPDX-License-Identifier: MIT
"""A kernel has faulted: with free_sync:host the program sees native codes throughout; without, from all calls but a
cached allocation or free; and nothing hangs, polls for ever, or says a word."""

import json
import subprocess

import pytest

from conftest import BUILD, clean_env, run

QUICK_EVERY = 4  # conftest.py
PROGRAM = BUILD / "tests" / "process" / "shim" / "cases_sticky"
KNOBS = {"at_the_end_of_memory": {"SIMCUDA_MEM": "64M"}, "ends_that_are_told": {"SIMCUDA_ENDS": "told"}}
SETTINGS = ["", "reuse_slack_mb:0", "reuse:finished", "trim_every:3", "max_cached_mb:4", "give_back:oom", "oom_retry_ms:20"]
CLOCKS = {"real": {}, "manual": {"SIMCUDA_CLOCK": "manual"}}


def cases():
    listed = subprocess.run([str(PROGRAM), "--list"], env=clean_env(), capture_output=True, text=True)
    return listed.stdout.split() or ["(no build)"]


def go(case, preload, **env):
    return run([PROGRAM, case], preload=preload, check=0, SIMCUDA_RACES="abort", **KNOBS.get(case, {}), **env)


def same(case, **env):
    """Exits 0, prints what it prints natively, and nothing else."""
    simulator = {name: value for name, value in env.items() if name.startswith(("SIMCUDA_", "SHOW_"))}
    native, ours = go(case, False, **simulator), go(case, True, **env)
    assert not native.stderr and (ours.stdout, ours.stderr) == (native.stdout, "")
    return native.stdout


@pytest.mark.parametrize("case", cases())
@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("more", ["", ",reuse:finished", ",reuse_slack_mb:0", ",trim_every:3"])
def test_native_codes_where_a_free_is_a_barrier(case, clock, more):
    shown = same(case, SHOW_MEMORY="1", CACHEALLOC_CONF=f"free_sync:host{more}", **CLOCKS[clock])
    assert "= 719" in shown or case in ("nobody_asks", "told_once")


@pytest.mark.parametrize("case", cases())
@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_other_calls_answer_as_natively(case, clock, setting):
    same(case, CACHEALLOC_CONF=setting, **CLOCKS[clock])


@pytest.mark.parametrize("case", cases())
@pytest.mark.parametrize("setting", ["zero:1", "poison:1", "poison:1,expandable_segments:True"])
def test_fills_end(case, setting):
    same(case, CACHEALLOC_CONF=setting)


@pytest.mark.parametrize("case", cases())
@pytest.mark.parametrize("disable", ["1", "count"])
def test_disabled(case, disable):
    same(case, SHOW_MEMORY="1", CACHEALLOC_DISABLE=disable)


@pytest.mark.parametrize("case", cases())
def test_what_is_written_at_exit(tmp_path, case):
    go(case, True, CACHEALLOC_STATS=tmp_path / "stats.json", CACHEALLOC_TRACE=tmp_path / "app.trace")
    assert json.loads((tmp_path / "stats.json").read_text())["devices"][0]["alloc_calls"] > 0
    assert (tmp_path / "app.trace").stat().st_size > 0


@pytest.mark.parametrize("case", ["in_the_midst", "in_the_midst_of_threads"])
@pytest.mark.parametrize("setting", ["", "free_sync:host", "reuse_slack_mb:0", "reuse:finished"])
def test_nothing_is_asked_for_ever(tmp_path, case, setting):
    """At most some driver calls an allocation and free, of which the programs make 4,500 and 8,000."""
    stats = tmp_path / "sim.json"
    go(case, True, CACHEALLOC_CONF=setting, SIMCUDA_STATS=stats)
    assert sum(json.loads(stats.read_text())["calls"].values()) < 12 * 8000


@pytest.mark.parametrize("call", ["cuStreamQuery:1", "cuStreamQuery:3", "cuStreamCreate:1", "cuCtxSynchronize:1", "cuCtxSynchronize:2"])
def test_an_error_that_is_told_once_is_told(call):
    """Not every error stays: the driver may answer one once only, and what it answers us it will not answer the program."""
    done = go("told_once", True, SHOW_MEMORY="1", CACHEALLOC_CONF="free_sync:host", SIMCUDA_FAIL=f"{call}:719")
    assert done.stdout.count("= 719") == 1 and not done.stderr, done.stdout


@pytest.mark.parametrize("call", ["cuStreamQuery:1:600", "cuStreamQuery:1:900", "cuStreamQuery:1:400", "cuStreamCreate:1:2", "cuStreamCreate:1:800"])
def test_what_is_no_error_of_the_work_before_is_not_told(call):
    done = go("told_once", True, SHOW_MEMORY="1", CACHEALLOC_CONF="free_sync:host", SIMCUDA_FAIL=call)
    assert done.stdout.count("= 0") == 9 and not done.stderr, done.stdout
