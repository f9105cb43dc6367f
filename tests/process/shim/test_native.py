# SPDX-License-Identifier: MIT
"""Bad input and visible properties: with the preload a program prints what it prints without it."""

import subprocess

import pytest

from conftest import BUILD, clean_env, run

PROGRAM = BUILD / "tests" / "process" / "shim" / "cases_native"


def cases():
    listed = subprocess.run([str(PROGRAM), "--list"], env=clean_env(), capture_output=True, text=True)
    return listed.stdout.split() or ["(no build)"]


@pytest.mark.parametrize("case", cases())
@pytest.mark.parametrize("driver", ["13000", "12040"])
def test_same_answers(case, driver):
    native = run([PROGRAM, case], preload=False, SIMCUDA_DRIVER_VERSION=driver)
    ours = run([PROGRAM, case], SIMCUDA_DRIVER_VERSION=driver, CACHEALLOC_LOG="debug")
    assert native.returncode == 0, native.stderr
    assert ours.returncode == 0, ours.stderr
    assert ours.stdout == native.stdout
    assert "error" not in ours.stderr, ours.stderr


@pytest.mark.parametrize("case", cases())
@pytest.mark.parametrize("disable", ["1", "count"])
def test_same_answers_when_disabled(case, disable):
    native = run([PROGRAM, case], preload=False, check=0)
    ours = run([PROGRAM, case], check=0, CACHEALLOC_DISABLE=disable)
    assert ours.stdout == native.stdout
    assert ours.stderr == native.stderr
