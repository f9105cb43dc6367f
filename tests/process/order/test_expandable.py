# SPDX-License-Identifier: MIT
"""expandable_segments:True: random programs under the race oracle, to which an unmapping is a write of the addresses by the
host, each driver call of it failing in turn, and the library's mutants. tests/unit/allocator/block/test_extent.c has the rest.
"""

import json
import os
import random
import subprocess
import zlib

import pytest

from conftest import BUILD, LIBRARY, clean_env, run

PROGRAM = BUILD / "tests" / "stress" / "order_program"
SEVERAL = BUILD / "tests" / "process" / "order" / "order_several"
EXTENTS = BUILD / "tests" / "process" / "order" / "order_extents"
MUTANTS = BUILD / "tests" / "stress" / "libcachealloc_mutants.so"
EXTENT_MUTANTS = BUILD / "tests" / "stress" / "extent_mutants"
FAILURE = BUILD / "tests" / "process" / "order" / "order_failure"
CONF = "expandable_segments:True,reuse_slack_mb:0"
SANITIZER = os.environ.get("CACHEALLOC_TEST_SANITIZER")
CALLS = ["cuDeviceGetCount", "cuDeviceGetAttribute", "cuDeviceTotalMem_v2", "cuMemAddressReserve", "cuMemCreate", "cuMemMap",
         "cuMemSetAccess", "cuMemRelease", "cuMemUnmap", "cuMemAddressFree"]


def go(argv, stats, conf=CONF, **env):
    stats.unlink(missing_ok=True)
    done = run(argv, SIMCUDA_RACES="abort", SIMCUDA_STATS=stats, SIMCUDA_DEADLOCK=60000, CACHEALLOC_CONF=conf, timeout=600, **env)
    assert "race on" not in done.stderr and "deadlock" not in done.stderr, done.stderr[-3000:]
    return done, json.loads(stats.read_text() or "{}")


def is_out_of_memory(done):
    """It ended where it cannot do without memory: two of its threads may do so at once, so that no statistics are left."""
    return done.returncode == 2 or done.returncode == 1 and "= 2\n" in done.stderr


def seed_of(*case):
    """Another for each case, the same in each run; with --long another in each run, too."""
    if "CACHEALLOC_TEST_LONG" in os.environ:
        case += (random.SystemRandom().random(),)
    return int(os.environ.get("CACHEALLOC_TEST_SEED", zlib.crc32(repr(case).encode())))


@pytest.mark.parametrize("memory", ["4G", "256M"])
@pytest.mark.parametrize("mode, workers, streams, clock", [
    ("mix", 3, 4, "manual:16"), ("mix", 2, 3, "real"), ("pipe+solo+wide", 1, 5, "manual:16"), ("pipe+solo", 1, 2, "manual:16"),
    ("team+pipe+wide", 2, 4, "real"), ("pipe+solo+quiet", 1, 1, "manual:16"), ("solo+wide", 1, 7, "manual:16"),
])
def test_random_programs(tmp_path, mode, workers, streams, clock, memory):
    assert LIBRARY.is_file(), f"{LIBRARY} is not built"
    seed = seed_of(mode, workers, streams, clock, memory)
    argv = [PROGRAM, seed, 300 if SANITIZER else 3000, mode, workers, 1, streams]
    print(*argv)
    done, said = go(argv, tmp_path / "sim.json", SIMCUDA_DEVICES=1, SIMCUDA_CLOCK=clock, SIMCUDA_MEM=memory, CACHEALLOC_LOG="off")
    if is_out_of_memory(done):
        return
    assert done.returncode == 0 and " 0 words wrong" in done.stdout + done.stderr, done.stderr[-2000:]
    assert said["calls"].get("cuMemMap", 0) > 1 and said["races"] == 0


@pytest.mark.parametrize("memory", ["4G", "96M"])
def test_several(tmp_path, memory):
    seed = seed_of(memory)
    print("ORDER_SEED", seed)
    done, said = go([SEVERAL, "random"], tmp_path / "sim.json", ORDER_SEED=seed, ORDER_OPERATIONS=300 if SANITIZER else 3000,
                    SIMCUDA_DEVICES=1, SIMCUDA_CLOCK="manual:16", SIMCUDA_MEM=memory, CACHEALLOC_LOG="off")
    if is_out_of_memory(done):
        return
    assert done.returncode == 0, done.stderr[-2000:]
    assert said["calls"].get("cuMemMap", 0) > 1 and said["races"] == 0


