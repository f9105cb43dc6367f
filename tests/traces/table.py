#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints what each workload takes with our allocator and with the peers, and whether ours keeps its promises.

Rows: the workloads W1-W10 and static (workloads/), and the recorded traces (recorded/), unless --no-recorded. Columns:
waste is 1 - peak requested / peak reserved; the least capacity is that with which the trace completes, above the peak
requested; calls are driver allocations. All figures are exact and the same in each run.

The exit status is 1 if a promise is broken, 3 if ours is not built (its column says so, and nothing is judged).
"""

import argparse
import json
import lzma
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from workloads import catalogue  # noqa: E402

PEERS = ("torch", "cub", "cub-g2", "stock", "stock-reuse", "limit")
RECORDED = ("inf1024", "med128", "med1024", "medvar")
FIXED_SHAPE = ("W1a", "W1b")
MIB = 1 << 20
FIGURES = ("peak_live_bytes", "peak_reserved_bytes", "min_capacity_bytes", "driver_alloc_calls", "driver_free_calls")


# ---------------------------------------------------------------------------------------------- measuring ---


def figure(data, name):
    """The first figure of that name in JSON of any depth; None if there is none."""
    if isinstance(data, dict):
        if isinstance(data.get(name), int):
            return data[name]
        if isinstance(data.get(name), dict) and isinstance(data[name].get("total"), int):
            return data[name]["total"]
    inner = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    return next((found for each in inner if (found := figure(each, name)) is not None), None)


def replayed(argv, timeout):
    """The figures of one replay, and its waste; {"failed": why}."""
    try:
        done = subprocess.run([str(a) for a in argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=timeout)
    except subprocess.TimeoutExpired:
        return {"failed": f"took more than {timeout} s"}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]}
    try:
        data = json.loads(done.stdout)
    except ValueError:
        return {"failed": "did not print JSON"}
    found = {name: figure(data, name) for name in FIGURES}
    if found["peak_live_bytes"] is None or found["peak_reserved_bytes"] is None:
        return {"failed": "JSON without peak_live_bytes and peak_reserved_bytes"}
    reserved = found["peak_reserved_bytes"]
    found["waste_ppm"] = (reserved - found["peak_live_bytes"]) * 1000000 // reserved if reserved else 0
    return found


def one_step(path):
    """The trace up to the end of its first phase, beside it."""
    short = path.with_suffix(".step1.trc")
    with path.open(encoding="ascii") as whole, short.open("w", encoding="ascii") as file:
        for line in whole:
            file.write(line)
            if line.startswith("P"):
                break
    return short


class Bench:
    def __init__(self, options):
        build = Path(options.build)
        self.peer = build / "tests" / "traces" / "models" / "peer-replay"
        self.ours = build / "allocator" / "cachealloc-replay"
        self.ours_only = (["--conf", options.conf] if options.conf else []) + (["--lag", options.lag] if options.lag else [])
        self.options = options
        if not self.peer.exists():
            sys.exit(f"table.py: not built: {self.peer}: `meson configure -Dtests=true {build} && ninja -C {build}` builds it")

    def names(self):
        """(name, group) of each row."""
        rows = [(name, catalogue.group(name)) for name in catalogue.ALL]
        if not self.options.no_recorded:
            rows += [(name, "recorded") for name in RECORDED]
        wanted = self.options.only
        return [row for row in rows if not wanted or any(row[0] == w or row[1] == w for w in wanted)]

    def write(self, name, path):
        if name in RECORDED:
            with lzma.open(HERE / "recorded" / f"{name}.trc.xz", "rb") as file:
                path.write_bytes(file.read())
        else:
            path.write_text(catalogue.make(name, self.options.seed, self.options.scale), encoding="ascii")

    def our_argv(self, path):
        return [self.ours, path, *self.ours_only, "--json"]

    def row(self, name, group):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{name}.trc"
            self.write(name, path)
            return self.measured({"workload": name, "group": group}, path)

    def measured(self, row, path):
        limit = self.options.timeout
        for peer in PEERS:
            row[peer] = replayed([self.peer, "--model", peer, "--find-min-capacity", "--json", path], limit)
        built = self.ours.exists()
        row["ours"] = (replayed([*self.our_argv(path), "--find-min-capacity"], limit) if built
                       else {"failed": "not built"})
        if row["workload"] in FIXED_SHAPE:
            short = one_step(path)
            self.after_first(row["torch"], replayed([self.peer, "--model", "torch", "--json", short], limit))
            if built:
                self.after_first(row["ours"], replayed(self.our_argv(short), limit))
        return row

    @staticmethod
    def after_first(whole, first):
        """Adds the driver calls that a trace makes after its first phase."""
        if "failed" not in whole and "failed" not in first:
            whole["calls_after_step_1"] = sum(whole[name] - first[name]
                                              for name in ("driver_alloc_calls", "driver_free_calls"))


# ----------------------------------------------------------------------------------------------- judging ---


def mean(numbers):
    numbers = list(numbers)
    return sum(numbers) / len(numbers) if numbers else None


def group_mean(rows, value):
    """Of the means of each group, so that W5's many rows count as one workload."""
    return mean(mean(value(r) for r in rows if r["group"] == g) for g in dict.fromkeys(r["group"] for r in rows))


