# SPDX-License-Identifier: MIT
"""A comparison as text for a terminal or a pipe, and the warnings that go with it.

A table with short labels; each label that does not fit stands in full above it. On a terminal too narrow for the table
each arm gets a line a figure instead.
"""

import os

from . import interval, invocation, terminal, verdict
from .comparison import good, is_exact, of_arm

LABEL_WIDTH = 30


def change(a, b):
    """"+6.8%" from a to b."""
    return f"{(b / a - 1) * 100:+.1f}%" if a and b is not None else "unknown"


def header(result):
    """What must be said before any figure."""
    if not result["simulated"]:
        return []
    exact = all(map(is_exact, good(result["runs"])))
    if result["simulated_latency"]:
        return [f"simulated times, source: SIMCUDA_LATENCY={result['simulated_latency']}"
                + ("; driver calls and bytes are exact" if exact else "")]
    return [f"simulated driver without latencies:{' driver calls and bytes are exact,' if exact else ''}",
            "times are the simulator's own and say nothing about a GPU"]


def time_cell(arm):
    """Mean and deviation in one unit."""
    mean, deviation = arm["time_mean_ns"], arm["time_sd_ns"]
    if mean is None:
        return "-"
    unit, scale = next((pair for pair in (("s", 1e9), ("ms", 1e6)) if mean >= pair[1]), ("us", 1e3))
    digits = 1 if mean >= 100 * scale else 2
    spread = "" if deviation is None else f" ± {deviation / scale:.{digits}f}"
    return f"{mean / scale:.{digits}f}{spread} {unit}"


def metric_cell(summary):
    if summary["mean"] is None:
        return "-"
    return f"{summary['mean']:.5g}" + ("" if summary["sd"] is None else f" ± {summary['sd']:.2g}")


def columns(result):
    """[(title, [a cell of each arm])], the exact ones first when times are simulated."""
    arms = result["arms"]
    time = [("time", [time_cell(arm) for arm in arms])]
    inside = [("in driver calls", [terminal.time_text(arm["driver_ns"]) for arm in arms])]
    calls = [("driver calls", [terminal.count_text(arm["driver_calls"]) for arm in arms])]
    peak = [("peak reserved", [terminal.size_text(arm["peak_reserved_bytes"]) for arm in arms])]
    own = [(one["name"], [metric_cell(arm["metrics"][place]) for arm in arms])
           for place, one in enumerate(result["metrics"])]
    return own + calls + peak + time + inside if result["simulated"] else own + time + peak + calls + inside


def _cut(label):
    return label if len(label) <= LABEL_WIDTH else label[:LABEL_WIDTH - 3] + "..."


def short_labels(*labels):
    """The labels, cut where they are too long for the table, in a way that what differs is still seen."""
    common = len(os.path.commonprefix(labels))
    key = max(labels[0].rfind(mark, 0, common) + 1 for mark in ", ")
    cut = []
    for start in [0, key, max(0, common - 8)] if len(set(labels)) == len(labels) else [0]:
        cut = [_cut(("..." if start else "") + label[start:]) for label in labels]
        if len(set(cut)) == len(cut):
            break
    return cut


def _table(result, labels):
    """The rows of the table; without labels where there are none."""
    shown = columns(result)
    front = [[arm["name"]] + ([label] if labels else []) for arm, label in
             zip(result["arms"], labels or result["arms"])]
    rows = [[""] * len(front[0]) + [title for title, _ in shown]]
    rows += [names + [cells[place] for _, cells in shown] for place, names in enumerate(front)]
    return terminal.table(rows, right=range(len(front[0]), len(rows[0])))


def _list(result):
    """A line a figure, for narrow terminals."""
    found = []
    for place, arm in enumerate(result["arms"]):
        found.append(arm["name"])
        found += [f"  {title}: {cells[place]}" for title, cells in columns(result)]
    return "\n".join(found)


def _widest(text):
    return max(map(len, text.splitlines()))


def figures(result, width=None):
    """The table, with what does not fit above it."""
    labels = [arm["label"] for arm in result["arms"]]
    cut = short_labels(*labels)
    table = _table(result, cut)
    full = [f"{arm['name']} = {arm['label']}" for arm in result["arms"]]
    if width is None or _widest(table) <= width:
        return [line for line, short, label in zip(full, cut, labels) if short != label] + [table]
    table = _table(result, [])
    return full + [table if _widest(table) <= width else _list(result)]


