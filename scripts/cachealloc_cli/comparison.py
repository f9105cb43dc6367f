# SPDX-License-Identifier: MIT
"""The result of a comparison: figures of each arm, table, verdict and warnings."""

import statistics

from . import interval, terminal


def simulated(pairs):
    """True if every run was on the simulated driver, None before the first pair."""
    runs = [run for pair in pairs for run in pair.values()]
    return all(run["simulator"] is not None for run in runs) if runs else None


def _column(pairs, name, get):
    return [get(pair[name]) for pair in pairs]


def _median(values):
    known = [value for value in values if value is not None]
    return round(statistics.median(known)) if known else None


def _calls(run):
    """The simulator's own count is exact; else what the library counted."""
    return run["simulator"]["driver_calls"] if run["simulator"] else run["driver_calls"]


def _peak(run):
    return run["simulator"]["peak_bytes"] if run["simulator"] else run["peak_reserved_bytes"]


def summary(arm, pairs):
    """One arm: mean and deviation of time, medians of the rest."""
    times = _column(pairs, arm.name, lambda run: run["time_ns"])
    mean, deviation = interval.mean_and_sd(times) if times else (None, None)
    return {
        "name": arm.name, "label": arm.label, "environment": dict(arm.changes),
        "time_mean_ns": None if mean is None else round(mean),
        "time_sd_ns": None if deviation is None else round(deviation),
        "peak_reserved_bytes": _median(_column(pairs, arm.name, _peak)),
        "driver_calls": _median(_column(pairs, arm.name, _calls)),
        "driver_ns": _median(_column(pairs, arm.name, lambda run: run["driver_ns"])),
        "alloc_calls": _median(_column(pairs, arm.name, lambda run: run["alloc_calls"])),
    }


def ratio(pairs):
    """A's time over B's, in millionths, with the bounds of the 95 % interval."""
    if not pairs:
        return {"estimate_ppm": None, "low_ppm": None, "high_ppm": None}
    figures = interval.paired_ratio(*(_column(pairs, name, lambda run: run["time_ns"]) for name in "AB"))
    return dict(zip(("estimate_ppm", "low_ppm", "high_ppm"),
                    (None if figure is None else round(figure * 1e6) for figure in figures)))


def verdict(figures, pairs):
    """The sentence about time."""
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
    unit, scale = next((pair for pair in (("s", 1e9), ("ms", 1e6)) if mean >= pair[1]), ("us", 1e3))
    digits = 1 if mean >= 100 * scale else 2
    spread = "" if deviation is None else f" ± {deviation / scale:.{digits}f}"
    return f"{mean / scale:.{digits}f}{spread} {unit}"


def _table(result):
    """Columns: the exact ones first when times are simulated."""
    time = [("time", 2), ("in driver calls", 3)]
    exact = [("driver calls", 0), ("peak reserved", 1)]
    columns = exact + time if result["simulated"] else time[:1] + exact[::-1] + time[1:]
    rows = [["", ""] + [title for title, _ in columns]]
    for arm in result["arms"]:
        cells = (terminal.count_text(arm["driver_calls"]), terminal.size_text(arm["peak_reserved_bytes"]),
                 _time(arm), terminal.time_text(arm["driver_ns"]))
        label = arm["label"] if len(arm["label"]) <= 30 else arm["label"][:27] + "..."
        rows.append([arm["name"], label] + [cells[which] for _, which in columns])
    return terminal.table(rows, right=(2, 3, 4, 5))


def text(result):
    """Table and verdict."""
    a, b = result["arms"]
    memory = f"peak memory {change(a['peak_reserved_bytes'], b['peak_reserved_bytes'])}"
    calls = "driver calls unknown"
    if None not in (a["driver_calls"], b["driver_calls"]):
        calls = f"driver calls {terminal.count_text(a['driver_calls'])} -> {terminal.count_text(b['driver_calls'])}"
    sentence = terminal.paint(verdict(result["time_ratio"], result["pairs_done"]), "bold")
    if result["simulated"]:
        ending = [f"{calls}, {memory}", sentence]
    else:
        ending = [sentence, f"{memory}, {calls}"]
    return "\n".join(_header(result) + [_table(result)] + ending
                     + [f"seed {result['seed']}"])


def warn(result, warmup):
    """What makes the figures doubtful, each with what to do about it."""
    a, b = result["arms"]
    runs = {name: [run for run in result["runs"] if run["arm"] == name] for name in "AB"}
    seen = [run for run in result["runs"] if run["alloc_calls"] is not None]
    if not seen:
        terminal.warning("nothing was intercepted: no run made a CUDA call that the library saw, so this "
                         "compares the program with itself")
        terminal.hint(f"`cachealloc doctor {result['command'][0]}` tells why")
    elif len(seen) < len(result["runs"]):
        terminal.warning(f"{len(result['runs']) - len(seen)} of {len(result['runs'])} runs wrote no statistics")
    if a["alloc_calls"] != b["alloc_calls"] and None not in (a["alloc_calls"], b["alloc_calls"]):
        terminal.warning(f"the program allocated {a['alloc_calls']} times under A and {b['alloc_calls']} times "
                         "under B: not the same work")
    races = sum((run["simulator"] or {}).get("races") or 0 for run in result["runs"])
    if races:
        terminal.warning(f"the simulator saw {races} races")
    if any(run["exit_code"] != 0 for run in result["runs"]):
        terminal.warning("some runs failed; their times are included")
    if result["pairs_done"] < 5:
        terminal.warning(f"{result['pairs_done']} pairs only; use -r 5 or more")
    _warn_times(runs, warmup)


def _warn_times(runs, warmup):
    slow = [interval.slow_start([run["time_ns"] for run in runs[name]]) for name in "AB"]
    if not warmup and all(slow):
        terminal.warning(f"the first pair was {min(slow) * 100:.0f}% slower; use --warmup 1")
    for name in "AB":
        found = interval.outliers([run["time_ns"] for run in runs[name]])
        found = [index for index in found if index or not all(slow)]
        if found:
            terminal.warning(f"outliers under {name} (pair {', '.join(str(index + 1) for index in found)}): "
                             "is something else running?")
