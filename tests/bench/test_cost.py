# SPDX-License-Identifier: MIT
"""What the library may cost, in figures that are the same on every machine: instructions and driver calls."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hits
import launch_cost
import measuring
import native_ratio
import pairs

QUICK_EVERY = 4  # conftest.py
HERE = Path(__file__).resolve().parent
# of the library's own instructions for a malloc/free pair: what was measured and 15 %, a guard against accidents
PAIR_INSTRUCTIONS_MAX = {"same": 245, "ring": 260, "mixed": 1385}
HIT_INSTRUCTIONS_MAX = {"pair": 285, "live 1000": 355, "live 100000": 405,
                        "contexts 2": 420, "contexts 64": 605, "away 2": 595, "away 64": 775}

needs_valgrind = pytest.mark.skipif(bool(measuring.without_valgrind()), reason=str(measuring.without_valgrind()))


@needs_valgrind
@pytest.mark.parametrize("situation", launch_cost.LIMITS)
def test_a_launch_costs_few_instructions_more(build, situation):
    limit = launch_cost.LIMITS[situation][1]
    for _ in range(5):  # on a busy machine the program pauses, and what it does then is counted, too
        added, plain = launch_cost.added_instructions(situation)
        assert plain > 0
        if added <= limit:
            break
    assert added <= limit, f"{added:.1f} instructions more for each launch; {limit} are allowed"


@needs_valgrind
@pytest.mark.parametrize("situation", ["one", "eight", "after_pair_one"])
def test_a_launch_found_by_dlsym_costs_as_little(build, situation):
    assert launch_cost.added_instructions(situation, road="dlsym")[0] <= launch_cost.LIMITS[situation][1]


@pytest.mark.parametrize("driver", pairs.DRIVERS)
@pytest.mark.parametrize("variant", pairs.VARIANTS)
def test_frees_between_launches_share_a_mark(build, variant, driver):
    result = pairs.run(variant, driver, preload=True, rounds=8)
    assert result["frees"] == 9000
    assert result["marks_per_stream_per_64_frees"] <= pairs.LIMIT_MARKS, result


@needs_valgrind
@pytest.mark.parametrize("variant", pairs.VARIANTS)
def test_a_pair_takes_a_bounded_number_of_instructions(build, variant):
    # more than none, or the library was not there
    assert 0 < pairs.instructions_per_pair(variant) <= PAIR_INSTRUCTIONS_MAX[variant]


@needs_valgrind
def test_a_hit_takes_a_bounded_number_of_instructions_however_many_blocks_live(build):
    counted = {name: hits.instructions_per_pair(name) for name in hits.COUNTED}
    assert all(0 < counted[name] <= HIT_INSTRUCTIONS_MAX[name] for name in counted), counted
    assert counted["live 100000"] <= 1.3 * counted["live 1000"]


@needs_valgrind
@pytest.mark.parametrize("situation", ["pair", "live 1000"])
def test_a_hit_in_an_extent_takes_as_many_instructions(build, tmp_path, situation):
    calls = tmp_path / "calls.json"
    segments, extents = (hits.instructions_per_pair(situation, CACHEALLOC_CONF=f"expandable_segments:{on}", BENCH_CALLS=calls)
                         for on in (False, True))
    assert json.loads(calls.read_text())["creates"], "nothing was mapped"
    assert 0 < extents <= 1.05 * segments, (segments, extents)


@needs_valgrind
def test_a_told_pair_takes_a_bounded_multiple_of_one_that_is_not(build):
    pair = hits.instructions_per_pair("pair")
    ratios = {name: hits.instructions_per_pair(name) / pair for name in hits.TOLD}
    limits = {name: hits.LIMIT_TOLD_DEFAULT_TO_PAIR.get(name, hits.LIMIT_TOLD_TO_PAIR) for name in ratios}
    assert all(0 < ratio <= limits[name] for name, ratio in ratios.items()), (pair, ratios)


def test_a_hit_asks_the_driver_for_nothing_but_the_current_context(build):
    few, many = (hits.driver_calls(pairs=n) for n in (1000, 2000))
    more = {name: n - few.get(name, 0) for name, n in many.items() if n != few.get(name, 0)}
    assert more == {"cuCtxGetCurrent": 2000}


def published_ns(calls):
    text = (HERE.parent / "sim" / "latency_published.def").read_text()
    table = {name: int(ns) for name, ns in re.findall(r"SIM_LATENCY\((\w+), (\d+),", text)}
    assert {"cuMemAlloc_v2", "cuMemFree_v2", "cuEventQuery", "cuEventRecord", "cuLaunchKernel"} <= set(table)
    return sum(n * table.get(name, 0) for name, n in calls.items())


@pytest.mark.parametrize("workload", native_ratio.WORKLOADS)
def test_a_program_spends_no_more_in_driver_calls_than_stock(build, workload):
    """Calls counted, each as long as published for stock: events are asked more often than memory was, and cost less."""
    stock, ours = (native_ratio.steady_calls(workload, preload) for preload in (False, True))
    assert ours["cuLaunchKernel"] == stock["cuLaunchKernel"]
    assert published_ns(ours) <= published_ns(stock), (stock, ours)


@pytest.mark.parametrize("burst", [0, native_ratio.BURST])
@pytest.mark.parametrize("workload", native_ratio.WORKLOADS)
def test_the_host_waits_only_where_the_program_does(build, workload, burst):
    stock, ours = (native_ratio.driver_calls(workload, preload, burst) for preload in (False, True))
    assert ours["cuMemAlloc_v2"] < stock["cuMemAlloc_v2"], "the library was not there"
    assert native_ratio.host_waits(ours) <= native_ratio.host_waits(stock), (stock, ours)


@pytest.mark.parametrize("script, arguments, rows", [
    ("launch_cost.py", ["--pairs", "1", "one", "htod"], "situations"),
    ("hits.py", ["--runs", "1", "pair"], "rows"),
    ("pairs.py", ["--runs", "1", "ring"], "rows"),
    ("native_ratio.py", ["--pairs", "2", "--steps", "20", "rmm2"], "rows"),
])
def test_a_measurement_says_what_it_measured(build, tmp_path, script, arguments, rows):
    out = tmp_path / "out.json"
    subprocess.run([sys.executable, HERE / script, *arguments, "--out", out], check=True, timeout=300,
                   stdout=subprocess.DEVNULL)
    result = json.loads(out.read_text())
    assert (result["format"], result["format_version"]) == (script.removesuffix(".py"), 1)
    assert result[rows] and all(row for row in result[rows])
