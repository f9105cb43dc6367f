#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a malloc/free pair costs while eight streams are at work: pairs.py [--out FILE].

1,000 pairs between launches that rotate over 8 streams (pairs.c says which variants there are), on the driver that
returns at once, idle and busy, and on the simulator. Nanoseconds a pair: the median and the fastest round; launches are
not timed. Marks a stream for each 64 frees: counted by the driver. Instructions a pair: by callgrind. A table on
stdout; JSON with --out. Limits are printed; test_cost.py enforces the one on marks, and a guard on instructions.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path

import measuring

STREAMS = 8
LIMIT_NS, LIMIT_MARKS = 150, 1
VARIANTS = ["same", "ring", "mixed"]  # "used" has a launch in each pair: reported, no limit was set for it
# driver -> (its folder, its environment)
DRIVERS = {
    "idle": (measuring.AT_ONCE, {"BENCH_DEVICE": "idle"}),
    "busy": (measuring.AT_ONCE, {"BENCH_DEVICE": "busy"}),
    "simulator": (measuring.SIMULATOR, {}),
}


def driver_counts(driver, path):
    """(marks recorded, waits inserted, queries, host waits) from the driver's own count."""
    calls = json.loads(path.read_text())
    if driver != "simulator":
        return calls["records"] + calls["context_records"], calls["waits"], calls["queries"], calls["syncs"]
    calls = calls["calls"]

    def number(*names):
        return sum(calls.get(n, 0) for n in names)

    return (number("cuEventRecord", "cuCtxRecordEvent"), number("cuStreamWaitEvent"),
            number("cuEventQuery", "cuStreamQuery"),
            number("cuEventSynchronize", "cuStreamSynchronize", "cuCtxSynchronize"))


def run(variant, driver, preload, rounds=24, cpu=-1, **extra):
    """One run: pairs.c's JSON, and what the driver counted."""
    folder, env = DRIVERS[driver]
    # the simulator works in a thread of its own, which must not share the processor
    argv = ["pairs", "--streams", STREAMS, "--rounds", rounds, "--cpu", -1 if driver == "simulator" else cpu, variant]
    with tempfile.TemporaryDirectory() as temporary:
        calls = Path(temporary) / "calls.json"
        where = {"SIMCUDA_STATS" if driver == "simulator" else "BENCH_CALLS": calls}
        result = measuring.run(argv, preload, folder, **env, **where, **extra)
        marks, waits, queries, syncs = driver_counts(driver, calls)
    return {**result, "marks": marks, "waits": waits, "queries": queries, "host_waits": syncs,
            "marks_per_stream_per_64_frees": round(marks / STREAMS / (result["frees"] / 64), 4)}


def instructions_per_pair(variant, driver="idle", rounds=4, pairs=1000):
    """Instructions a pair that the preload adds."""
    folder, env = DRIVERS[driver]
    argv = ["pairs", "--streams", STREAMS, "--rounds", rounds, "--pairs", pairs, variant]
    plain, loaded = (measuring.instructions(argv, preload, folder, "measured_*", **env) for preload in (False, True))
    return (loaded - plain) / (rounds * pairs)


def measure(variant, driver, runs, cpu):
    plain, loaded = measuring.in_pairs(lambda preload: run(variant, driver, preload, cpu=cpu), runs)

    def ns(results):
        return statistics.median(statistics.median(r["ns_per_pair"]) for r in results)

    counted = driver != "simulator" and not measuring.without_valgrind()
    return {
        "variant": variant, "driver": driver, "plain_ns": round(ns(plain), 1), "preload_ns": round(ns(loaded), 1),
        "preload_min_ns": min(min(r["ns_per_pair"]) for r in loaded), "limit_ns": LIMIT_NS,
        **{key: loaded[-1][key] for key in ("launches", "frees", "marks", "waits", "queries", "host_waits",
                                            "marks_per_stream_per_64_frees")},
        "added_instructions": round(instructions_per_pair(variant, driver), 1) if counted else None,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5, help="pairs of runs for each row")
    parser.add_argument("--out", type=Path, help="JSON")
    parser.add_argument("variants", nargs="*", help="of pairs.c; all if none is named")
    args = parser.parse_args()
    measuring.need_build("pairs", "libcuda.so.1")
    rows = [measure(variant, driver, args.runs, measuring.last_cpu()) for driver in DRIVERS
            for variant in args.variants or [*VARIANTS, "used"]]
    measuring.write({"format": "pairs", "format_version": 1, "runs": args.runs, "streams": STREAMS, "rows": rows},
                    args.out)
    shown = [[f"{r['variant']} ({r['driver']})", r["plain_ns"], r["preload_ns"], r["preload_min_ns"],
              r["marks_per_stream_per_64_frees"], r["waits"], r["queries"], r["host_waits"],
              "-" if r["added_instructions"] is None else r["added_instructions"]] for r in rows]
    print(measuring.table(["variant (driver)", "plain ns", "preload ns", "fastest", "marks/stream/64 frees", "waits",
                           "queries", "host waits", "added instructions"], shown))
    print(f"Limits: {LIMIT_NS} ns a pair, {LIMIT_MARKS} mark a stream for each 64 frees; none for \"used\".")


if __name__ == "__main__":
    main()
