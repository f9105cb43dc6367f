# SPDX-License-Identifier: MIT
"""Recorded training steps by stream-ordered memory, on a device that lags behind: what reaches the driver once the program has
settled, and what is reserved at the peak.

For each trace and lag a table is printed (pytest -rP): the calls after step 2 that allocate, free, map, trim or synchronise,
without the program's own synchronisations, natively, under each word that `async` accepts, and for the same steps by
cuMemAlloc under the library. Natively and with `driver` and `keep` each allocation is a call of the driver's; `pool` must make
none, and reserve at most 1 % more than cuMemAlloc does (inf1024 and med1024: the same or less; med128: 0.6 % more, since before
cuMemAlloc cuts it leaves what a thread keeps unmerged where nothing free lies beside it). Both depend a little on what has
finished when: so they are played up to three times.
CACHEALLOC_TEST_LONG=1: all traces and lags.
"""

import json
import os
import sys

import pytest

from conftest import BUILD, ROOT, async_words, run

sys.path.insert(0, str(ROOT / "tests" / "traces"))
import workload  # noqa: E402

PLAYER = BUILD / "tests" / "process" / "pool_model" / "trace_player"
LONG = bool(os.environ.get("CACHEALLOC_TEST_LONG"))
LAGS = (0, 20, 100, 300) if LONG else (0, 100)
TRACES = ("inf1024", "med128", "med1024") if LONG else ("inf1024",)
MEMORY = "140G"  # address space: a few words of each block are touched
#: words under which the library serves such memory itself
SERVED = [word for word in async_words() if word not in ("driver", "keep")]
#: driver calls that cost
CALLS = {
    "allocate": ("cuMemAlloc", "cuMemCreate", "cuMemAddressReserve"),
    "free": ("cuMemFree", "cuMemRelease", "cuMemAddressFree"),
    "map": ("cuMemMap", "cuMemUnmap", "cuMemSetAccess"),
    "trim": ("cuMemPoolTrimTo", "cuDeviceGraphMemTrim"),
    "synchronise": ("cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize"),
}


def kind_of(name):
    """The kind of an entry point, or None. Host memory and queries are none."""
    if name.startswith(("cuMemAllocHost", "cuMemFreeHost")):
        return None
    return next((kind for kind, starts in CALLS.items() if name.startswith(starts)), None)


def arms():
    """Name: the road, and the word of `async`; None is native."""
    return {"native": ("async", None), **{word: ("async", word) for word in async_words()}, "cuMemAlloc": ("sync", "driver")}


def play(path, arm, lag, steps=4, **env):
    """{"calls": {kind: n}, "peak_bytes": n, "peak_live_bytes": n} of one run."""
    road, word = arms()[arm]
    env = {"SIMCUDA_MEM": MEMORY, "SIMCUDA_RACES": "abort", "SIMCUDA_DEADLOCK": 60000, "CACHEALLOC_LOG": "error",
           **({"CACHEALLOC_CONF": f"async:{word}"} if word else {}), **env}
    done = run([PLAYER, road, steps, lag, path], preload=word is not None, timeout=600, **env)
    assert (done.returncode, done.stderr) == (0, ""), (done.returncode, done.stderr[-2000:])
    settled, last, own = map(json.loads, done.stdout.splitlines())
    calls = dict.fromkeys(CALLS, 0)
    for name, n in last["calls"].items():
        if kind_of(name):
            calls[kind_of(name)] += n - settled["calls"].get(name, 0)
    calls["synchronise"] -= own["syncs"]
    return {"calls": calls, "peak_bytes": last["peak_bytes"][0], "peak_live_bytes": own["peak_live_bytes"]}


def print_table(trace, lag, rows):
    print(f"{trace}, the device {lag} us behind each allocation")
    print(f"{'':11} " + " ".join(f"{kind:>11}" for kind in CALLS) + f" {'peak MiB':>9} {'live MiB':>9}")
    for arm, got in rows.items():
        print(f"{arm:11} " + " ".join(f"{n:>11}" for n in got["calls"].values()) +
              f" {got['peak_bytes'] >> 20:>9} {got['peak_live_bytes'] >> 20:>9}")


@pytest.fixture(scope="module", params=TRACES)
def trace(request, tmp_path_factory):
    return workload.prepare(request.param, tmp_path_factory.mktemp("trace"))


@pytest.mark.parametrize("lag", LAGS)
def test_training_steps(trace, lag):
    rows = {arm: play(trace, arm, lag) for arm in arms()}
    print_table(trace.stem, lag, rows)
    assert len({got["peak_live_bytes"] for got in rows.values()}) == 1
    for arm in ("native", "driver", "keep"):
        calls = rows[arm]["calls"]
        assert calls["allocate"] > 1000 and calls["free"] > 1000
        assert not (calls["map"] or calls["trim"] or calls["synchronise"])
    for arm in SERVED:
        assert not any(rows[arm]["calls"].values()), arm
        for _ in range(2):
            if rows[arm]["peak_bytes"] > 1.01 * rows["cuMemAlloc"]["peak_bytes"]:
                rows.update({again: play(trace, again, lag) for again in (arm, "cuMemAlloc")})
        assert rows[arm]["peak_bytes"] <= 1.01 * rows["cuMemAlloc"]["peak_bytes"], arm
