# SPDX-License-Identifier: MIT
"""async:keep: a device's default pool keeps what is freed, until it is missed. cases_pools.c says what the cases do."""

import json

import pytest

from conftest import BUILD, run

PROGRAM = BUILD / "tests" / "process" / "shim" / "cases_pools"
KEEP = "async:keep"


def case(name, conf=KEEP, preload=True, **env):
    if conf:
        env["CACHEALLOC_CONF"] = conf
    return run([PROGRAM, name], preload=preload, check=0, SIMCUDA_MEM="256M", SIMCUDA_RACES="abort", SIMCUDA_DEADLOCK="10000", **env)


def test_a_thousand_pairs_take_memory_from_the_device_once():
    assert case("pairs").stdout == "empty 0\n"
    assert case("pairs", conf="async:driver").stdout == case("pairs", preload=False).stdout == "empty 1000\n"
    assert case("pairs", conf=None).stdout == "empty 1000\n"


@pytest.mark.parametrize("env", [{"CACHEALLOC_TAKEOVER": "cudf"}, {"CACHEALLOC_TAKEOVER": "torch,jax"}], ids=str)
def test_a_take_over_implies_it(env):
    assert case("pairs", conf=None, **env).stdout == "empty 0\n"
    assert case("pairs", conf="async:driver", **env).stdout == "empty 1000\n"


@pytest.mark.parametrize("env", [{"CACHEALLOC_DISABLE": "1"}, {"CACHEALLOC_DISABLE": "count"}], ids=str)
def test_nothing_is_raised_where_nothing_is_served(env):
    assert case("pairs", **env).stdout == "empty 1000\n"


def test_the_program_reads_its_own_threshold():
    assert case("threshold").stdout == case("threshold_early").stdout == "kept 1\n"
    assert case("threshold", preload=False).stdout == "kept 0\n"


@pytest.mark.parametrize("name", ["out_of_memory", "live", "trim", "capture"])
def test_what_the_pool_keeps_is_had(name):
    said = case(name).stderr
    assert not said or name == "out_of_memory", said


def test_automatic_trims_have_it_too():
    case("trim_every", conf=f"{KEEP},trim_every:7")


def test_the_report_says_what_went_back():
    said = case("too_much").stderr
    assert "CUDA out of memory. Tried to allocate 300.00 MiB" in said
    assert "out of memory: 100.00 MiB went back from pools and graphs of the driver's" in said


def test_graphs_memory_is_had_whatever_the_pools_do():
    case("graph_memory")
    case("graph_memory", conf=None)


@pytest.mark.parametrize("entry", ["cuDeviceGetDefaultMemPool", "cuMemPoolGetAttribute", "cuMemPoolSetAttribute",
                                   "cuMemPoolTrimTo"])
@pytest.mark.parametrize("lasting", ["", "+"])
def test_a_driver_whose_pool_functions_fail(tmp_path, entry, lasting):
    """The n-th call, n = 1, 2, 3 ..., or all from that on: the program goes on, and has what it had natively or is told."""
    path, injected = tmp_path / "sim.json", 1
    for n in range(1, 200):
        path.unlink(missing_ok=True)
        case("steady", SIMCUDA_FAIL=f"{entry}:{n}{lasting}:999", SIMCUDA_STATS=path)
        injected = json.loads(path.read_text())["injected"]
        if not injected:
            break
    assert not injected and n > 1


def test_no_driver_call_where_it_is_off(tmp_path):
    path = tmp_path / "sim.json"
    case("pairs", conf="async:driver", SIMCUDA_STATS=path)
    calls = json.loads(path.read_text())["calls"]
    assert not calls.get("cuMemPoolSetAttribute") and not calls.get("cuMemPoolTrimTo")
