# SPDX-License-Identifier: MIT
"""The result of a comparison: figures of each arm, table, verdict and warnings.

A run that failed gives no figure: it may have ended after a thousandth of the work. It is counted, and the verdict
begins with that count.
"""

import collections
import os
import statistics

from . import interval, terminal
from .measure import failed

LABEL_WIDTH = 30


def simulated(runs):
    """True if every run was on the simulated driver, None before the first."""
    return all(run["simulator"] is not None for run in runs) if runs else None


def _of(runs, name):
    return [run for run in runs if run["arm"] == name]


def _good(runs):
    return [run for run in runs if not failed(run)]


def _column(runs, get):
    return [get(run) for run in runs]


def _median(values):
    known = [value for value in values if value is not None]
    return round(statistics.median(known)) if known else None


def _calls(run):
    """The simulator's own count is exact; else what the library counted."""
    return run["simulator"]["driver_calls"] if run["simulator"] else run["driver_calls"]


def _peak(run):
    return run["simulator"]["peak_bytes"] if run["simulator"] else run["peak_reserved_bytes"]


def summary(arm, runs):
    """One arm: how many runs failed; of the others, mean and deviation of time and medians of the rest."""
    mine = _of(runs, arm.name)
    good = _good(mine)
    times = _column(good, lambda run: run["time_ns"])
    mean, deviation = interval.mean_and_sd(times) if times else (None, None)
    return {
        "name": arm.name, "label": arm.label, "environment": dict(arm.changes),
        "runs": len(mine), "failed_runs": len(mine) - len(good),
        "time_mean_ns": None if mean is None else round(mean),
        "time_sd_ns": None if deviation is None else round(deviation),
        "peak_reserved_bytes": _median(_column(good, _peak)),
        "driver_calls": _median(_column(good, _calls)),
        "driver_ns": _median(_column(good, lambda run: run["driver_ns"])),
        "alloc_calls": _median(_column(good, lambda run: run["alloc_calls"])),
    }


def ratio(pairs):
    """A's time over B's, in millionths, with the bounds of the 95 % interval; of the pairs in which neither failed."""
    whole = [pair for pair in pairs if len(_good(pair.values())) == 2]
    if not whole:
        return {"pairs": 0, "estimate_ppm": None, "low_ppm": None, "high_ppm": None}
    figures = interval.paired_ratio(*([pair[name]["time_ns"] for pair in whole] for name in "AB"))
    return {"pairs": len(whole),
            **dict(zip(("estimate_ppm", "low_ppm", "high_ppm"),
                       (None if figure is None else round(figure * 1e6) for figure in figures)))}


def how_it_ended(run):
    """"exit status 1, out of memory", or "SIGKILL"."""
    end = run["signal"] or f"exit status {run['exit_code']}"
    return end + (", out of memory" if run["out_of_memory"] else "")


def _failures(runs, name):
    """"A failed in 3 of 5 runs (exit status 1)"."""
    mine = _of(runs, name)
    if not mine:
        return f"{name} was not run"
    ends = collections.Counter(how_it_ended(run) for run in mine if failed(run))
    many = "; ".join(end if len(ends) == 1 else f"{number} with {end}" for end, number in ends.most_common(3))
    others = "; ..." if len(ends) > 3 else ""
    return f"{name} failed in {sum(ends.values())} of {len(mine)} runs ({many}{others})" if ends else f"{name} in none"


def failure_sentence(runs):
    """Who failed how often, or "" when nobody did; whoever failed comes first."""
    if len(_good(runs)) == len(runs):
        return ""
    parts = [_failures(runs, name) for name in "AB"]
    return ", ".join(sorted(parts, key=lambda part: " failed in " not in part))


def verdict(result):
    """The sentence: failures first, then what the pairs without any say about time."""
    failures, pairs = failure_sentence(result["runs"]), result["time_ratio"]["pairs"]
    if not pairs:
        return (failures or "no pair was measured") + "; no time is compared"
    if not failures:
        return about_time(result["time_ratio"], pairs)
    return f"{failures}; of the pairs in which neither failed: {about_time(result['time_ratio'], pairs)}"


def about_time(figures, pairs):
    """What pairs say about time."""
    estimate, low, high = (None if figures[key] is None else figures[key] / 1e6
                           for key in ("estimate_ppm", "low_ppm", "high_ppm"))
    if low is None:
        word = "faster" if estimate >= 1 else "slower"
        return f"one pair shows nothing: B was {max(estimate, 1 / estimate):.3g} times {word} than A in it"
    note = f"{pairs} pairs, interleaved"
    if low > 1:
        return f"B is {estimate:.4g} times faster than A (95% CI {low:.3g} to {high:.3g}, {note})"
    if high < 1:
        return f"B is {1 / estimate:.4g} times slower than A (95% CI {1 / high:.3g} to {1 / low:.3g}, {note})"
    return f"no difference shown: 95% CI {low:.3g} to {high:.3g} (A's time over B's, {note})"


def change(a, b):
    """"+6.8%" from a to b."""
    return f"{(b / a - 1) * 100:+.1f}%" if a and b is not None else "unknown"


