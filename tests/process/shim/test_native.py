# SPDX-License-Identifier: MIT
"""Bad input and visible properties: with the preload a program prints what it prints without it."""

import functools
import subprocess

import pytest

from conftest import BUILD, clean_env, run

QUICK_EVERY = 4  # conftest.py
PROGRAM = BUILD / "tests" / "process" / "shim" / "cases_native"


def cases():
    listed = subprocess.run([str(PROGRAM), "--list"], env=clean_env(), capture_output=True, text=True)
    return listed.stdout.split() or ["(no build)"]


KNOBS = {
    "memory_in_a_capture": {"SIMCUDA_MEM": "64M"},
    "capture_behind_a_wait": {"SIMCUDA_MEM": "40M"},
    "slow_death": {"SIMCUDA_MEM": "64M", "SIMCUDA_DEVICES": "2", "SIMCUDA_LATENCY": "cuCtxDestroy_v2:1s"},
}


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_capture_mode_after_a_refused_exchange(nth):
    knobs = {"SIMCUDA_MEM": "48M", "SIMCUDA_FAIL": f"cuThreadExchangeStreamCaptureMode:{nth}:999"}
    assert run([PROGRAM, "capture_mode_stays"], check=0, **knobs).stdout == "mode 0\n"


@functools.cache
def natively(case, **version):
    return run([PROGRAM, case], preload=False, **version, **KNOBS.get(case, {}))


@pytest.mark.parametrize("case", cases())
@pytest.mark.parametrize("driver", ["13050", "13000", "12040"])
def test_same_answers(case, driver):
    knobs = {"SIMCUDA_DRIVER_VERSION": driver, **KNOBS.get(case, {})}
    native = natively(case, SIMCUDA_DRIVER_VERSION=driver)
    ours = run([PROGRAM, case], CACHEALLOC_LOG="debug", **knobs)
    assert native.returncode == 0, native.stderr
    assert ours.returncode == 0, ours.stderr
    assert ours.stdout == native.stdout
    assert "error" not in ours.stderr, ours.stderr
    assert "newer than this driver" not in ours.stderr.replace(native.stderr, "")


@pytest.mark.parametrize("case", cases())
@pytest.mark.parametrize("disable", ["1", "count"])
def test_same_answers_when_disabled(case, disable):
    native = natively(case)
    ours = run([PROGRAM, case], check=0, CACHEALLOC_DISABLE=disable, **KNOBS.get(case, {}))
    assert native.returncode == 0, native.stderr
    assert ours.stdout == native.stdout
    assert ours.stderr == native.stderr
