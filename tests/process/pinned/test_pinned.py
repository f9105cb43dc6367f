# SPDX-License-Identifier: MIT
"""pinned:cache, natively and with the library; the race oracle and the contents judge. pinned.c and pinned_ends.c say what the cases do."""

import json
import os

import pytest

from conftest import BUILD, MUTANTS, run

QUICK_EVERY = 4  # conftest.py
PROGRAM = BUILD / "tests" / "process" / "pinned" / "pinned_cases"
CACHE = "pinned:cache"
CLOCKS = [{}, {"SIMCUDA_CLOCK": "manual"}, {"SIMCUDA_JITTER": "40:1"}]
USES = ["slow_copy", "kernel", "synchronised_before", "host_function", "graph", "capture_open", "second_context_own",
        "second_context_portable"]
#: natively wrong, or a matter of the library
OURS = ["still_used_by_another_context", "kinds", "nothing_waits"]
SEEN = ["attributes", "freed_is_unknown", "capture_refuses", "context_destroyed", "primary_reset", "fork_child"]
#: what is asked for is done: the library asks for a millisecond at most, which is not always long enough on a busy machine
ASKED = {"SIMCUDA_CLOCK": "manual:1"}
SETTINGS = ["", ",reuse_slack_mb:0", ",pinned_max_mb:4", ",free_sync:host"]
#: drivers without context marks, or of which these are not proven: only the program's own synchronisations tell
NO_MARKS = {"old": {"SIMCUDA_FAIL": "cuCtxRecordEvent:1+:801"}, "unproven": {"SIMCUDA_FAIL": "cuStreamWaitValue32_v2:1+:801"}}


def case(name, conf=CACHE, preload=True, **env):
    if conf:
        env["CACHEALLOC_CONF"] = conf
    knobs = {"SIMCUDA_RACES": "abort", "SIMCUDA_DEADLOCK": "20000", **env}
    return run([PROGRAM, name], preload=preload, check=0, **knobs)


def calls(tmp_path, name, conf=CACHE, preload=True, **env):
    path = tmp_path / "sim.json"
    case(name, conf, preload, SIMCUDA_STATS=path, **env)
    found = json.loads(path.read_text())["calls"]
    return found.get("cuMemHostAlloc", 0) + found.get("cuMemAllocHost_v2", 0), found.get("cuMemFreeHost", 0)


@pytest.mark.parametrize("clock", CLOCKS, ids=str)
@pytest.mark.parametrize("name", ["pairs_with_context", "pairs_with_stream"])
def test_a_thousand_pairs(tmp_path, name, clock):
    """Beside them the program takes a word, and so does the trial of context marks."""
    taken, freed = calls(tmp_path, name, **clock)
    assert taken <= 2 + 2 and freed == 0
    for conf, preload in ((None, True), ("pinned:driver", True), (None, False)):
        assert calls(tmp_path, name, conf, preload, **clock)[1] == 1000


@pytest.mark.parametrize("drivers", NO_MARKS)
def test_a_thousand_pairs_without_marks(tmp_path, drivers):
    taken, _ = calls(tmp_path, "pairs_with_context", **NO_MARKS[drivers])
    assert taken <= 2 + 2


@pytest.mark.parametrize("clock", CLOCKS, ids=str)
@pytest.mark.parametrize("name", USES)
def test_natively(name, clock):
    case(name, None, False, **clock)


@pytest.mark.parametrize("clock", CLOCKS, ids=str)
@pytest.mark.parametrize("name", USES + OURS)
def test_nothing_is_handed_out_while_work_may_touch_it(name, clock):
    for setting in SETTINGS:
        if not (name == "kinds" and "max" in setting) and not (name == "nothing_waits" and setting in SETTINGS[2:]) and \
                not (name in OURS[:1] and setting in SETTINGS[2:]):
            case(name, CACHE + setting, **clock)


@pytest.mark.parametrize("drivers", NO_MARKS)
@pytest.mark.parametrize("name", USES + OURS)
def test_without_marks(name, drivers):
    for clock in CLOCKS[:2]:
        case(name, **clock, **NO_MARKS[drivers])


@pytest.mark.parametrize("clock", CLOCKS, ids=str)
@pytest.mark.parametrize("name", SEEN)
def test_the_program_sees_what_it_sees_natively(name, clock):
    natively = case(name, None, False, **clock).stdout
    for setting in SETTINGS:
        assert case(name, CACHE + setting, **clock).stdout == natively