def _header(result):
    """What must be said before any figure."""
    if not result["simulated"]:
        return []
    if result["simulated_latency"]:
        return [f"simulated times, source: SIMCUDA_LATENCY={result['simulated_latency']}; "
                "driver calls and bytes are exact"]
    return ["simulated driver without latencies: driver calls and bytes are exact,",
            "times are the simulator's own and say nothing about a GPU"]


def _time(arm):
    """Mean and deviation in one unit."""
    mean, deviation = arm["time_mean_ns"], arm["time_sd_ns"]
    if mean is None:
        return "-"
    unit, scale = next((pair for pair in (("s", 1e9), ("ms", 1e6)) if mean >= pair[1]), ("us", 1e3))
    digits = 1 if mean >= 100 * scale else 2
    spread = "" if deviation is None else f" ± {deviation / scale:.{digits}f}"
    return f"{mean / scale:.{digits}f}{spread} {unit}"


def _cut(label):
    return label if len(label) <= LABEL_WIDTH else label[:LABEL_WIDTH - 3] + "..."


def short_labels(first, second):
    """Both labels, cut where they are too long for the table, in a way that what differs is still seen."""
    common = len(os.path.commonprefix([first, second]))
    key = max(first.rfind(mark, 0, common) + 1 for mark in ", ")
    tries = [0, key, max(0, common - 8)] if first != second else [0]
    for start in tries:
        cut = [_cut(("..." if start else "") + label[start:]) for label in (first, second)]
        if cut[0] != cut[1]:
            break
    return cut


def _table(result):
    """Columns: the exact ones first when times are simulated."""
    time = [("time", 2), ("in driver calls", 3)]
    exact = [("driver calls", 0), ("peak reserved", 1)]
    columns = exact + time if result["simulated"] else time[:1] + exact[::-1] + time[1:]
    rows = [["", ""] + [title for title, _ in columns]]
    for arm, label in zip(result["arms"], short_labels(*(arm["label"] for arm in result["arms"]))):
        cells = (terminal.count_text(arm["driver_calls"]), terminal.size_text(arm["peak_reserved_bytes"]),
                 _time(arm), terminal.time_text(arm["driver_ns"]))
        rows.append([arm["name"], label] + [cells[which] for _, which in columns])
    return terminal.table(rows, right=(2, 3, 4, 5))


def text(result):
    """Table and verdict."""
    a, b = result["arms"]
    memory = f"peak memory {change(a['peak_reserved_bytes'], b['peak_reserved_bytes'])}"
    calls = "driver calls unknown"
    if None not in (a["driver_calls"], b["driver_calls"]):
        calls = f"driver calls {terminal.count_text(a['driver_calls'])} -> {terminal.count_text(b['driver_calls'])}"
    sentence = terminal.paint(verdict(result), "bold")
    if result["simulated"]:
        ending = [f"{calls}, {memory}", sentence]
    else:
        ending = [sentence, f"{memory}, {calls}"]
    return "\n".join(_header(result) + [_table(result)] + ending
                     + [f"seed {result['seed']}"])


def warn(result, warmup):
    """What makes the figures doubtful, each with what to do about it."""
    a, b = result["arms"]
    good = _good(result["runs"])
    seen = [run for run in good if run["alloc_calls"] is not None]
    if good and not [run for run in result["runs"] if run["alloc_calls"] is not None]:
        terminal.warning("nothing was intercepted: no run made a CUDA call that the library saw, so this "
                         "compares the program with itself")
        terminal.hint(f"`cachealloc doctor {result['command'][0]}` tells why")
    elif len(seen) < len(good):
        terminal.warning(f"{len(good) - len(seen)} of {len(good)} runs wrote no statistics")
    if a["alloc_calls"] != b["alloc_calls"] and None not in (a["alloc_calls"], b["alloc_calls"]):
        terminal.warning(f"the program allocated {a['alloc_calls']} times under A and {b['alloc_calls']} times "
                         "under B: not the same work")
    races = sum((run["simulator"] or {}).get("races") or 0 for run in result["runs"])
    if races:
        terminal.warning(f"the simulator saw {races} races")
    pairs = result["time_ratio"]["pairs"]
    if 0 < pairs < 5:  # with none, the verdict says why
        more = "use -r 5 or more" if result["pairs_wanted"] < 5 else f"{result['pairs_wanted']} were asked for"
        terminal.warning(f"{pairs} pairs only; {more}")
    _warn_times({name: _of(good, name) for name in "AB"}, warmup)


def _warn_times(runs, warmup):
    """`runs` by arm: those that did not fail."""
    slow = [interval.slow_start([run["time_ns"] for run in runs[name]]) for name in "AB"]
    if not warmup and all(slow):
        terminal.warning(f"the first pair was {min(slow) * 100:.0f}% slower; use --warmup 1")
    for name in "AB":
        found = interval.outliers([run["time_ns"] for run in runs[name]])
        found = [runs[name][index]["pair"] + 1 for index in found if index or not all(slow)]
        if found:
            terminal.warning(f"outliers under {name} (pair {', '.join(map(str, found))}): "
                             "is something else running?")
