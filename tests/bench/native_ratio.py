#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Is any program slower with the preload than without? native_ratio.py [--out FILE].

Workloads of workloads.c on the simulator with published latencies. Each is run without and with the preload in pairs
(AB BA ...); the ratio preload/stock of wall times is the geometric mean with Student's 95 % interval; below 1 is
faster. Driver calls are counted in runs of their own with the manual clock, where work finishes only in calls that
wait: then their number does not depend on speed. They are those of a run less those of one half as long, so that what
is done once does not count. In one figure the program waits for all work after every 16 operations; in the other
("ahead") only at the end, so that nothing finishes before. A table on stdout; JSON with --out. Nothing is enforced
here; test_cost.py compares the driver calls.
"""

import argparse
import json
import tempfile
from pathlib import Path

import measuring

WORKLOADS = ["rmm1", "rmm2", "rmm4", "handoff", "two_sides", "mixed_streams", "static", "naive", "threads",
             "priority"]
BURST = 16  # operations between waits, where calls are counted
SOURCE = "simulated times, source: published"
# asked at the start, or free of cost
NOT_COUNTED = {"cuGetProcAddress", "cuGetProcAddress_v2", "cuCtxGetCurrent"}
HOST_WAITS = {"cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize"}


def driver_calls(workload, preload, burst=BURST, steps=96, **extra):
    """{name: number} of a run with the manual clock, in which all work is waited for after every burst (0: never)."""
    with tempfile.TemporaryDirectory() as folder:
        calls = Path(folder) / "calls.json"
        measuring.run(["workloads", "--fixed", "--steps", steps, "--burst", burst, workload], preload,
                      measuring.SIMULATOR, SIMCUDA_STATS=calls, SIMCUDA_CLOCK="manual", SIMCUDA_DEADLOCK="on",
                      **extra)
        return {k: v for k, v in json.loads(calls.read_text())["calls"].items() if k not in NOT_COUNTED}


def steady_calls(workload, preload, burst=BURST):
    """As driver_calls, for the second half of a run: without what is done once, or while pools fill."""
    half, whole = (driver_calls(workload, preload, burst, steps=n) for n in (96, 192))
    return {name: n - half.get(name, 0) for name, n in whole.items() if n > half.get(name, 0)}


def host_waits(calls):
    return sum(n for name, n in calls.items() if name in HOST_WAITS)


def wall_ms(workload, preload, steps):
    result = measuring.run(["workloads", "--steps", steps, workload], preload, measuring.SIMULATOR,
                           SIMCUDA_LATENCY="published")
    return result["wall_ns"] / 1e6


def measure(workload, pairs, steps):
    stock, loaded = measuring.in_pairs(lambda preload: wall_ms(workload, preload, steps), pairs)
    ratio, low, high = measuring.interval.paired_ratio(loaded, stock)
    calls, ahead = ({preload: steady_calls(workload, preload, burst) for preload in (False, True)}
                    for burst in (BURST, 0))
    return {
        "workload": workload, "steps": steps, "pairs": pairs, "stock_ms": [round(t, 3) for t in stock],
        "preload_ms": [round(t, 3) for t in loaded], "ratio": ratio, "ratio_low": low, "ratio_high": high,
        "stock_calls": calls[False], "preload_calls": calls[True],
        "stock_ahead_calls": ahead[False], "preload_ahead_calls": ahead[True],
    }


def verdict(row):
    if row["ratio_low"] is None:
        return "one pair shows nothing"
    if row["ratio_high"] < 1:
        return "faster"
    return "SLOWER" if row["ratio_low"] > 1 else "no difference shown"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=200, help="operations a run")
    parser.add_argument("--out", type=Path, help="JSON")
    parser.add_argument("workloads", nargs="*", help="of workloads.c; all if none is named")
    args = parser.parse_args()
    measuring.need_build("workloads")
    rows = [measure(w, args.pairs, args.steps) for w in args.workloads or WORKLOADS]
    measuring.write({"format": "native_ratio", "format_version": 1, "simulated": True, "times": SOURCE, "rows": rows},
                    args.out)
    print(SOURCE)
    shown = [[r["workload"], sum(r["stock_calls"].values()), sum(r["preload_calls"].values()),
              sum(r["stock_ahead_calls"].values()), sum(r["preload_ahead_calls"].values()),
              host_waits(r["stock_calls"]), host_waits(r["preload_calls"]),
              f"{sum(r['stock_ms']) / len(r['stock_ms']):.1f}", f"{sum(r['preload_ms']) / len(r['preload_ms']):.1f}",
              f"{r['ratio']:.3f}", "-" if r["ratio_low"] is None else f"{r['ratio_low']:.3f} .. {r['ratio_high']:.3f}",
              verdict(r)] for r in rows]
    print(measuring.table(["workload", "stock calls", "ours", "ahead: stock", "ours", "host waits", "ours",
                           "stock ms", "ours", "ratio", "95 %", "verdict"], shown))


if __name__ == "__main__":
    main()
