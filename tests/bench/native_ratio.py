#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Is any program slower with the preload than without? native_ratio.py [--out FILE].

Workloads of workloads.c on the simulator with published latencies. Each is run without and with the preload in pairs
(AB BA ...); the ratio preload/stock of wall times is the geometric mean with Student's 95 % interval; below 1 is
faster.
Driver calls are counted in a run of their own with the manual clock, where work finishes only in calls that wait: then
their number does not depend on speed. A table on stdout; JSON with --out. Nothing is enforced here; test_cost.py
compares the driver calls.
"""

import argparse
import json
import tempfile
from pathlib import Path

import measuring

WORKLOADS = ["rmm1", "rmm2", "rmm4", "handoff", "two_sides", "mixed_streams", "static", "naive", "threads",
             "priority"]
SOURCE = "simulated times, source: published"
# asked at the start, or free of cost
NOT_COUNTED = {"cuGetProcAddress", "cuGetProcAddress_v2", "cuCtxGetCurrent"}
HOST_WAITS = {"cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize"}


def driver_calls(workload, preload, steps=100, **extra):
    """{name: number} of a run with the manual clock."""
    with tempfile.TemporaryDirectory() as folder:
        calls = Path(folder) / "calls.json"
        measuring.run(["workloads", "--fixed", "--steps", steps, workload], preload, measuring.SIMULATOR,
                      SIMCUDA_STATS=calls, SIMCUDA_CLOCK="manual", SIMCUDA_DEADLOCK="on", **extra)
        return {k: v for k, v in json.loads(calls.read_text())["calls"].items() if k not in NOT_COUNTED}


def host_waits(calls):
    return sum(n for name, n in calls.items() if name in HOST_WAITS)


def wall_ms(workload, preload, steps):
    result = measuring.run(["workloads", "--steps", steps, workload], preload, measuring.SIMULATOR,
                           SIMCUDA_LATENCY="published")
    return result["wall_ns"] / 1e6


def measure(workload, pairs, steps):
    stock, loaded = measuring.in_pairs(lambda preload: wall_ms(workload, preload, steps), pairs)
    ratio, low, high = measuring.interval.paired_ratio(loaded, stock)
    calls = {preload: driver_calls(workload, preload) for preload in (False, True)}
    return {
        "workload": workload, "steps": steps, "pairs": pairs, "stock_ms": [round(t, 3) for t in stock],
        "preload_ms": [round(t, 3) for t in loaded], "ratio": ratio, "ratio_low": low, "ratio_high": high,
        "stock_calls": calls[False], "preload_calls": calls[True],
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
              host_waits(r["stock_calls"]), host_waits(r["preload_calls"]),
              f"{sum(r['stock_ms']) / len(r['stock_ms']):.1f}", f"{sum(r['preload_ms']) / len(r['preload_ms']):.1f}",
              f"{r['ratio']:.3f}", "-" if r["ratio_low"] is None else f"{r['ratio_low']:.3f} .. {r['ratio_high']:.3f}",
              verdict(r)] for r in rows]
    print(measuring.table(["workload", "stock calls", "ours", "host waits", "ours", "stock ms", "ours", "ratio", "95 %",
                           "verdict"], shown))


if __name__ == "__main__":
    main()
