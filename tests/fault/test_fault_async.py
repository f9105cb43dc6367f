# SPDX-License-Identifier: MIT
"""The driver calls of stream-ordered memory fail in turn, natively and under each word of `async` by which something is done.

fault_async skips what fails: it must end by itself, with right contents and nothing lost. The random program
(tests/stress/async) and the model of PyTorch's backend (tests/process/pool_model) end at the first error: it must have reached
them as it is, or been overcome, and until then contents, order and figures are right. CACHEALLOC_TEST_LONG=1: more calls of
each entry point.
"""

import json
import os
import re

import pytest

from conftest import BUILD, async_words, run

QUICK_EVERY = 4  # conftest.py

FAULT = BUILD / "tests" / "fault" / "fault_async"
RANDOM = BUILD / "tests" / "stress" / "async_program"
MODEL = BUILD / "tests" / "process" / "pool_model" / "pool_model"
LONG = bool(os.environ.get("CACHEALLOC_TEST_LONG"))
WORDS = [word for word in async_words() if word != "driver"]
#: programs cannot go on without these, whoever serves them; look-ups are no driver calls
LEFT_OUT = {"cuInit", "cuGetProcAddress", "cuGetProcAddress_v2"}
#: what has to do with memory that is allocated and freed in streams, and with segments, by whatever road
OF_POOLS = re.compile(r"MemPool|Alloc|MemFree|GraphMem|cuMem(Create|Release|Map|Unmap|Address|SetAccess)|Event|WaitEvent|"
                      r"Synchronize|Capture|cuMemGetInfo")
OUT_OF_MEMORY, UNKNOWN = 2, 999


def go(argv, word, path, fail=None, memory="64M", **env):
    path.unlink(missing_ok=True)
    env = {"SIMCUDA_MEM": memory, "SIMCUDA_RACES": "abort", "SIMCUDA_STATS": path, "SIMCUDA_DEADLOCK": 60000,
           **({"CACHEALLOC_CONF": f"async:{word}", "CACHEALLOC_LOG": "debug"} if word else {}),
           **({"SIMCUDA_FAIL": fail} if fail else {}), **env}
    done = run(argv, preload=word is not None, timeout=120, **env)
    return done, json.loads(path.read_text()) if path.exists() else {}


def entries(argv, word, path, **env):
    """{name: calls} of a clean run."""
    done, counted = go(argv, word, path, **env)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    return {name: n for name, n in counted["calls"].items() if name not in LEFT_OUT}


def code_of(entry):
    return OUT_OF_MEMORY if re.search("MemAlloc|MemCreate|GraphLaunch", entry) else UNKNOWN


def sound(done, word):
    assert done.returncode == 0, (done.returncode, done.args, done.stderr[-2000:])
    if word:
        assert "every invariant of the records holds" in done.stderr, done.stderr[-2000:]
        assert "inconsistent" not in done.stderr


@pytest.mark.parametrize("word", [None, *WORDS], ids=str)
def test_nth_call_fails(word, tmp_path, reached):
    """Each entry point that a clean run reaches; natively those of pools."""
    path = tmp_path / "sim.json"
    for entry, calls in sorted(entries([FAULT], word, path).items()):
        if not word and not OF_POOLS.search(entry):
            continue
        code, number = code_of(entry), 0
        for n in range(1, 10000):
            if not LONG and n > 12 and n % 5:
                continue
            done, counted = go([FAULT], word, path, f"{entry}:{n}:{code}")
            if not counted["injected"]:
                break
            sound(done, word)
            number += 1
        reached.append((f"{entry} (async:{word})", code, number))


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("fail", [
    "cuMemAllocAsync:3+:2,cuMemAllocFromPoolAsync:1+:2",        # the device's pools stay full
    "cuMemPoolTrimTo:1+:999", "cuMemPoolSetAttribute:1+:999", "cuMemPoolGetAttribute:1+:999",
    "cuDeviceGetDefaultMemPool:1+:999", "cuMemPoolCreate:1+:2", "cuMemGetInfo_v2:3+:999",
    "cuEventRecord:1+:999", "cuEventQuery:1+:999", "cuEventCreate:1+:2", "cuStreamWaitEvent:1+:999", "cuCtxRecordEvent:1+:999",
])
def test_lasting_failures(word, fail, tmp_path):
    """Memory may stay where it cannot be given back; contents and records must be right."""
    done, _ = go([FAULT], word, tmp_path / "sim.json", fail)
    assert done.returncode in (0, 3), (done.returncode, done.stderr[-2000:])
    assert "every invariant of the records holds" in done.stderr, done.stderr[-2000:]


PROGRAMS = {
    "random": ([RANDOM, 3, 150, 4, 1, 1], {"SIMCUDA_CLOCK": "manual:16"}),
    "model": ([MODEL, "random", 3, 200, 1, 4], {"memory": "4G", "SIMCUDA_CLOCK": "manual:16"}),
    "short": ([MODEL, "short", 0, 0, 1, 2, "retry"], {"memory": "256M", "SIMCUDA_CLOCK": "manual:16"}),
}


def turns(calls):
    """Which calls fail: the first, the last, and some between."""
    some = range(1, calls + 1) if LONG and calls < 50 else (1, 2, calls // 3, 2 * calls // 3, calls)
    return sorted({n for n in some if 1 <= n <= calls})


def told(done, code):
    """The program has seen the code, and says so; or OutOfMemoryError, which it is made of."""
    text = done.stdout + done.stderr
    return f": {code}" in text or f"AcceleratorError({code})" in text or (code == OUT_OF_MEMORY and "OutOfMemoryError" in text)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("word", [None, *WORDS], ids=str)
def test_errors_reach_the_program(word, name, tmp_path, reached):
    argv, env = PROGRAMS[name]
    path, number, overcome = tmp_path / "sim.json", 0, 0
    for entry, calls in sorted(entries(argv, word, path, **env).items()):
        if not OF_POOLS.search(entry):
            continue
        for n in turns(calls):
            done, counted = go(argv, word, path, f"{entry}:{n}:{code_of(entry)}", **env)
            if not counted.get("injected"):
                continue
            number += 1
            assert done.returncode in (0, 1, 2), (entry, n, done.returncode, done.stderr[-2000:])
            assert "simcuda: race" not in done.stderr and "wrong words" not in done.stderr, (entry, n, done.stderr[-2000:])
            if done.returncode == 0:
                overcome += 1
                continue
            figures = "attribute" in done.stderr or "reserved" in done.stderr
            assert told(done, code_of(entry)) or figures, (entry, n, done.stderr[-2000:])
    reached.append((f"{name} (async:{word}), {overcome} overcome", "2 or 999", number))
    assert number
