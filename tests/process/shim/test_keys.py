# SPDX-License-Identifier: MIT
"""Settings as a program meets them: limits, rounding, trims, fills, last resorts; with the race oracle on."""

import json

import pytest

from conftest import BUILD, run

PROGRAM = BUILD / "tests" / "process" / "shim" / "cases_keys"
MIB = 1 << 20


def go(tmp_path, case, conf=None, **env):
    """(our device 0, the simulated driver's calls, stderr)"""
    ours, sim = tmp_path / "ours.json", tmp_path / "sim.json"
    if conf:
        env["CACHEALLOC_CONF"] = conf
    done = run([PROGRAM, case], check=0, CACHEALLOC_STATS=ours, SIMCUDA_STATS=sim, SIMCUDA_RACES="abort",
               SIMCUDA_DEADLOCK="10000", **env)
    return json.loads(ours.read_text())["devices"][0], json.loads(sim.read_text()), done.stderr


def test_a_limit_holds_for_every_call_and_is_what_the_program_sees(tmp_path):
    ours, sim, stderr = go(tmp_path, "limit", CACHEALLOC_LIMIT="100M", SIMCUDA_MEM="1G")
    assert sim["peak_bytes"][0] <= 100 * MIB
    assert "100.00 MiB allowed; " in stderr and "CACHEALLOC_LIMIT allows 100.00 MiB" in stderr


def test_a_limit_may_be_a_share(tmp_path):
    go(tmp_path, "limit", CACHEALLOC_LIMIT="10%", SIMCUDA_MEM="1000M")


def test_a_fraction_caps_what_is_cached_and_handed_out(tmp_path):
    ours, _, _ = go(tmp_path, "steps", "per_process_memory_fraction:0.1", SIMCUDA_MEM="1000M")
    assert ours["ooms"] == 0 and 80 * MIB < ours["reserved_bytes"]["peak"] <= 100 * MIB


@pytest.mark.parametrize("conf", ["max_cached_mb:0", "max_cached_mb:30", "trim_every:10", "trim_idle_ms:1",
                                  "max_cached_mb:0,reuse:finished", "max_cached_mb:20,trim_every:7,trim_idle_ms:2",
                                  "garbage_collection_threshold:0.05,give_back:oom"])
@pytest.mark.parametrize("driver", ["13000", "12040"])
def test_trims_are_safe_and_happen(tmp_path, conf, driver):
    ours, sim, stderr = go(tmp_path, "steps", conf, SIMCUDA_DRIVER_VERSION=driver, SIMCUDA_MEM="1G")
    assert stderr == "" and ours["trims"] > 0
    assert sim["calls"]["cuMemFree_v2"] == ours["driver_free_calls"] >= ours["trims"]


def test_nothing_freed_is_kept_with_a_cap_of_nothing(tmp_path):
    ours, _, _ = go(tmp_path, "steps", "max_cached_mb:0")
    assert ours["reserved_bytes"]["current"] == 0
    # four blocks of at most 22 MiB live at a time, and what one of them was rounded up to
    assert ours["reserved_bytes"]["peak"] <= 92 * MIB


def test_the_reserve_is_kept(tmp_path):
    ours, _, _ = go(tmp_path, "steps", "max_cached_mb:0,min_reserve_mb:40")
    assert 40 * MIB <= ours["reserved_bytes"]["current"] < 64 * MIB


def test_beyond_the_threshold_the_cache_does_not_grow(tmp_path):
    plain, _, _ = go(tmp_path, "steps", "reuse_slack_mb:unlimited,give_back:oom", SIMCUDA_MEM="1000M")
    (tmp_path / "b").mkdir()
    ours, _, _ = go(tmp_path / "b", "steps", "reuse_slack_mb:unlimited,give_back:oom,garbage_collection_threshold:0.05", SIMCUDA_MEM="1000M")
    assert ours["trims"] > 0 == plain["trims"]


