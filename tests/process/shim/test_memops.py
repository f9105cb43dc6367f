# SPDX-License-Identifier: MIT
"""CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: each block reads back its own flag, as natively, and costs no segment."""

import functools
import json
import subprocess

import pytest

from conftest import BUILD, clean_env, run

QUICK_EVERY = 4  # conftest.py
PROGRAM = BUILD / "tests" / "process" / "shim" / "cases_memops"
SEGMENT = 2 << 20


def cases():
    listed = subprocess.run([str(PROGRAM), "--list"], env=clean_env(), capture_output=True, text=True)
    return listed.stdout.split() or ["(no build)"]


SETTINGS = {"default": "", "finished": "reuse:finished", "host": "free_sync:host", "no_slack": "reuse_slack_mb:0",
            "tended": "trim_every:1"}


@functools.cache
def natively(case):
    return run([PROGRAM, case], preload=False, check=0)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("case", cases())
def test_same_answers(case, setting):
    native = natively(case)
    ours = run([PROGRAM, case], check=0, CACHEALLOC_LOG="warn", CACHEALLOC_CONF=SETTINGS[setting])
    assert (ours.stdout, ours.stderr) == (native.stdout, native.stderr)


@pytest.mark.parametrize("case", cases())
@pytest.mark.parametrize("disable", ["1", "count"])
def test_same_answers_when_disabled(case, disable):
    assert run([PROGRAM, case], check=0, CACHEALLOC_DISABLE=disable).stdout == natively(case).stdout


def peaks(tmp_path, case, **env):
    """Bytes held at most: natively, and with the library; the library's figures."""
    native, ours, stats = tmp_path / "native.json", tmp_path / "ours.json", tmp_path / "stats.json"
    run([PROGRAM, case], preload=False, check=0, SIMCUDA_STATS=native, **env)
    run([PROGRAM, case], check=0, SIMCUDA_STATS=ours, CACHEALLOC_STATS=stats, **env)
    native, ours, stats = (json.loads(path.read_text()) for path in (native, ours, stats))
    return native["peak_bytes"][0], ours["peak_bytes"][0], stats["devices"][0]


@pytest.mark.parametrize("case", ["ten_thousand_live", "every_other_one", "again_and_again"])
def test_what_is_held_is_native_and_a_segment_at_most(tmp_path, case):
    native, ours, device = peaks(tmp_path, case)
    assert ours <= native + SEGMENT, (native >> 20, ours >> 20)
    assert device["reserved_bytes"]["peak"] == ours


def test_ten_thousand_fit_where_they_do_natively():
    run([PROGRAM, "ten_thousand_live"], preload=False, check=0, SIMCUDA_MEM="40M")
    run([PROGRAM, "ten_thousand_live"], check=0, SIMCUDA_MEM="42M")


@pytest.mark.parametrize("name, nth, code", [("cuPointerSetAttribute", 1, 999), ("cuPointerSetAttribute", 2, 700),
                                             ("cuPointerGetAttribute", 1, 719), ("cuPointerGetAttributes", 2, 700)])
def test_the_drivers_own_errors_reach_the_program(name, nth, code):
    native, ours = (run([PROGRAM, "each_has_its_own"], preload=p, SIMCUDA_FAIL=f"{name}:{nth}:{code}") for p in (False, True))
    assert (ours.returncode, ours.stdout, ours.stderr) == (native.returncode, native.stdout, native.stderr)
