#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the preload adds to calls that submit work, on a driver that returns at once: launch_cost.py [--out FILE].

Nanoseconds: the median over pairs of runs of each run's fastest tenth; one process a run, pinned to a processor.
Instructions: by callgrind, exact. Both as the difference between the runs with and without the preload. A table on
stdout; JSON with --out. The limits are printed beside the figures and never enforced here: test_cost.py enforces
those on instructions.
"""

import argparse
import statistics
from pathlib import Path

import measuring

# situations of cost.c -> limits on what is added: (nanoseconds, instructions)
NOTHING_CHANGED, AFTER_ALLOCATION = (10, 40), (25, 80)
# the allocation hands out unfinished memory: the launch looks at the clock, and records a mark behind a lull
AFTER_HAND_OUT, HAND_OUT_AND_LAUNCH = (40, 120), (150, 500)
MANY_STREAMS, RECORDED = (10, 60), (None, 205)
# each stream's memory is handed out again once the stream was asked; each stream waits for the one before it
IN_ROTATION, HANDED_OUT_IN_ROTATION, RECORDED_AND_WAITED = (None, 1700), (None, 1250), (None, 600)
LIMITS = {
    **dict.fromkeys(["null", "one", "eight", "per_thread", "ex_one", "ex_eight"], NOTHING_CHANGED),
    **dict.fromkeys(["after_pair_null", "after_pair_one", "after_pair_eight", "after_alloc_eight"], AFTER_ALLOCATION),
    **dict.fromkeys(["after_alloc_null", "after_alloc_one"], AFTER_HAND_OUT),
    **dict.fromkeys(["handed_out_null", "handed_out_one"], HAND_OUT_AND_LAUNCH),
    **dict.fromkeys(["streams_16", "streams_256"], MANY_STREAMS),
    **dict.fromkeys(["record", "record_eight"], RECORDED),
    **dict.fromkeys(["used_pair_two", "used_pair_eight"], IN_ROTATION),
    "handed_out_eight": HANDED_OUT_IN_ROTATION,
    "record_wait": RECORDED_AND_WAITED,
}
# no limit: the launch may have to record a mark; and copies and sets, which look up what they touch
REPORTED = ["after_used_free_one", "after_used_free_eight", "streams_64", "used_pair_one", "htod", "dtoh", "dtod", "set",
            "htod_async", "dtoh_async", "dtod_async", "set_async"]
COUNTED_CALLS = 2048


def added_instructions(situation, road="proc", driver=measuring.AT_ONCE, **extra):
    """Instructions that the preload adds to one call, the mean over many; and the number without it."""
    argv = ["cost", "--road", road, "--rounds", 1, "--calls", COUNTED_CALLS, situation]
    plain, loaded = (measuring.instructions(argv, preload, driver, "measured", **extra)
                     for preload in (False, True))
    return (loaded - plain) / COUNTED_CALLS, plain / COUNTED_CALLS


def fastest(run):
    """The mean of a run's fastest tenth of rounds: what is left when nothing else ran."""
    rounds = sorted(run["ns_per_call"])
    return statistics.fmean(rounds[:max(1, len(rounds) // 10)])


def added_ns(situation, pairs, road, cpu):
    argv = ["cost", "--road", road, "--cpu", cpu, situation]
    plain, loaded = measuring.in_pairs(lambda preload: fastest(measuring.run(argv, preload, measuring.AT_ONCE)), pairs)
    return {
        "plain_ns": round(statistics.median(plain), 2),
        "preload_ns": round(statistics.median(loaded), 2),
        "added_ns": round(statistics.median(b - a for a, b in zip(plain, loaded)), 2),
        "added_min_ns": round(min(b - a for a, b in zip(plain, loaded)), 2),
        "added_max_ns": round(max(b - a for a, b in zip(plain, loaded)), 2),
    }


def measure(situations, pairs, road, cpu):
    counting = not measuring.without_valgrind()
    for situation in situations:
        limit_ns, limit_instructions = LIMITS.get(situation, (None, None))
        row = {"situation": situation, **added_ns(situation, pairs, road, cpu), "limit_ns": limit_ns,
               "added_instructions": None, "limit_instructions": limit_instructions}
        if counting:
            row["added_instructions"] = round(added_instructions(situation, road)[0], 1)
        yield row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=7, help="pairs of runs for each situation")
    parser.add_argument("--road", choices=["proc", "dlsym"], default="proc", help="how the program finds the driver")
    parser.add_argument("--out", type=Path, help="JSON")
    parser.add_argument("situations", nargs="*", help="of cost.c; all if none is named")
    args = parser.parse_args()
    measuring.need_build("cost", "libcuda.so.1")
    rows = list(measure(args.situations or [*LIMITS, *REPORTED], args.pairs, args.road, measuring.last_cpu()))
    measuring.write({"format": "launch_cost", "format_version": 1, "road": args.road, "pairs": args.pairs,
                     "situations": rows}, args.out)
    shown = [[r["situation"], r["plain_ns"], r["added_ns"], r["limit_ns"] or "-",
              "-" if r["added_instructions"] is None else r["added_instructions"], r["limit_instructions"] or "-"]
             for r in rows]
    print(measuring.table(["situation", "plain ns", "added ns", "limit", "added instructions", "limit"], shown))
    print(measuring.without_valgrind() or "Instructions are exact; times are not, and are lower on an idle machine.")


if __name__ == "__main__":
    main()
