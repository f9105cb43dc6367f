# SPDX-License-Identifier: MIT
"""Every driver call fails in turn: the n-th call of each entry point, n = 1, 2, 3 ... until a run sees no failure.

The program must end by itself, with right contents and nothing lost, and the allocator's records must be
consistent at exit. The entry points are those that a clean run reached; the log says how many failures were.
"""

import json

import pytest

from conftest import BUILD, run

QUICK_EVERY = 4  # conftest.py
PROGRAM = BUILD / "tests" / "fault" / "fault_program"
CODES = (2, 999)
#: programs cannot go on without these, whoever serves them
FATAL = {"cuInit"}


def go(tmp_path, fail, mem="64M", operations=60, **env):
    sim = tmp_path / "sim.json"
    sim.unlink(missing_ok=True)
    done = run([PROGRAM, operations], timeout=120, SIMCUDA_MEM=mem, SIMCUDA_RACES="abort", SIMCUDA_STATS=sim,
               CACHEALLOC_LOG="debug", **({"SIMCUDA_FAIL": fail} if fail else {}), **env)
    return done, json.loads(sim.read_text())


def entries():
    if not PROGRAM.exists():
        return ["(no build)"]
    import pathlib
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        _, sim = go(pathlib.Path(folder), None)
    return sorted(sim["calls"])


def sound(done):
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    assert "every invariant of the records holds" in done.stderr, done.stderr[-2000:]
    assert "inconsistent" not in done.stderr


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("entry", entries())
def test_nth_call_fails(tmp_path, reached, entry, code):
    number = 0
    for n in range(1, 10000):
        done, sim = go(tmp_path, f"{entry}:{n}:{code}")
        if entry not in FATAL or done.returncode != 4:
            sound(done)
        if sim["injected"] == 0:
            break
        number += 1
    reached.append((entry, code, number))
    assert sim["injected"] == 0


MAPPED = {"CACHEALLOC_CONF": "expandable_segments:True,expandable_slack_percent:0"}
VMM = ("cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemRelease", "cuMemRetainAllocationHandle", "cuMemUnmap",
       "cuMemAddressFree", "cuDeviceGetAttribute", "cuDeviceGetCount", "cuDeviceTotalMem_v2")


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("entry", VMM)
def test_nth_mapping_call_fails(tmp_path, reached, entry, code):
    """With mapped memory: in the trial, in growth, in moves, at the end of the memory and of a context."""
    # on a real clock it is a matter of time whether memory moves at all
    clock = "manual" if entry == "cuMemRetainAllocationHandle" else "real"
    number = 0
    for n in range(1, 10000):
        done, sim = go(tmp_path, f"{entry}:{n}:{code}", mem="16M", SIMCUDA_CLOCK=clock, **MAPPED)
        sound(done)
        if sim["injected"] == 0:
            break
        number += 1
    reached.append((f"{entry} (mapped)", code, number))
    assert number > 0


@pytest.mark.parametrize("driver", ["12040", "13000"])
def test_clean_run(tmp_path, driver):
    done, sim = go(tmp_path, None, SIMCUDA_DRIVER_VERSION=driver)
    sound(done)
    assert sim["races"] == 0


@pytest.mark.parametrize("fail", [
    "cuCtxRecordEvent:5+:999",                              # marks fail for good: the host waits instead
    "cuEventCreate:1+:2",
    "cuEventQuery:3+:999",
    "cuCtxRecordEvent:5+:700,cuCtxSynchronize:1+:700",      # and that fails too: no more reuse
    "cuEventQuery:1+:700,cuCtxSynchronize:1+:700,cuEventSynchronize:1+:700",
    "cuMemAlloc_v2:10+:2",                                  # a device that stays full
])
def test_lasting_failures(tmp_path, fail):
    done, _ = go(tmp_path, fail)
    # memory may stay with a context that answers nothing but errors; contents and records must be right
    assert done.returncode in (0, 3), (done.returncode, done.stderr[-2000:])
    assert "every invariant of the records holds" in done.stderr, done.stderr[-2000:]