@pytest.mark.parametrize("clock", CLOCKS, ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_random_threads(seed, clock):
    print("seed", seed)
    for setting in SETTINGS[:3]:
        case("threads", CACHE + setting, PINNED_SEED=seed, **clock)


def test_where_the_host_has_no_memory_ours_goes_back(tmp_path):
    """The failing call is the program's third, after the word that it takes first."""
    assert calls(tmp_path, "host_memory_ends") == (4, 0)
    assert calls(tmp_path, "host_memory_ends", SIMCUDA_FAIL="cuMemHostAlloc:4:2")[1] == 2


@pytest.mark.skipif("CACHEALLOC_TEST_SANITIZER" in os.environ, reason="a sanitizer maps memory, too")
def test_where_another_thread_has_ours_in_its_hand():
    """It was out of memory for the other."""
    case("others_hand", None, False)
    case("others_hand", CACHE + ",pinned_max_mb:200", SIMCUDA_LATENCY="cuMemFreeHost:100ms")


def test_what_never_fits_is_refused_beside_threads_that_go_on():
    """After ten seconds: what goes back each time might be what is needed."""
    case("others_turn", SIMCUDA_FAIL="cuMemAllocHost_v2:1+:2", SIMCUDA_LATENCY="cuMemAllocHost_v2:50ms")


def test_where_the_device_has_no_memory_ours_goes_back(tmp_path):
    assert calls(tmp_path, "device_memory_ends", **ASKED)[1] == 1


def test_what_others_were_given_is_not_kept(tmp_path):
    assert calls(tmp_path, "exposed")[1] == 1


def test_no_more_is_kept_than_the_cap(tmp_path):
    assert calls(tmp_path, "cap")[1] == 0
    assert calls(tmp_path, "cap", CACHE + ",pinned_max_mb:11")[1] == 3
    assert calls(tmp_path, "cap", CACHE + ",pinned_max_mb:1")[1] == 6


def test_a_free_may_wait_as_natively():
    case("barrier", None, False)
    case("barrier", CACHE + ",free_sync:host")


#: the calls of the driver that the library makes for page-locked memory, its own or the program's; True: its own alone, so that
#: the program goes on whatever becomes of them
CALLS = {"cuMemAllocHost_v2": False, "cuMemHostAlloc": False, "cuMemFreeHost": False, "cuCtxSynchronize": False,
         "cuStreamSynchronize": False, "cuCtxGetCurrent": True, "cuCtxPushCurrent_v2": True, "cuCtxGetId": True,
         "cuCtxRecordEvent": True, "cuEventCreate": True, "cuEventQuery": True, "cuPointerGetAttributes": True,
         "cuThreadExchangeStreamCaptureMode": True}
SMALL_CAP = CACHE + ",pinned_max_mb:1"


def test_the_plan_of_failures_knows_every_call(tmp_path):
    """What the program calls without the library, and what comes with it."""
    calls = {}
    for preload in (False, True):
        path = tmp_path / f"{preload}.json"
        case("faults", SMALL_CAP, preload, SIMCUDA_STATS=path)
        calls[preload] = set(json.loads(path.read_text())["calls"])
    start = {name for name in calls[True] if name.startswith(("cuInit", "cuDevice", "cuDriver", "cuGetProcAddress"))}
    trial = {"cuStreamCreate", "cuStreamDestroy_v2", "cuStreamWaitValue32_v2", "cuEventRecord", "cuStreamGetCtx", "cuMemGetInfo_v2"}
    assert calls[True] - calls[False] - start - trial <= set(CALLS)


@pytest.mark.parametrize("entry", CALLS)
def test_the_nth_call_fails(entry, tmp_path, reached):
    number = 0
    for code in (2, 999) if "Host" in entry else (999,):
        for n in range(1, 1000):
            path = tmp_path / f"{n}.{code}.json"
            case("faults", SMALL_CAP, SIMCUDA_FAIL=f"{entry}:{n}:{code}", SIMCUDA_STATS=path)
            if not json.loads(path.read_text())["injected"]:
                break
            number += 1
        reached.append((entry, code, number))
    assert number


@pytest.mark.parametrize("entry", [entry for entry in CALLS if CALLS[entry]])
def test_all_calls_fail_from_the_nth_on(entry):
    for n in (1, 2, 5, 20):
        case("faults", SMALL_CAP, SIMCUDA_FAIL=f"{entry}:{n}+:999")


def statistics(tmp_path, name, conf=CACHE, **env):
    """The library's device 0, and what was said."""
    path = tmp_path / "stats.json"
    path.unlink(missing_ok=True)
    said = case(name, conf, CACHEALLOC_STATS=path, **env).stderr
    return json.loads(path.read_text())["devices"][0], said


CLASS = 13 << 18  # of 3 MiB + 5: an eighth of a power of two is 256 KiB
WORD = 8          # the program's own, from beginning to end


def test_statistics_of_pairs(tmp_path):
    device, _ = statistics(tmp_path, "pairs_with_context")
    assert device["pinned_alloc_calls"] == 1001 and device["pinned_cache_hits"] == 999
    assert device["pinned_bytes"] == {"current": WORD, "peak": WORD + CLASS, "total": WORD + 1000 * CLASS}
    assert device["pinned_cached_bytes"] == {"current": CLASS, "peak": CLASS, "total": 1000 * CLASS}
    assert device["alloc_calls"] == 1  # device memory is another matter


@pytest.mark.parametrize("conf", ["pinned:driver", "reuse:finished"])
def test_no_statistics_without_a_cache(tmp_path, conf):
    device, _ = statistics(tmp_path, "pairs_with_context", conf)
    assert device["pinned_alloc_calls"] == device["pinned_cache_hits"] == 0
    assert device["pinned_bytes"] == device["pinned_cached_bytes"] == {"current": 0, "peak": 0, "total": 0}


def test_statistics_follow_the_memory(tmp_path):
    """Back to the driver by the cap, and by its own free; gone with a context."""
    device, _ = statistics(tmp_path, "cap", CACHE + ",pinned_max_mb:11")
    assert device["pinned_bytes"] == {"current": WORD, "peak": WORD + 6 * CLASS, "total": WORD + 6 * CLASS}
    # the fourth free is one too much until the oldest has gone
    assert device["pinned_cached_bytes"] == {"current": 3 * CLASS, "peak": 4 * CLASS, "total": 6 * CLASS}
    device, _ = statistics(tmp_path, "exposed")
    assert device["pinned_bytes"]["current"] == WORD and device["pinned_cached_bytes"]["total"] == 0
    device, _ = statistics(tmp_path, "context_destroyed")
    assert device["pinned_bytes"]["current"] == WORD  # the second context's died with it, as did three of the program's


def test_statistics_when_the_driver_takes_nothing_back(tmp_path):
    device, _ = statistics(tmp_path, "exposed", SIMCUDA_FAIL="cuMemFreeHost:1:999", PINNED_FREE_FAILS=1)
    assert device["pinned_bytes"] == {"current": WORD + CLASS, "peak": WORD + CLASS, "total": WORD + CLASS}


def test_a_signal_handler_may_end_the_program_inside_a_call(tmp_path):
    """The statistics at exit do not wait for the lock that the call holds."""
    if os.environ.get("CACHEALLOC_TEST_SANITIZER"):
        pytest.skip("a sanitizer maps memory, too")
    done = run([PROGRAM, "exit_inside"], CACHEALLOC_CONF=CACHE, CACHEALLOC_STATS=tmp_path / "stats.json")
    if done.returncode == 77:
        pytest.skip("no system call can be trapped here")
    assert done.returncode == 0, done


def test_table(tmp_path):
    said = case("pairs_with_context", CACHEALLOC_STATS="1").stderr
    assert "pinned  1001 alloc; 99.80% served from cache; 8 B live (peak 3.25 MiB), 3.25 MiB kept\n" in said
    assert "pinned  " not in case("pairs_with_context", "reuse:finished", CACHEALLOC_STATS="1").stderr


def test_report_of_out_of_memory(tmp_path):
    said = case("device_memory_ends", **ASKED).stderr
    assert "CUDA out of memory. Tried to allocate 1.00 TiB" in said
    assert "3.25 MiB went back from pools and graphs of the driver's, and from pinned:cache" in said
    assert "page-locked host memory: 8 B held by the program, 0 B freed and kept (pinned:cache)" in said
    assert "pinned" not in case("device_memory_ends", "reuse:finished").stderr


@pytest.mark.parametrize("mutant, name", [
    ("PINNED_AT_ONCE", "slow_copy"), ("PINNED_AT_ONCE", "kernel"), ("PINNED_AT_ONCE", "graph"), ("PINNED_AT_ONCE", "host_function"),
    ("PINNED_AT_ONCE", "synchronised_before"), ("PINNED_AT_ONCE", "threads"), ("REUSE_AT_ONCE", "slow_copy"),
    ("OWN_CONTEXT_ONLY", "still_used_by_another_context"), ("PINNED_ONE_CONTEXT", "still_used_by_another_context")])
def test_mistakes_are_seen(mutant, name):
    if not MUTANTS.exists():
        pytest.skip("built without mistakes")
    # on the manual clock work lasts until somebody waits for it, however busy the machine is
    env = {"SIMCUDA_RACES": "abort", "SIMCUDA_DEADLOCK": "20000", "CACHEALLOC_CONF": CACHE, "LD_PRELOAD": MUTANTS, **CLOCKS[1]}
    run([PROGRAM, name], preload=False, check=0, **env)
    assert run([PROGRAM, name], preload=False, CACHEALLOC_TEST_MUTANT=mutant, **env).returncode
