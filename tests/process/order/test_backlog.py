# SPDX-License-Identifier: MIT
"""A stream falls far behind, and memory that it uses is freed and wanted again (backlog.c): the cache grows by its slack, and
then somebody waits."""

import json

import pytest

from conftest import BUILD, run

QUICK_EVERY = 4  # conftest.py
PROGRAM = BUILD / "tests" / "process" / "order" / "order_backlog"
MIB = 1 << 20
SLACK = 32
#: Where the thread that wants memory may wait: the slack, what the program has, and a segment that was begun.
WAITING = ["the_oldest_is_of_the_time_of_one_stream", "many_are_of_the_time_of_one_stream",
           "another_thread_has_freed_many_before", "it_merges_with_another_threads"]
#: Where only the free may wait, twice that and 256 MiB more (allocator/policy/grow.c).
FREES = ["each_thread_ends_with_its_free", "each_round_has_a_host_function", "another_context_waits_for_a_lock"]
#: Natively it hangs where a thread is delayed.
HERE_ONLY = "kernels_wait_for_words_of_another_thread"
FREES.append(HERE_ONLY)
LIMITS = {**dict.fromkeys(WAITING, SLACK + 48), **dict.fromkeys(FREES, 2 * (SLACK + 48) + 256)}
#: A thread that asks instead of waiting learns of an end soon.
CLOCKS = {"real": {}, "manual": {"SIMCUDA_CLOCK": "manual:16"}}


def go(case, preload, clock, **env):
    done = run([PROGRAM, case], preload=preload, timeout=60, SIMCUDA_RACES="abort", SIMCUDA_DEADLOCK="20000",
               **CLOCKS[clock], **env)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("case", [case for case in LIMITS if case != HERE_ONLY])
def test_native(case):
    go(case, False, "real")


@pytest.mark.parametrize("conf", ["", "reuse:finished", "free_sync:host"])
@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("case", LIMITS)
def test_the_cache_grows_by_its_slack(tmp_path, case, clock, conf):
    stats = tmp_path / "stats.json"
    go(case, True, clock, CACHEALLOC_STATS=stats,
       CACHEALLOC_CONF=",".join(filter(None, [f"reuse_slack_mb:{SLACK}", conf])))
    device = json.loads(stats.read_text())["devices"][0]
    assert device["reserved_bytes"]["peak"] <= LIMITS[case] * MIB, device["reserved_bytes"]


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_cap_holds_where_a_host_function_is_pending(tmp_path, clock):
    """The free waits, as natively. (What it surrendered without a wait came to 5 GiB.)"""
    stats = tmp_path / "stats.json"
    go("each_round_has_a_host_function", True, clock, CACHEALLOC_STATS=stats, CACHEALLOC_CONF="max_cached_mb:0")
    device = json.loads(stats.read_text())["devices"][0]
    assert device["reserved_bytes"]["peak"] <= 48 * MIB, device["reserved_bytes"]
