# SPDX-License-Identifier: MIT
"""Recorded and generated training steps as a plain CUDA driver program, on the simulator, stock and preloaded."""

import json
import re
import subprocess
import sys

import pytest
from command import COMMAND, ROOT, compiler, environment  # noqa: F401  (fixtures)
from conftest import BUILD, LIBRARY, SIM, run
from schema import check

sys.path.insert(0, str(ROOT / "tests" / "traces"))
import workload  # noqa: E402

QUICK_EVERY = 4  # conftest.py
PROGRAM = BUILD / "tests" / "traces" / "trace_program"
NAMES = ("generated",) + workload.RECORDED
MEMORY = "64G"  # address space: only a few words of each block are touched


@pytest.fixture(scope="module", params=NAMES)
def trace(request, tmp_path_factory):
    return workload.prepare(request.param, tmp_path_factory.mktemp("trace"))


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return workload.prepare("generated:2:64:3", tmp_path_factory.mktemp("trace"))


@pytest.fixture(autouse=True)
def built():
    for path in (PROGRAM, LIBRARY, SIM / "libcuda.so.1"):
        if not path.exists():
            pytest.skip(f"not built: {path.name}")


def said(done):
    """{"allocs": n, ...} from the program's one line."""
    words = done.stdout.split()
    return dict(zip(words[::2], map(int, words[1::2])))


def test_contents_survive_and_every_allocation_is_counted(trace, tmp_path):
    stats, simulator = tmp_path / "stats.json", tmp_path / "simulator.json"
    done = run([PROGRAM, "--check", "50", trace], check=0, timeout=120, SIMCUDA_MEM=MEMORY, SIMCUDA_RACES="abort",
               CACHEALLOC_STATS=stats, SIMCUDA_STATS=simulator)
    counts = said(done)
    data = json.loads(stats.read_text())
    check(data, json.loads((ROOT / "scripts" / "schema" / "stats.schema.json").read_text()))
    device, calls = data["devices"][0], json.loads(simulator.read_text())["calls"]
    assert counts["frees"] // 60 < counts["checks"] <= counts["frees"] // 50  # not those below 4 bytes
    assert device["alloc_calls"] == counts["allocs"] and device["free_calls"] == counts["frees"]
    assert device["requested_bytes"]["peak"] <= counts["peak_live_bytes"]
    assert calls["cuMemAlloc_v2"] == device["driver_alloc_calls"]
    assert device["reserved_bytes"]["peak"] >= counts["peak_live_bytes"]


def test_steps_repeat_without_growth(small, tmp_path):
    """The second and later steps find everything in the cache."""
    taken = []
    for steps in (2, 6):
        stats = tmp_path / f"{steps}.json"
        run([PROGRAM, "--steps", steps, "--check", "3", small], check=0, CACHEALLOC_STATS=stats,
            SIMCUDA_RACES="abort")
        taken.append(json.loads(stats.read_text())["devices"][0]["driver_alloc_calls"])
    assert taken[1] <= taken[0] * 1.1


def phases():
    """Each phase frees all and then needs larger blocks, or smaller ones, without a word to the device: what the cache
    gives back depends on whether that keeps up. .trc text."""
    lines, block = [], 0
    for mib, count in ((20, 60), (30, 45), (44, 40), (24, 70), (60, 24)):
        lines += [f"A {block + i} {mib << 20} 1" for i in range(count)]
        lines += [f"F {block + i}" for i in range(count)]
        block += count
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("spin,clock", [(0, "real"), (300, "real"), (3000, "real"), (20, "manual")])
def test_a_recording_is_replayed_with_the_device_as_it_was(tmp_path, spin, clock):
    """On the manual clock nothing has ended before somebody waits: the device is as far behind as can be."""
    text, stats, trace = tmp_path / "phases.trc", tmp_path / "stats.json", tmp_path / "t.trace"
    text.write_text(phases())
    run([PROGRAM, "--steps", "2", *(["--spin-us", spin] if spin else []), text], check=0, SIMCUDA_MEM=MEMORY,
        SIMCUDA_CLOCK=clock, CACHEALLOC_STATS=stats, CACHEALLOC_TRACE=trace)
    device = json.loads(stats.read_text())["devices"][0]
    done = run([BUILD / "allocator" / "cachealloc-replay", "--memory", MEMORY, "--json", trace], check=0)
    again = json.loads(done.stdout)
    check(again, json.loads((ROOT / "scripts" / "schema" / "replay.schema.json").read_text()))
    assert again["lag_us"] is None
    print(spin, clock, device["reserved_bytes"]["peak"] >> 20, again["peak_reserved_bytes"] >> 20, device["trims"])
    assert abs(again["peak_reserved_bytes"] / device["reserved_bytes"]["peak"] - 1) <= 0.01


