# SPDX-License-Identifier: MIT
"""What a comparison shows, in sentences: failures first, then time, then the program's own figures."""

import collections

from .comparison import LEVEL, confidence_of, good, of_arm


def how_it_ended(run):
    """"exit status 1, out of memory", or "SIGKILL"."""
    return _end(run) + (", out of memory" if run["out_of_memory"] else "")


def _end(run):
    return run["signal"] or f"exit status {run['exit_code']}"


def _failures(runs, name):
    """"A failed in 3 of 5 runs (exit status 1)", or "A ran out of memory in 3 of 5 runs (exit status 1)"."""
    mine = of_arm(runs, name)
    if not mine:
        return f"{name} was not run"
    bad = [run for run in mine if run not in good(mine)]
    only_memory = bad and all(run["out_of_memory"] for run in bad)
    ends = collections.Counter(map(_end if only_memory else how_it_ended, bad))
    many = "; ".join(end if len(ends) == 1 else f"{number} with {end}" for end, number in ends.most_common(3))
    others = "; ..." if len(ends) > 3 else ""
    verb = "ran out of memory" if only_memory else "failed"
    return f"{name} {verb} in {len(bad)} of {len(mine)} runs ({many}{others})" if ends else f"{name} in none"


def _p(value):
    return f"p = {value:.2g}"


def _tested(result):
    """What the exact tests say about the counts: ": B fails less often (exact test, p = 1.1e-05)"."""
    limit = 1 - confidence_of(result["claims"])
    said = []
    arms = {arm["name"]: arm for arm in result["arms"]}
    for each in result["comparisons"]:
        p, arm, reference = each["failures_p"], arms[each["arm"]], arms[each["reference"]]
        if p is None or arm["failed_runs"] * reference["runs"] == reference["failed_runs"] * arm["runs"]:
            continue
        less = arm["failed_runs"] * reference["runs"] < reference["failed_runs"] * arm["runs"]
        winner, loser = (each["arm"], each["reference"]) if less else (each["reference"], each["arm"])
        than = f" than {loser}" if len(arms) > 2 else ""
        said.append(f"{winner} fails less often{than} (exact test, {_p(p)})" if p <= limit
                    else f"that may be chance (exact test, {_p(p)})" if len(arms) == 2
                    else f"between {winner} and {loser} it may be chance (exact test, {_p(p)})")
    return ": " + ", ".join(said) if said else ""


def failure_sentence(result):
    """Who failed how often, or "" when nobody did; whoever failed comes first."""
    runs = result["runs"]
    if len(good(runs)) == len(runs):
        return ""
    parts = [_failures(runs, arm["name"]) for arm in result["arms"]]
    return ", ".join(sorted(parts, key=lambda part: " runs (" not in part)) + _tested(result)


def _note(result, pairs):
    word = "pairs" if len(result["arms"]) == 2 else "rounds"
    corrected = f", corrected for {result['claims']} claims" if result["claims"] > 1 else ""
    return f"{pairs} {word}, interleaved{corrected}"


def about_time(result, each):
    """What pairs say about the time of two arms."""
    figures, first, second = each["time_ratio"], each["reference"], each["arm"]
    estimate, low, high = (None if figures[key] is None else figures[key] / 1e6
                           for key in ("estimate_ppm", "low_ppm", "high_ppm"))
    if low is None:
        word = "faster" if estimate >= 1 else "slower"
        return (f"one pair only, no interval: {second} was {max(estimate, 1 / estimate):.4g} times {word} "
                f"than {first} in it")
    note = _note(result, figures["pairs"])
    if low > 1:
        return f"{second} is {estimate:.4g} times faster than {first} ({LEVEL:.0%} CI {low:.3g} to {high:.3g}, {note})"
    if high < 1:
        return (f"{second} is {1 / estimate:.4g} times slower than {first} "
                f"({LEVEL:.0%} CI {1 / high:.3g} to {1 / low:.3g}, {note})")
    whose = "" if len(result["arms"]) == 2 else f" between {second} and {first}"
    return f"no difference shown{whose}: {LEVEL:.0%} CI {low:.3g} to {high:.3g} ({first}'s time over {second}'s, {note})"


def times(result):
    """A sentence for each arm but the first. Those of which nothing can be said are left out."""
    return [about_time(result, each) for each in result["comparisons"] if each["time_ratio"]["pairs"]]


def lines(result):
    """The verdict about failures and time: one sentence with two arms, a line for each other arm with more."""
    failures, found = failure_sentence(result), times(result)
    if not found:
        return [(failures or "no pair was measured") + "; no time is compared"]
    if not failures:
        return found
    word = "pairs in which neither" if len(result["arms"]) == 2 else "rounds in which neither of two"
    if len(found) == 1:
        return [f"{failures}; of the {word} failed: {found[0]}"]
    return [f"{failures}; times are of the {word} failed:", *found]


def _about_metric(result, one, each, figures):
    """What pairs say about a figure of the program's own."""
    title, first, second = f"{one['name']}, {one['better']} is better", each["reference"], each["arm"]
    estimate, low, high = (figures[key] for key in ("estimate", "low", "high"))
    if estimate is None:
        return f"{title}: no pair has it in both {first} and {second}"
    times_of = figures["kind"] == "ratio"
    amount = f"{estimate:.4g} times as much" if times_of else f"by {estimate:+.4g}"
    if low is None:
        return f"{title}: one pair only, no interval: {second} to {first} {amount}"
    bounds = f"{LEVEL:.0%} CI {low:.3g} to {high:.3g}, {_note(result, figures['pairs'])}"
    if figures["verdict"] in ("better", "worse"):
        return f"{title}: {second} is {figures['verdict']} than {first}, {amount} ({bounds})"
    whose = f"{second}'s {'over' if times_of else 'less'} {first}'s"
    return f"{title}: no difference shown ({whose}: {bounds})"


def _absent(result, place):
    """"tok/s: no figure in 2 of 10 runs of A (pairs 3, 7)"."""
    name, found = result["metrics"][place]["name"], []
    for arm in result["arms"]:
        worked = good(of_arm(result["runs"], arm["name"]))
        gone = [run["pair"] + 1 for run in worked if run["metrics"][place] is None]
        if gone:
            numbers = ", ".join(map(str, gone[:8])) + (", ..." if len(gone) > 8 else "")
            found.append(f"{name}: no figure in {len(gone)} of {len(worked)} runs of {arm['name']} (pair {numbers})")
    return found


def about_metrics(result):
    """A line for each metric and other arm, and for runs without it."""
    found = []
    for place, one in enumerate(result["metrics"]):
        if good(result["runs"]):
            found += [_about_metric(result, one, each, each["metrics"][place]) for each in result["comparisons"]]
        found += _absent(result, place)
    return found