@pytest.mark.parametrize("clock", ["real", "manual"])
@pytest.mark.parametrize("case", ["streams_of_all_kinds", "streams_that_die", "captures_and_graphs", "little_memory"])
@pytest.mark.parametrize("name", CALLS)
def test_nth_call_fails(tmp_path, case, name, clock):
    """Memory is had some other way, or the driver's answer is out of memory; contents are right, and nothing is unmapped in use."""
    memory = "80M" if case == "little_memory" else "1G"
    for code in (999, 2):
        for n in (*range(1, 6), *range(6, 400, 7)):
            done, said = go([FAILURE, case], tmp_path / "sim.json", conf=CONF + (",give_back:oom" if case == "little_memory" else ""),
                            SIMCUDA_FAIL=f"{name}:{n}:{code}", SIMCUDA_CLOCK=clock, SIMCUDA_MEM=memory, SIMCUDA_DEVICES=1,
                            CACHEALLOC_LOG="debug")
            assert "inconsistent" not in done.stderr and "not so" not in done.stderr, (n, code, done.stderr[-3000:])
            assert done.returncode == 0 or code == 2 and "= 2" in done.stderr, (n, code, done.returncode, done.stderr[-3000:])
            if not said["injected"]:
                break


def test_several_devices_have_segments(tmp_path):
    done, said = go([PROGRAM, 1, 300, "mix", 2, 1, 3], tmp_path / "sim.json", SIMCUDA_DEVICES=2, SIMCUDA_CLOCK="manual:16",
                    CACHEALLOC_LOG="info")
    assert done.returncode == 0 and "segments are as ever, since the process sees several devices" in done.stderr
    assert not said["calls"].get("cuMemMap")


def test_a_device_without(tmp_path):
    done, said = go([PROGRAM, 1, 300, "mix", 2, 1, 3], tmp_path / "sim.json", SIMCUDA_DEVICES=1, SIMCUDA_VMM=0,
                    SIMCUDA_CLOCK="manual:16", CACHEALLOC_LOG="info")
    assert done.returncode == 0 and done.stderr.count("segments are as ever, since") == 1
    assert not said["calls"].get("cuMemMap")


# case, settings, the mistake, what tells
CASES = [("freed_while_work_uses_it", ",max_cached_mb:0", "HELD_UNMAPPED", "now: cuMemUnmap"),
         ("part_of_a_handle_in_use", "", "HANDLE_CUT", "illegal address: sim_check")]


def extents(case, conf, tmp_path, **env):
    return run([EXTENTS, case], SIMCUDA_RACES="abort", SIMCUDA_DEVICES=1, CACHEALLOC_CONF=f"expandable_segments:True{conf}",
               SIMCUDA_STATS=tmp_path / "sim.json", **env)


@pytest.mark.parametrize("clock", ["real", "manual:16"])
@pytest.mark.parametrize("case, conf, mutant, word", CASES)
def test_what_is_unmapped(tmp_path, case, conf, mutant, word, clock):
    done = extents(case, conf, tmp_path, SIMCUDA_CLOCK=clock)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((tmp_path / "sim.json").read_text())["calls"]["cuMemUnmap"] > 1 or case == "part_of_a_handle_in_use"
    if not MUTANTS.exists():
        return
    done = extents(case, conf, tmp_path, SIMCUDA_CLOCK=clock, preload=False, LD_PRELOAD=MUTANTS, CACHEALLOC_TEST_MUTANT=mutant)
    assert done.returncode and word in done.stderr, done.stderr[-2000:]


def test_a_retired_extent_that_is_unmapped_early_is_caught():
    """Nothing in a program retires an extent but what the simulated driver does not know: a unit test finds it."""
    if not EXTENT_MUTANTS.exists():
        pytest.skip("built without mutants")
    for mutant in ("", "EXTENT_UNMAPPED_EARLY"):
        done = subprocess.run([EXTENT_MUTANTS], env=clean_env() | {"CACHEALLOC_TEST_MUTANT": mutant, "CMOCKA_MESSAGE_OUTPUT": "TAP"},
                              capture_output=True, text=True, timeout=300)
        failed = [line for line in done.stdout.splitlines() if line.startswith("not ok")]
        assert len(failed) == (mutant != "") and all("test_a_retired_extent_in_use" in line for line in failed), done.stdout
