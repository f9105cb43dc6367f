# SPDX-License-Identifier: MIT
"""cachealloc_torch_*, as PyTorch's CUDAPluggableAllocator calls them: under the preload, and with the library opened by dlopen alone. The
race oracle and the contents judge. pluggable.c says what the cases do."""

import json
import os

import pytest

from conftest import BUILD, LIBRARY, run

PROGRAM = BUILD / "tests" / "process" / "pluggable" / "pluggable"
CASES = ["steps", "recorded", "recorded_in_capture", "recorded_elsewhere", "freed_elsewhere", "crossed", "captured", "devices",
         "unused_device", "threads", "forked"]
ROADS = ["preload", "dlopen"]


def case(name, road, check=0, **env):
    if "CACHEALLOC_TEST_SANITIZER" in os.environ:
        if road == "dlopen":
            pytest.skip("a library with a sanitizer is not opened by dlopen")
        if name in ("forked", "out_of_memory"):
            pytest.skip("a sanitizer brings a C++ library, so that there is an exception instead of NULL")
    if road == "dlopen":
        env["PLUGGABLE_LIBRARY"] = LIBRARY
    knobs = {"SIMCUDA_RACES": "abort", "SIMCUDA_DEADLOCK": "20000", "SIMCUDA_DEVICES": "2", "SIMCUDA_MEM": "512M", **env}
    return run([PROGRAM, name], preload=road == "preload", check=check, **knobs)


@pytest.mark.parametrize("conf", ["", "async:pool"])
@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("name", CASES)
def test_no_memory_is_shared_by_work_that_is_not_ordered(name, road, conf):
    env = {"SIMCUDA_MEM": "4G"} if name == "recorded_elsewhere" else {}  # below it is a matter of memory
    case(name, road, CACHEALLOC_CONF=conf, **env)
    case(name, road, CACHEALLOC_CONF=conf, SIMCUDA_CLOCK="manual", **env)


@pytest.mark.parametrize("road", ROADS)
def test_memory_of_a_stream_of_another_device_comes_back(road):
    """An event is recorded by streams of its own context only: the memory was kept for ever."""
    done = case("recorded_elsewhere", road, CACHEALLOC_LOG="warn", CACHEALLOC_CONF="")
    assert "never freed" not in done.stderr


@pytest.mark.parametrize("road, name", [("preload", "cuMemAlloc_v2"), ("dlopen", "cuMemAllocAsync")])
def test_memory_is_kept(tmp_path, road, name):
    """Under the preload by the library; without it by the driver's pool, whose threshold is raised."""
    case("steps", road, SIMCUDA_STATS=tmp_path / "sim.json", CACHEALLOC_STATS=tmp_path / "stats.json")
    calls = json.loads((tmp_path / "sim.json").read_text())["calls"]
    if road == "preload":
        assert calls[name] <= 8
        device = json.loads((tmp_path / "stats.json").read_text())["devices"][0]
        assert device["alloc_calls"] == 200 and device["cache_hits"] >= 192
    else:
        assert calls[name] == 200 and calls["cuMemPoolSetAttribute"] >= 1


def test_pytorchs_own_cache_is_not_in_use_then(tmp_path):
    """Its library is there (a model of it), and nothing switches its cache off."""
    model = BUILD / "tests" / "process" / "framework" / "libc10_cuda.so"
    case("steps", "preload", LD_PRELOAD=model, CACHEALLOC_STATS=tmp_path / "stats.json")
    device = json.loads((tmp_path / "stats.json").read_text())["devices"][0]
    assert (device["alloc_calls"], device["passed_alloc_calls"]) == (200, 0)


@pytest.mark.parametrize("road", ROADS)
def test_out_of_memory(road):
    """NULL in a program without C++; std::bad_alloc in one with it."""
    done = case("out_of_memory", road, CACHEALLOC_LOG="warn")
    assert done.stdout == "(nil)\n" and "cachealloc_torch_malloc: 1099511627776 bytes on device 0: CUDA error 2" in done.stderr
    done = case("out_of_memory", road, check=None, PLUGGABLE_CXX="libstdc++.so.6")
    assert done.returncode == -6 and "std::bad_alloc" in done.stderr


@pytest.mark.parametrize("fail", ["cuEventCreate:2:2", "cuEventRecord:2:2", "cuStreamWaitEvent:2:2"])
def test_what_cannot_be_ordered_is_kept(fail):
    """The wait of the first free fails: the memory is never given away, and one line says so."""
    done = case("recorded", "dlopen", SIMCUDA_FAIL=fail, CACHEALLOC_LOG="warn")
    assert done.stderr.count("its memory is never freed") == 1
