#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints what each workload reserves with expandable_segments:True, and its bounds.

Waste is peak reserved over peak live, less 1: with a device that keeps up, and with 20, 100 and 300 us of work behind each
allocation (where these differ). The least capacity likewise, and maps and unmaps after the first and after the third phase,
are of a device that keeps up. All figures are exact and the same in each run. The exit status is 1 if a bound is not kept.
"""

import argparse
import os
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import table  # noqa: E402

LAGS = (0, 20, 100, 300)  # microseconds
CONF = "expandable_segments:True"
# (rows, waste in %), the first that matches; the rest has no bound of its own
WASTE = (("static", None), ("inf|med", 4.5), ("W[1-4][abc]|W6|W10c", 4.5), (r"W5a-.*-(1|4)$", 8), (r"W5a-.*-64$", 13),
         (r"W5a-", 9), ("W5b|W7c|W10a", 13), ("W10d", 6), ("W7a|W7b|W9|W10f", 7.5), ("W8", 47.2), ("W10b|W10e", 6.5))
MEAN_WASTE = 7
CAPACITY = (("W[123][ab]|W6|W10c|inf|med", 1), (r"W5a-.*-64$|W4b", 3), ("W10d", 6))
# rows -> maps and unmaps after the third phase
CALLS = {"W1a": (2, 0), "W1b": (2, 0), "W2a": (2, 0), "W3a": (10, None), "W2b": (75, None), "W6": (0, 0)}


def bound(rules, name):
    return next((value for pattern, value in rules if re.match(pattern, name)), None)


def over(figures, name):
    return 100 * (figures[name] / figures["peak_live_bytes"] - 1)


def up_to_phase(path, n):
    """The trace up to the end of its nth phase, beside it."""
    short = path.with_suffix(f".step{n}.trc")
    with path.open(encoding="ascii") as whole, short.open("w", encoding="ascii") as file:
        for line in whole:
            file.write(line)
            n -= line.startswith("P")
            if not n:
                break
    return short


def replayed(bench, path, lag, *more):
    behind = ["--lag", f"{lag}us"] if lag else []
    found = table.replayed([bench.ours, path, "--json", "--conf", CONF, *behind, *more], bench.options.timeout)
    if "failed" in found:
        sys.exit(f"extents_table.py: {path.name}: {found['failed']}")
    return found


def row(bench, name):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.trc"
        bench.write(name, path)
        whole = replayed(bench, path, 0, *([] if bench.options.no_least else ["--find-min-capacity"]))
        found = {"name": name, "steps": path.read_text(encoding="ascii").count("\nP"), "figures": whole,
                 "waste": [over(replayed(bench, path, lag), "peak_reserved_bytes") for lag in LAGS],
                 "least": None if bench.options.no_least else over(whole, "min_capacity_bytes")}
        for n in (1, 3):
            part = replayed(bench, up_to_phase(path, n), 0)
            found[n] = [whole[name] - part[name] for name in ("driver_alloc_calls", "driver_free_calls")]
        return found


def broken(found):
    """What the row does not keep, in words."""
    name, wrong = found["name"], []
    most = bound(WASTE, name)
    if most is not None and max(found["waste"]) > most:
        wrong.append(f"waste above {most} %")
    most = bound(CAPACITY, name)
    if None not in (most, found["least"]) and found["least"] > most:
        wrong.append(f"least capacity above {most} %")
    later = max(found["steps"] - 3, 0)
    for what, count, each in zip(("maps", "unmaps"), found[3], CALLS.get(name, (None, None))):
        if each is not None and count > each * later:
            wrong.append(f"more than {each} {what} a step")
    return "; ".join(wrong)


def cells(found):
    wastes = [f"{each:.1f}" for each in found["waste"]]
    return [found["name"], f"{found['figures']['peak_live_bytes'] / table.MIB:.0f}",
            wastes[0] if len(set(wastes)) == 1 else " ".join(wastes), "-" if found["least"] is None else f"{found['least']:.1f}", str(found["steps"]),
            "%d, %d" % tuple(found[1]), "%d, %d" % tuple(found[3]), broken(found)]


def main(argv):
    parser = argparse.ArgumentParser(prog="extents_table.py", description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--build", default=os.environ.get("CACHEALLOC_BUILD", HERE.parent.parent / "build"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--timeout", type=int, default=300, metavar="S", help="of one replay; default: 300 s")
    parser.add_argument("--no-least", action="store_true", help="without the least capacity, which takes many replays")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("only", nargs="*", metavar="NAME", help="rows or groups; default: all")
    options = parser.parse_args(argv)
    options.no_recorded, options.conf, options.lag = False, "", ""
    bench = table.Bench(options)
    names = bench.names()
    if not names:
        parser.error("no such workload")
    with ThreadPoolExecutor(options.jobs) as pool:
        rows = list(pool.map(lambda each: row(bench, each[0]), names))
    table.print_plain([["workload", "live MiB", "waste %", "least %", "steps", "after step 1", "after step 3", "not kept"]]
                      + [cells(found) for found in rows])
    means = [table.mean(r["waste"][i] for r in rows if r["name"] != "static") for i in range(len(LAGS))]
    if not options.only:
        print("mean waste: " + " ".join(f"{each:.2f}" for each in means) + f" %, at most {MEAN_WASTE}")
    return int(any(map(broken, rows)) or (not options.only and max(means) > MEAN_WASTE))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
