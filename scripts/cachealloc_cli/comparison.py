# SPDX-License-Identifier: MIT
"""The result of a comparison: figures of each arm, and every other arm against the first.

A run that failed gives no figure: it may have ended after a thousandth of the work. It is counted.

All that is claimed at once shares one error rate of 5 %: with n claims (other arms, times figures, and failures where
there are any) each interval has a confidence of 1 - 0.05/n (Bonferroni), and each exact test has to fall below 0.05/n.
"""

import statistics

from . import interval
from .measure import failed

LEVEL = 0.95


def simulated(runs):
    """True if every run was on the simulated driver, None before the first."""
    return all(run["simulator"] is not None for run in runs) if runs else None


def of_arm(runs, name):
    return [run for run in runs if run["arm"] == name]


def good(runs):
    return [run for run in runs if not failed(run)]


def _median(values):
    known = [value for value in values if value is not None]
    return round(statistics.median(known)) if known else None


def is_exact(run):
    """The simulator has counted every process."""
    return run["simulator"] is not None and not run["simulator"]["unknown_processes"]


def _calls(run):
    """The simulator's own count is exact; else what the library counted."""
    return run["simulator"]["driver_calls"] if is_exact(run) else run["driver_calls"]


def _peak(run):
    """The library knows of no memory that the driver served by itself: where that is all, the peak is unknown."""
    if is_exact(run):
        return run["simulator"]["peak_bytes"]
    return None if not run["alloc_calls"] and run["other_alloc_calls"] else run["peak_reserved_bytes"]


def _metric_summary(runs, place):
    """Mean and deviation of one metric over the runs that have it."""
    values = [run["metrics"][place] for run in runs if run["metrics"][place] is not None]
    mean, deviation = interval.mean_and_sd(values) if values else (None, None)
    return {"runs": len(values), "mean": mean, "sd": deviation}


def summary(arm, runs, metrics=()):
    """One arm: how many runs failed; of the others, mean and deviation of time and medians of the rest."""
    mine = of_arm(runs, arm.name)
    worked = good(mine)
    times = [run["time_ns"] for run in worked]
    mean, deviation = interval.mean_and_sd(times) if times else (None, None)
    return {
        "name": arm.name, "label": arm.label, "environment": dict(arm.changes), "unset": list(arm.removed),
        "command": arm.command, "runs": len(mine), "failed_runs": len(mine) - len(worked),
        "out_of_memory_runs": sum(run["out_of_memory"] for run in mine),
        "time_mean_ns": None if mean is None else round(mean),
        "time_sd_ns": None if deviation is None else round(deviation),
        "peak_reserved_bytes": _median(map(_peak, worked)),
        "driver_calls": _median(map(_calls, worked)),
        "driver_ns": _median(run["driver_ns"] for run in worked),
        "alloc_calls": _median(run["alloc_calls"] for run in worked),
        "other_alloc_calls": _median(run["other_alloc_calls"] for run in worked),
        "metrics": [_metric_summary(worked, place) for place in range(len(metrics))],
    }


def claims(arms, metrics, runs):
    """How many things the verdict may claim."""
    figures = 1 + len(metrics) + (len(good(runs)) < len(runs))
    return max(1, (arms - 1) * figures)


def confidence_of(number):
    """Of each of so many intervals."""
    return 1 - (1 - LEVEL) / number


def _ppm(figures):
    return dict(zip(("estimate_ppm", "low_ppm", "high_ppm"),
                    (None if figure is None else round(figure * 1e6) for figure in figures)))


def ratio(pairs, names=("A", "B"), confidence=LEVEL):
    """The first one's time over the second's, in millionths, with its bounds; of the pairs in which neither failed."""
    whole = [pair for pair in pairs if len(good([pair[name] for name in names])) == 2]
    figures = (None, None, None)
    if whole:
        figures = interval.paired_ratio(*([pair[name]["time_ns"] for pair in whole] for name in names), confidence)
    return {"pairs": len(whole), **_ppm(figures)}


def metric(pairs, names, place, better, confidence=LEVEL):
    """The second one's figure over the first's, or less the first's where one is not above 0."""
    values = [[pair[name]["metrics"][place] for name in names] for pair in pairs
              if not any(failed(pair[name]) for name in names)]
    values = [both for both in values if None not in both]
    kind = "ratio" if all(value > 0 for both in values for value in both) else "difference"
    figures = (None, None, None)
    if values:
        method = interval.paired_ratio if kind == "ratio" else interval.paired_difference
        figures = method([both[1] for both in values], [both[0] for both in values], confidence)
    return {"kind": kind, "pairs": len(values), **dict(zip(("estimate", "low", "high"), figures)),
            "verdict": _judged(figures, 1 if kind == "ratio" else 0, better)}


def _judged(figures, same, better):
    _, low, high = figures
    if low is None:
        return "unknown"
    if low <= same <= high:
        return "no difference shown"
    return "better" if (low > same) == (better == "higher") else "worse"


def failure_p(runs, names):
    """p of the exact test, or None where one was not run."""
    counts = [(len(mine) - len(good(mine)), len(mine)) for mine in (of_arm(runs, name) for name in names)]
    if not all(number for _, number in counts):
        return None
    return interval.fisher_exact(*counts[0], *counts[1])


def comparisons(names, pairs, runs, metrics=()):
    """Every other arm against the first: a list for the JSON."""
    confidence = confidence_of(claims(len(names), metrics, runs))
    return [{
        "arm": name, "reference": names[0], "time_ratio": ratio(pairs, (names[0], name), confidence),
        "failures_p": failure_p(runs, (names[0], name)),
        "metrics": [metric(pairs, (names[0], name), place, each.better, confidence)
                    for place, each in enumerate(metrics)],
    } for name in names[1:]]
