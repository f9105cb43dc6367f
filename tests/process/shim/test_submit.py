# SPDX-License-Identifier: MIT
"""Every submitting entry point that the simulator builds: the same answer and the same effect as without the preload."""

import json
import re

import pytest

from conftest import BUILD, ROOT, run, simulator_entries

PROGRAM = BUILD / "tests" / "process" / "shim" / "submit_all"


def built():
    """Submitting entry points that the simulator builds: {symbol: is the per-thread flavour}"""
    rows = re.findall(r"^CA_[A-Z]+(_TWINS)?\((\w+), (\w+),", (ROOT / "shim" / "bind" / "submit.def").read_text(), re.M)
    symbols = {symbol: False for _, symbol, _ in rows}
    symbols |= {symbol + suffix: True for twins, symbol, suffix in rows if twins}
    entries = simulator_entries()
    return {symbol: per_thread for symbol, per_thread in symbols.items() if symbol in entries}


@pytest.mark.parametrize("flavour", ["legacy", "twins"])
def test_none_is_forgotten(tmp_path, flavour):
    run([PROGRAM, flavour], preload=False, check=0, SIMCUDA_STATS=tmp_path / "sim.json",
        SIMCUDA_DRIVER_VERSION="13050")
    called = json.loads((tmp_path / "sim.json").read_text())["calls"]
    wanted = {symbol for symbol, per_thread in built().items() if per_thread == (flavour == "twins")}
    assert len(wanted) > 25
    assert wanted - set(called) == set()


@pytest.mark.parametrize("flavour", ["legacy", "twins"])
@pytest.mark.parametrize("knobs", [{}, {"CACHEALLOC_CONF": "reuse_slack_mb:0"}, {"CACHEALLOC_DISABLE": "count"},
                                   {"CACHEALLOC_DISABLE": "1"}, {"SIMCUDA_DRIVER_VERSION": "12000"}, {"SIMCUDA_DRIVER_VERSION": "13050"},
                                   {"SIMCUDA_CLOCK": "manual"}], ids=str)
def test_same_answers_and_effects(flavour, knobs):
    native = run([PROGRAM, flavour], preload=False, check=0, SIMCUDA_RACES="abort",
                 **{name: value for name, value in knobs.items() if name.startswith("SIMCUDA")})
    ours = run([PROGRAM, flavour], check=0, SIMCUDA_RACES="abort", **knobs)
    assert ours.stdout == native.stdout and len(native.stdout.splitlines()) > 80
    # what we ask of the driver by ourselves may not be built; natively it is not asked
    said = re.sub(r"simcuda.*: \w+ is not built\n", "", ours.stderr)
    assert without_pid(said) == without_pid(native.stderr)


def without_pid(text):
    return re.sub(r"^simcuda\[\d+\]", "simcuda", text, flags=re.M)