def over(row, peer):
    """Ours above the peer's, of the least capacity."""
    return row["ours"]["min_capacity_bytes"] / row[peer]["min_capacity_bytes"] - 1


def waste(row, name):
    return row[name]["waste_ppm"] / 1e6


def verdicts(rows):
    """[(promise, kept, what was found)]; rows where ours failed count against it."""
    failed = [r["workload"] for r in rows if "failed" in r["ours"] or r["ours"]["min_capacity_bytes"] is None]
    good = [r for r in rows if r["workload"] not in failed]
    found = [("replays every workload", not failed, ", ".join(failed) or f"{len(good)} of {len(rows)}")]
    if not good:
        return found
    worse = [f"{r['workload']} {waste(r, 'ours'):.1%} > {waste(r, 'torch'):.1%}" for r in good
             if r["ours"]["waste_ppm"] > r["torch"]["waste_ppm"]]
    found.append(("waste no higher than PyTorch's on every workload", not worse, ", ".join(worse) or "all"))
    for title, average in (("rows", lambda value: mean(map(value, good))),
                           ("workloads", lambda value: group_mean(good, value))):
        ours, torch = (average(lambda r, n=n: waste(r, n)) for n in ("ours", "torch"))
        found.append((f"mean waste over {title} lower than PyTorch's by a third", ours <= torch * 2 / 3,
                      f"{ours:.2%} against {torch:.2%}"))
    larger = [f"{r['workload']} {over(r, 'torch'):+.2%}" for r in good if over(r, "torch") > 0]
    found.append(("least capacity no higher than PyTorch's on every workload", not larger, ", ".join(larger) or "all"))
    for peer in ("stock", "stock-reuse"):
        for title, average in (("rows", mean([over(r, peer) for r in good])),
                               ("workloads", group_mean(good, lambda r, p=peer: over(r, p)))):
            found.append((f"least capacity at most 2 % above {peer}'s, mean over {title}", average <= 0.02 + 1e-9,
                          f"{average:+.2%}"))
    fixed = {r["workload"]: r["ours"].get("calls_after_step_1") for r in good if r["workload"] in FIXED_SHAPE}
    if fixed:
        found.append(("no driver calls after step 1 of fixed-shape training", not any(fixed.values()),
                      ", ".join(f"{name} {calls}" for name, calls in fixed.items())))
    return found


# ---------------------------------------------------------------------------------------------- printing ---

WASTE = ("ours", "torch", "cub", "cub-g2", "stock")
CAPACITY = ("ours", "torch", "cub-g2", "stock", "stock-reuse", "limit")
CALLS = ("ours", "torch", "cub-g2", "stock")
HEAD = (["workload", "live MiB"] + [f"waste% {n}" for n in WASTE] + [f"least% {n}" for n in CAPACITY]
        + [f"calls {n}" for n in CALLS] + ["ours after step 1"])


