# SPDX-License-Identifier: MIT
"""expandable_segments:True: random programs under the race oracle, to which an unmapping is a write of the addresses by the
host, each driver call of it failing in turn, and the library's mutants. tests/unit/allocator/block/test_extent.c has the rest.
"""

import json
import os
import random
import shutil
import subprocess
import zlib

import pytest

from conftest import BUILD, LIBRARY, MUTANTS, clean_env, run

QUICK_EVERY = 4  # conftest.py
PROGRAM = BUILD / "tests" / "stress" / "order_program"
SEVERAL = BUILD / "tests" / "process" / "order" / "order_several"
EXTENTS = BUILD / "tests" / "process" / "order" / "order_extents"
FAILURE = BUILD / "tests" / "process" / "order" / "order_failure"
CONF = "expandable_segments:True,reuse_slack_mb:0"
NEVER_CALLED = BUILD / "tests" / "stress" / "libnever_free.so"
SANITIZER = os.environ.get("CACHEALLOC_TEST_SANITIZER")
CALLS = ["cuDeviceGetCount", "cuDeviceCanAccessPeer", "cuDeviceGetAttribute", "cuDeviceTotalMem_v2", "cuMemAddressReserve", "cuMemCreate", "cuMemMap",
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


@pytest.mark.parametrize("mode, workers, streams", [("mix", 2, 4), ("mix+cross", 3, 3), ("pipe+wide+cross", 2, 4)])
def test_random_programs_on_two_devices(tmp_path, mode, workers, streams):
    seed = seed_of(mode, workers, streams)
    argv = [PROGRAM, seed, 300 if SANITIZER else 3000, mode, workers, 2, streams]
    print(*argv)
    done, said = go(argv, tmp_path / "sim.json", SIMCUDA_DEVICES=2, SIMCUDA_CLOCK="manual:16", CACHEALLOC_LOG="off")
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


AS_EVER = "expandable_segments: segments are as ever, since "
MAPPED = "memory is mapped on device 0"


def of_another_name(tmp_path, name):
    """Some library under that name."""
    folder = tmp_path / "libraries"
    folder.mkdir(exist_ok=True)
    return shutil.copy(NEVER_CALLED, folder / name)


def takes_memory(tmp_path, on="True", **env):
    """Whether it is mapped, and what is said of that."""
    stats = tmp_path / "sim.json"
    stats.unlink(missing_ok=True)
    done = run([EXTENTS, "library_comes"], check=0, SIMCUDA_STATS=stats, CACHEALLOC_LOG="info",
               **{"SIMCUDA_DEVICES": 1, "CACHEALLOC_CONF": f"expandable_segments:{on}", **env})
    calls = json.loads(stats.read_text())["calls"]
    said = [line.split(": info: ")[1] for line in done.stderr.splitlines() if "expandable_segments" in line and "CONF" not in line]
    assert len(said) <= 2
    return calls.get("cuMemMap", 0) > 2 and "cuMemAlloc_v2" not in calls, said


# name, environment, why nothing is mapped
WITHOUT = {
    "the device says no": ({"SIMCUDA_VMM": 0}, "the device does not map memory"),
    "out of memory with all of it free": ({"SIMCUDA_FAIL": "cuMemCreate:1+:2"}, "memory could not be mapped in a trial"),
    "no memory": ({"SIMCUDA_FAIL": "cuMemCreate:1:801"}, "memory could not be mapped in a trial"),
    "no mapping": ({"SIMCUDA_FAIL": "cuMemMap:1:801"}, "memory could not be mapped in a trial"),
    "no alias": ({"SIMCUDA_FAIL": "cuMemMap:2:1"}, "memory could not be mapped in a trial"),
    "no access": ({"SIMCUDA_FAIL": "cuMemSetAccess:1:801"}, "memory could not be mapped in a trial"),
    "no unmapping": ({"SIMCUDA_FAIL": "cuMemUnmap:2:801"}, "memory could not be mapped in a trial"),
    "no addresses": ({"SIMCUDA_FAIL": "cuMemAddressReserve:1+:2"}, "no addresses are to be had"),
    "unreachable": ({"SIMCUDA_FAIL": "cuDeviceCanAccessPeer:1:999", "SIMCUDA_DEVICES": 2},
                    "a device cannot reach the memory of another"),
}


@pytest.mark.parametrize("on", ["True", "auto"])
@pytest.mark.parametrize("name", WITHOUT)
def test_without_mapping_there_are_segments(tmp_path, name, on):
    env, why = WITHOUT[name]
    mapped, said = takes_memory(tmp_path, on, **env)
    assert not mapped and said == [AS_EVER + why]


def test_the_trial_is_made_once(tmp_path):
    """One page at two places; each handle after it is mapped once. Another context makes no trial."""
    for case, devices in (("library_comes", 1), ("another_device", 2)):
        done = extents(case, "", tmp_path, SIMCUDA_DEVICES=devices)
        calls = json.loads((tmp_path / "sim.json").read_text())["calls"]
        assert done.returncode == 0, done.stderr
        assert calls["cuMemMap"] == calls["cuMemCreate"] + devices


@pytest.mark.parametrize("name, why", [("libmpi.so.40", "MPI"), ("libucp.so.0", "UCX"), ("libtorch_python.so", "torch.multiprocessing")])
def test_auto_keeps_to_segments_where_memory_is_shared(tmp_path, name, why):
    library = of_another_name(tmp_path, name)
    mapped, said = takes_memory(tmp_path, "auto", LD_PRELOAD=library)
    assert not mapped and said == [f"{AS_EVER}auto: {why} is loaded"]
    assert takes_memory(tmp_path, "True", LD_PRELOAD=library) == (True, [f"expandable_segments: {MAPPED}"])
    mapped, said = takes_memory(tmp_path, "auto", ORDER_LOAD=library)
    assert not mapped and said == [f"expandable_segments:auto: {MAPPED}", f"{AS_EVER}auto: {why} is loaded"]


def test_auto_maps_memory_of_one_device(tmp_path):
    assert takes_memory(tmp_path, "auto") == (True, [f"expandable_segments:auto: {MAPPED}"])
    assert takes_memory(tmp_path, "auto", SIMCUDA_DEVICES=2) == (False, [f"{AS_EVER}auto: the process sees several devices"])


def test_off_is_the_default(tmp_path):
    for on in ({"CACHEALLOC_CONF": ""}, {"CACHEALLOC_CONF": "expandable_segments:False"}):
        assert takes_memory(tmp_path, **on) == (False, [])


@pytest.mark.parametrize("clock", ["real", "manual:16"])
def test_another_device_reaches_mapped_memory(tmp_path, clock):
    done = extents("another_device", "", tmp_path, SIMCUDA_DEVICES=2, SIMCUDA_CLOCK=clock)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((tmp_path / "sim.json").read_text())["calls"]["cuMemMap"] > 10


@pytest.mark.parametrize("rdma", [False, True])
def test_other_cards_reach_mapped_memory_where_the_device_says_so(tmp_path, rdma):
    done = extents("other_cards", "", tmp_path, SIMCUDA_VMM="rdma" if rdma else 1)
    assert (done.returncode, done.stdout) == (0, f"{rdma:d}\n"), done.stderr


def test_memory_that_is_to_be_exported_comes_from_segments(tmp_path):
    done = extents("export", "", tmp_path, SIMCUDA_IPC="self")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("expandable_segments:False") == done.stderr.count("warning") == 1, done.stderr


def test_after_a_refused_export_no_mapped_memory_serves(tmp_path):
    done = extents("export_again", "", tmp_path, SIMCUDA_IPC="self", SIMCUDA_MEM="1000M", CACHEALLOC_LOG="error")
    assert (done.returncode, done.stderr) == (0, "")


def test_after_a_refused_export_mapped_memory_is_the_last_resort(tmp_path):
    done = extents("export_at_the_end", "", tmp_path, SIMCUDA_IPC="self", SIMCUDA_MEM="544M", CACHEALLOC_LOG="error")
    assert (done.returncode, done.stderr) == (0, "")


def test_memory_is_had_while_another_thread_unmaps(tmp_path):
    """However long that takes: here 80 MiB in pages, 1.2 s."""
    done = extents("another_thread_unmaps", ",expandable_slack_percent:0", tmp_path, SIMCUDA_MEM="340M", SIMCUDA_LATENCY="cuMemUnmap:30ms")
    assert (done.returncode, done.stderr) == (0, "")


# case, settings, the mistake, what tells
CASES = [("freed_while_work_uses_it", ",max_cached_mb:0", "HELD_UNMAPPED", "now: cuMemUnmap"),
         ("part_of_a_handle_in_use", "", "HANDLE_CUT", "illegal address: sim_check")]


def extents(case, conf, tmp_path, **env):
    return run([EXTENTS, case], SIMCUDA_RACES="abort", CACHEALLOC_CONF=f"expandable_segments:True{conf}",
               SIMCUDA_STATS=tmp_path / "sim.json", **{"SIMCUDA_DEVICES": 1, **env})


@pytest.mark.parametrize("clock", ["real", "manual:16"])
@pytest.mark.parametrize("case, conf, mutant, word", CASES)
def test_what_is_unmapped(tmp_path, case, conf, mutant, word, clock):
    done = extents(case, conf, tmp_path, SIMCUDA_CLOCK=clock)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((tmp_path / "sim.json").read_text())["calls"]["cuMemUnmap"] > 1 or case == "part_of_a_handle_in_use"
    if not MUTANTS.exists():
        return
    done = extents(case, conf, tmp_path, SIMCUDA_CLOCK=clock, CACHEALLOC_TEST_MUTANT=mutant)
    assert done.returncode and word in done.stderr, done.stderr[-2000:]


#: Nothing in a program retires an extent but what the simulated driver does not know; and that another thread does something in
#: the middle of a certain call is had in a unit test only. The test that finds the mistake, of test_extent.c, test_move.c,
#: test_move_fails.c, test_extent_calls.c.
UNIT_MUTANTS = {
    "EXTENT_UNMAPPED_EARLY": ("extent", "test_a_retired_extent_in_use"),
    "EXTENT_HAND_IGNORED": ("move_fails", "test_the_context_ends_while_memory_goes"),
    "EXTENT_ADDRESSES_GONE": ("move_fails", "test_the_context_ends_while_the_other_area_goes"),
    "EXTENT_GROWS_DEAD": ("move_fails", "test_the_context_ends_while_the_other_area_goes"),
    "EXTENT_UNMAPPED_ONCE": ("move_fails", "test_an_unmapping_that_fails_as_the_context_ends_is_tried_again"),
    "DEAD_WITH_BLOCKS": ("move_fails", "test_a_dead_space_has_no_blocks"),
    "TAKING_UNCOUNTED": ("move", "test_what_is_on_its_way_is_within_the_limit"),
    "LEFT_UNCOUNTED": ("extent_calls", "test_the_limit_holds_at_each_call"),
}


def failed_units(program, mutant):
    path = BUILD / "tests" / "stress" / f"{program}_mutants"
    if not path.exists():
        pytest.skip("built without mutants")
    done = subprocess.run([path], env=clean_env() | {"CACHEALLOC_TEST_MUTANT": mutant, "CMOCKA_MESSAGE_OUTPUT": "TAP"},
                          capture_output=True, text=True, timeout=300)
    return [line.split()[-1] for line in done.stdout.splitlines() if line.startswith("not ok")]


@pytest.mark.parametrize("mutant", UNIT_MUTANTS)
def test_mutant_is_caught(mutant):
    program, unit = UNIT_MUTANTS[mutant]
    assert unit in failed_units(program, mutant)


@pytest.mark.parametrize("program", ["extent", "extent_calls", "move", "move_fails"])
def test_no_mutant_no_catch(program):
    assert not failed_units(program, "")


@pytest.mark.parametrize("conf", ["", CONF])
def test_room_is_made_on_the_device_that_a_call_names(tmp_path, conf):
    done, _ = go([EXTENTS, "room_on_another_device"], tmp_path / "sim.json", conf=conf, SIMCUDA_DEVICES=2, SIMCUDA_MEM="256M")
    assert done.returncode == 0, done.stderr