def exact_lines(result):
    """Memory and driver calls of each other arm against the first."""
    first, *others = result["arms"]
    found = []
    for arm in others:
        if first["failed_runs"] == first["runs"] or arm["failed_runs"] == arm["runs"]:
            continue  # no run to take it from
        memory = f"peak memory {change(first['peak_reserved_bytes'], arm['peak_reserved_bytes'])}"
        calls = "driver calls unknown"
        if None not in (first["driver_calls"], arm["driver_calls"]):
            calls = (f"driver calls {terminal.count_text(first['driver_calls'])} -> "
                     f"{terminal.count_text(arm['driver_calls'])}")
        both = [calls, memory] if result["simulated"] else [memory, calls]
        found.append(("" if len(others) == 1 else f"{first['name']} -> {arm['name']}: ") + ", ".join(both))
    return found


def text(result, width=None):
    """Table and verdict."""
    said = [terminal.paint(line, "bold") for line in verdict.lines(result)] + verdict.about_metrics(result)
    exact = exact_lines(result)
    return "\n".join(header(result) + figures(result, width) + (exact + said if result["simulated"] else said + exact)
                     + [f"seed {result['seed']}"])


def warn(result, warmup):
    """What makes the figures doubtful, each with what to do about it."""
    worked = good(result["runs"])
    seen = [run for run in worked if run["alloc_calls"] is not None]
    unknown = sum(run["unknown_processes"] for run in worked)
    if unknown:
        terminal.warning(f"{unknown} processes ended by _exit, exec or a signal and left no figures: driver calls and memory "
                         "leave them out")
    elif worked and not [run for run in result["runs"] if run["alloc_calls"] is not None or run["unknown_processes"]]:
        terminal.warning("nothing was intercepted: no run made a CUDA call that the library saw, so this "
                         "compares the program with itself")
        terminal.hint(f"`{invocation.words()} doctor {result['command'][0]}` tells why")
    elif len(seen) < len(worked):
        terminal.warning(f"{len(worked) - len(seen)} of {len(worked)} runs wrote no statistics")
    if not result["preset"]:  # there, who asks the driver is what differs
        _warn_work(result["arms"])
    _warn_other(result)
    races = sum((run["simulator"] or {}).get("races") or 0 for run in result["runs"])
    if races:
        terminal.warning(f"the simulator saw {races} races")
    _warn_pairs(result)
    _warn_times({arm["name"]: of_arm(worked, arm["name"]) for arm in result["arms"]}, warmup)


def _warn_work(arms):
    first, *others = arms
    for arm in others:
        if first["alloc_calls"] != arm["alloc_calls"] and None not in (first["alloc_calls"], arm["alloc_calls"]):
            terminal.warning(f"the program allocated {first['alloc_calls']} times under {first['name']} and "
                             f"{arm['alloc_calls']} times under {arm['name']}: not the same work")


def _warn_other(result):
    """The simulator counts everything, but in processes that end at once."""
    silent = sum((run["simulator"] or {}).get("unknown_processes") or 0 for run in good(result["runs"]))
    if silent:
        terminal.warning(f"{silent} processes ended by _exit, exec or a signal, so the simulator tells nothing of them: driver calls and "
                         "memory of their runs are the library's count")
    for arm in result["arms"] if not result["simulated"] or silent else ():
        if arm["other_alloc_calls"]:
            terminal.warning(f"{arm['other_alloc_calls']} allocations of {arm['name']} were served by the driver itself (stream-ordered, "
                             "managed or virtual memory, arrays): its peak and its driver calls leave them out")


def _warn_pairs(result):
    """With no pair at all the verdict says why."""
    pairs = min((each["time_ratio"]["pairs"] for each in result["comparisons"] if each["time_ratio"]["pairs"]), default=0)
    if 0 < pairs < 5:
        more = "use -r 5 or more" if result["pairs_wanted"] < 5 else f"{result['pairs_wanted']} were asked for"
        terminal.warning(f"{pairs} pair{'s' if pairs > 1 else ''} only; {more}")


def _warn_times(runs, warmup):
    """`runs` by arm: those that did not fail."""
    slow = [interval.slow_start([run["time_ns"] for run in mine]) for mine in runs.values()]
    if not warmup and all(slow):
        terminal.warning(f"the first pair was {min(slow) * 100:.0f}% slower; use --warmup 1")
    for name, mine in runs.items():
        found = interval.outliers([run["time_ns"] for run in mine])
        found = [mine[index]["pair"] + 1 for index in found if index or not all(slow)]
        if found:
            terminal.warning(f"outliers under {name} (pair {', '.join(map(str, found))}): "
                             "is something else running?")