def test_idle_memory_goes_back_in_a_call_that_is_due(tmp_path):
    ours, _, _ = go(tmp_path, "idle", "trim_idle_ms:20")
    assert ours["trims"] == 1 and ours["reserved_bytes"]["current"] == 2 * MIB


@pytest.mark.parametrize("conf", ["max_cached_mb:0", "trim_every:1", "trim_idle_ms:1", "garbage_collection_threshold:0.001"])
def test_no_trim_waits_where_the_driver_would_not(tmp_path, conf):
    go(tmp_path, "trim_does_not_wait", conf)


@pytest.mark.parametrize("case, conf", [("zeroed", "zero:True"), ("poisoned", "poison:True"), ("zeroed", "zero:1,poison:1"),
                                        ("use_after_free", "poison:True"), ("zeroed_on_one_stream", "zero:1")])
def test_memory_is_filled_in_order(tmp_path, case, conf):
    ours, _, stderr = go(tmp_path, case, conf)
    assert ours["fills"] > 0 == ours["fills_skipped"] and stderr == ""


def test_nothing_is_filled_while_a_stream_captures(tmp_path):
    ours, _, stderr = go(tmp_path, "fill_in_a_capture", "zero:True,poison:True")
    assert ours["fills"] == 0 and ours["fills_skipped"] == 2 and stderr == ""


def test_a_fill_does_not_wait_for_other_work(tmp_path):
    go(tmp_path, "fill_beside_a_waiting_kernel", "zero:True,poison:True")


def test_managed_memory_instead_of_out_of_memory(tmp_path):
    ours, sim, _ = go(tmp_path, "managed", "oom_fallback:managed", SIMCUDA_MEM="256M", SIMCUDA_FAIL="cuMemAlloc_v2:1+:2")
    assert ours["managed_fallbacks"] == 1 == sim["calls"]["cuMemAllocManaged"]
    assert ours["reserved_bytes"]["current"] == 0


def test_sizes_are_rounded(tmp_path):
    ours, _, _ = go(tmp_path, "one", "roundup_power2_divisions:[64:8,>:1]")
    assert ours["allocated_bytes"]["peak"] == 36 * MIB


def test_the_driver_is_asked_again(tmp_path):
    ours, sim, _ = go(tmp_path, "one", "oom_retry_ms:200", SIMCUDA_FAIL="cuMemAlloc_v2:1:2,cuMemAlloc_v2:2:2,cuMemAlloc_v2:3:2")
    assert ours["ooms"] == 0 and sim["calls"]["cuMemAlloc_v2"] == 4


EVERYTHING = ("max_cached_mb:0,trim_every:3,trim_idle_ms:1,garbage_collection_threshold:0.3,oom_fallback:managed,"
              "roundup_power2_divisions:4,min_reserve_mb:20,per_process_memory_fraction:0.9,oom_retry_ms:5")


@pytest.mark.parametrize("fail", ["cuMemsetD8Async:1:700", "cuMemsetD8Async:2+:2", "cuStreamCreate:2:2", "cuStreamQuery:1:999",
                                  "cuMemGetInfo_v2:1+:999", "cuCtxSynchronize:3:700", "cuMemFree_v2:2:700",
                                  "cuMemAlloc_v2:3:2", "cuEventRecord:1+:700"])
@pytest.mark.parametrize("case, more", [("steps", ""), ("poisoned", ",zero:1,poison:1")])
def test_records_survive_any_failure(case, more, fail):
    done = run([PROGRAM, case], timeout=30, CACHEALLOC_CONF=EVERYTHING + more, CACHEALLOC_LIMIT="80%", SIMCUDA_MEM="300M",
               SIMCUDA_RACES="abort", CACHEALLOC_LOG="debug", SIMCUDA_FAIL=fail)
    assert done.returncode in (0, 1), done.stderr  # 1: the program saw the failure
    assert "every invariant of the records holds" in done.stderr