def test_contents_survive_behind_busy_kernels(small):
    done = run([PROGRAM, "--spin-us", "50", "--check", "3", small], check=0, SIMCUDA_RACES="abort")
    assert said(done)["checks"] > 50


def test_a_broken_allocator_is_noticed(small, tmp_path, compiler):
    library = tmp_path / "overlap.so"
    subprocess.run([compiler, "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", library,
                    ROOT / "tests" / "cli" / "overlap.c", "-ldl"], check=True)
    done = run([PROGRAM, "--check", "1", small], preload=False, LD_PRELOAD=library)
    assert done.returncode == 1 and "contents changed" in done.stderr


@pytest.mark.parametrize("line", ["A 1", "A x 512 0", "Q 1 2", "A 1 0 0", "F 99999999", "F 5", "A 1 512 0\nA 1 512 0"])
def test_malformed_traces_are_refused(tmp_path, line):
    path = tmp_path / "bad.trc"
    path.write_text(line + "\n")
    done = run([PROGRAM, path], preload=False)
    assert done.returncode == 1 and "trace_program:" in done.stderr


def test_compare_on_the_simulator(trace, tmp_path):
    """The main job: exact counts lead, times are headed by their source."""
    if trace.stem == "medvar":
        pytest.skip("24 steps with latencies take minutes")
    out = tmp_path / "out.json"
    env = environment(CACHEALLOC_BUILD=BUILD, SIMCUDA_MEM=MEMORY, SIMCUDA_LATENCY="published")
    done = subprocess.run([sys.executable, COMMAND, "compare", "--sim", "-r", "2", "--json", out, PROGRAM, trace],
                          env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("simulated times, source: SIMCUDA_LATENCY=published")
    data = json.loads(out.read_text())
    check(data, json.loads((ROOT / "scripts" / "schema" / "compare.schema.json").read_text()))
    a, b = data["arms"]
    events = trace.read_text().count("\nA ") + trace.read_text().count("\nI ")
    assert data["simulated"] is True and a["alloc_calls"] == b["alloc_calls"] >= events
    assert a["driver_calls"] == 2 * a["alloc_calls"] and b["driver_calls"] < a["driver_calls"] / 5
    assert {run_["simulator"]["races"] for run_ in data["runs"]} == {0}
    assert re.search(r"^B +cachealloc +\S", done.stdout, re.M)


def test_generated_is_the_same_for_the_same_seed_and_closed():
    text = workload.generated(layers=3, seed=5)
    assert text == workload.generated(layers=3, seed=5) != workload.generated(layers=3, seed=6)
    live, taken = set(), 0
    for line in text.splitlines():
        kind, *words = line.split()
        if kind in "IA":
            assert words[0] not in live
            live.add(words[0])
            taken += kind == "A"
        elif kind == "F":
            live.remove(words[0])
    assert taken and len(live) == text.count("\nI ") + 1


def test_documented_shape_of_the_generated_step():
    sizes = [int(line.split()[2]) for line in workload.generated().splitlines() if line.startswith("A")]
    numbers = re.search(r"(\d+) allocations, (\d+) % of them above 1 MiB, of (\d+) sizes", workload.__doc__).groups()
    assert tuple(map(int, numbers)) == (len(sizes), round(100 * sum(s > 1 << 20 for s in sizes) / len(sizes)),
                                        len(set(sizes)))