def cells(row):
    def least(one):
        if one.get("min_capacity_bytes") is None:
            return "-"
        return f"{100 * (one['min_capacity_bytes'] / one['peak_live_bytes'] - 1):+.1f}"

    def shown(name, text):
        return "-" if "failed" in row[name] else text(row[name])
    return ([row["workload"], shown("torch", lambda d: f"{d['peak_live_bytes'] / MIB:.0f}")]
            + [shown(name, lambda d: f"{d['waste_ppm'] / 1e4:.1f}") for name in WASTE]
            + [shown(name, least) for name in CAPACITY]
            + [shown(name, lambda d: str(d["driver_alloc_calls"])) for name in CALLS]
            + [str(row["ours"].get("calls_after_step_1", ""))])


def means(rows):
    def average(name):
        if any("failed" in r[name] for r in rows):
            return "-"
        return f"{100 * mean(waste(r, name) for r in rows):.1f}"
    return ["mean", ""] + [average(name) for name in WASTE] + [""] * (len(HEAD) - 2 - len(WASTE))


def print_plain(lines):
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        print("  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths))))


def print_rows(rows):
    lines = [cells(row) for row in rows] + [means(rows)]
    try:
        if not sys.stdout.isatty():
            raise ImportError
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        heads = [HEAD[0].split(" ", 1)] + [title.split(" ", 1) for title in HEAD[1:]]
        print_plain([[head[0] for head in heads], [head[-1] if len(head) > 1 else "" for head in heads]] + lines)
        return
    table = Table()
    for i, title in enumerate(HEAD):
        table.add_column(title, justify="right" if i else "left")
    for line in lines:
        table.add_row(*line)
    Console().print(table)


def compared(lag):
    """The sentence before the promises: which devices they compare."""
    ours = f"ours with a device that is {lag.removesuffix('us')} us behind" if lag else "ours with a device that keeps up"
    unlike = " (only ours knows --lag)" if lag else ""
    return (f"Compared: {ours}, the peers with one that keeps up{unlike}. FAIL: a promise does not hold in the rows named, and the "
            "exit status is 1. tests/traces/README.md says how far ours is today.")


def report(rows, options):
    built = any(row["ours"].get("failed") != "not built" for row in rows)
    judged = verdicts(rows) if built else []
    if options.json:
        print(json.dumps({"format": "workloads", "format_version": 1, "seed": options.seed, "scale": options.scale,
                          "conf": options.conf, "lag": options.lag, "rows": rows,
                          "promises": [{"promise": p, "kept": kept, "found": found} for p, kept, found in judged]},
                         indent=1))
    else:
        print_rows(rows)
        for row in rows:
            if "failed" in row["ours"] and built:
                print(f"{row['workload']}: ours failed: {row['ours']['failed']}")
        if judged:
            print(compared(options.lag))
        for promise, kept, found in judged:
            print(f"{'pass' if kept else 'FAIL'}: {promise}: {found}")
        if not built:
            print("ours: not built; nothing is judged (`ninja -C build` builds it)")
    if not built:
        return 3
    return 0 if all(kept for _, kept, _ in judged) else 1


def main(argv):
    parser = argparse.ArgumentParser(prog="table.py", description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--build", default=os.environ.get("CACHEALLOC_BUILD", HERE.parent.parent / "build"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--conf", default="", help="our allocator's CACHEALLOC_CONF; default: none")
    parser.add_argument("--lag", default="", metavar="N[us]",
                        help="work of the device behind each allocation, for ours; default: it keeps up")
    parser.add_argument("--no-recorded", action="store_true", help="without the recorded traces")
    parser.add_argument("--timeout", type=int, default=120, metavar="S", help="of one replay; default: 120 s")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("only", nargs="*", metavar="NAME", help="rows (W5b, med1024) or groups (W5, recorded); default: all")
    options = parser.parse_args(argv)
    bench = Bench(options)
    names = bench.names()
    if not names:
        parser.error("no such workload")
    with ThreadPoolExecutor(options.jobs) as pool:
        rows = list(pool.map(lambda name: bench.row(*name), names))
    return report(rows, options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
