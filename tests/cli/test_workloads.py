# SPDX-License-Identifier: MIT
"""The generator of workloads: the same everywhere, well-formed, and of the documented shape."""

import hashlib
import math
import subprocess
import sys

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "tests" / "traces"))
from workloads import catalogue, tables, trace, training  # noqa: E402
from workloads.chance import Chance, Zipf, exp, log  # noqa: E402

GEN = ROOT / "tests" / "traces" / "gen"
TINY = 0.01
# Of all synthetic workloads, seed 1. Changes only with a documented knob: peers and we were compared on these bytes.
DIGEST = "c395571b0602c3f600c4eaaf7d3b79e101c796d262f0de505b997d599e9343b5"


def events(text):
    return [line.split() for line in text.splitlines()]


@pytest.fixture(scope="module")
def texts():
    return {name: catalogue.make(name, 1, TINY, synthetic=True) for name in catalogue.ALL}


def test_all_workloads_are_what_they_were(texts):
    whole = hashlib.sha256()
    for name in sorted(texts):
        whole.update(texts[name].encode())
    assert whole.hexdigest() == DIGEST


@pytest.mark.parametrize("name", catalogue.ALL)
def test_the_same_seed_gives_the_same_bytes_and_another_one_others(name, texts):
    assert catalogue.make(name, 1, TINY, synthetic=True) == texts[name]
    if name not in ("W1a", "W1b"):  # fixed shapes
        assert any(catalogue.make(name, seed, TINY, synthetic=True) != texts[name] for seed in (2, 3, 4))


def check(text, uses=False):
    """Every id is known, live once, and freed once; returns the number of allocations."""
    live, started, allocations = set(), False, 0
    for words in events(text):
        kind = words[0]
        assert (kind == "I") <= (not started)
        started = kind != "I"
        if kind in "IA":
            assert len(words) == 4 and words[1] not in live and int(words[2]) > 0 and 0 <= int(words[3]) < 1 << 16
            live.add(words[1])
            allocations += 1
        elif kind == "F":
            assert len(words) == 2
            live.remove(words[1])
        elif kind == "U":
            assert uses and words[1] in live
        else:
            assert words == ["P"]
    return allocations


@pytest.mark.parametrize("name", catalogue.ALL)
def test_every_workload_is_well_formed_and_has_phases(name, texts):
    assert check(texts[name]) >= 10
    assert "P" in texts[name].split("\n") or name == "W10a"  # too short at this scale


@pytest.mark.parametrize("name", ["W2b", "W3b", "W4b", "W5a-10k-4", "W5b", "W6", "W7c", "W8", "W9", "W10d"])
def test_a_larger_scale_is_longer(name):
    sizes = [len(catalogue.make(name, 3, scale, synthetic=True)) for scale in (0.05, 0.2)]
    assert 2 < sizes[1] / sizes[0] < 8


def test_recorded_steps_follow_each_other_and_nothing_piles_up():
    text = catalogue.make("W1b", 1, 0.2)
    assert check(text) > 4 * 6000
    live, at_end, shapes, shape = {}, [], [], []
    for words in events(text):
        if words[0] in "IA":
            live[words[1]] = int(words[2])
            shape.append(words[2])
        elif words[0] == "F":
            del live[words[1]]
        else:
            at_end.append(sum(live.values()))
            shapes.append([s for s in shape])
            shape = []
    assert len(set(at_end)) == 1  # each step leaves what the one before left
    assert all(shape == shapes[1] for shape in shapes[2:])  # and is the same
    assert check(catalogue.make("W2a", 5, 0.1)) > 2 * 6000


def test_random_allocations_keep_to_their_knobs():
    text = catalogue.make("W5a-10k-64", 4, 1)
    taken, live, peak, total = [], {}, 0, 0
    for words in events(text.split("P\n", maxsplit=1)[0]):
        if words[0] == "A":
            taken.append(int(words[2]))
            live[words[1]] = taken[-1]
            total += taken[-1]
        else:
            total -= live.pop(words[1])
        peak = max(peak, total)
    assert len(taken) == 10000 and 0 < min(taken) and max(taken) <= 64 << 20
    assert 0.98 * tables.LIVE_MAX < peak <= tables.LIVE_MAX
    uncapped = [words for words in events(catalogue.make("W5a-10k-1", 4, 1).split("P\n", maxsplit=1)[0])]
    sizes = [int(words[2]) for words in uncapped if words[0] == "A"]
    assert abs(sum(sizes) / len(sizes) / (1 << 19) - 1) < 0.03
    assert abs(len(sizes) / len(uncapped) / tables.ALLOCATE - 1) < 0.03


def test_lengths_are_lognormal_and_clipped():
    chance = Chance(11)
    lengths = sorted(training.length(chance) for _ in range(4000))
    assert lengths[0] >= 128 and lengths[-1] <= 4096 and not any(s % 8 for s in lengths)
    assert abs(lengths[2000] / 700 - 1) < 0.08
    assert abs(lengths[int(4000 * 0.8413)] / (700 * math.exp(0.8)) - 1) < 0.1


def test_numbers_are_evenly_spread_and_functions_right():
    chance, zipf = Chance(5, "x"), Zipf(100)
    counts = [0] * 10
    for _ in range(20000):
        counts[chance.integer(0, 9)] += 1
    assert max(counts) < 2200 and min(counts) > 1800
    ranks = [zipf.rank(chance) for _ in range(20000)]
    assert min(ranks) == 1 and max(ranks) == 100
    assert abs(ranks.count(1) / ranks.count(2) - 2) < 0.2
    for x in (-30.5, -1.0, -1e-3, 0.0, 0.5, 1.0, 12.25, 40.0):
        assert math.isclose(exp(x), math.exp(x), rel_tol=1e-13)
        assert math.isclose(log(exp(x)), x, rel_tol=1e-12, abs_tol=1e-13)
    assert [Chance(1).bits(), Chance(0).bits()] == [0x910A2DEC89025CC1, 0xE220A8397B1DCDAF]  # splitmix64's


def gen(*argv):
    return subprocess.run([sys.executable, GEN, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)


def test_gen_writes_what_was_asked_for(tmp_path):
    out = tmp_path / "w.trc"
    assert gen("W7b", "--seed", "3", "--scale", "0.01", "-o", out).returncode == 0
    assert out.read_text() == gen("W7b", "--seed", "3", "--scale", "0.01").stdout == catalogue.make("W7b", 3, 0.01)
    assert gen("W4", "--scale", "0.01").stdout == catalogue.make("W4b", 1, 0.01)
    told = gen("W7b", "--scale", "0.01", "--uses").stdout
    assert "\nU " in told and check(told, uses=True)
    listed = gen("--list").stdout
    assert all(name in listed for name in (*catalogue.ALL, *catalogue.PLAIN))


@pytest.mark.parametrize("argv, why", [(["W11"], "W11"), ([], "which workload"), (["W8", "--scale", "0"], "scale"),
                                       (["W8", "--seed", "x"], "--seed"), (["W8", "--scale", "nan"], "scale")])
def test_gen_explains_what_it_cannot_do(argv, why):
    done = gen(*argv)
    assert done.returncode == 2 and why in done.stderr and not done.stdout


def test_gen_says_so_when_it_cannot_write(tmp_path):
    done = gen("W9", "--scale", "0.01", "-o", tmp_path / "no" / "w.trc")
    assert done.returncode == 1 and "No such file" in done.stderr
