# SPDX-License-Identifier: MIT
"""`cachealloc tune`: which settings let a recorded program live with less memory, by replay."""

import json
import sys
import time

from . import __version__, candidates, invocation, paths, player, record, search, terminal
from .args import Option, UsageError, describe, integer, parse
from .ending import ending
from .progress import Progress

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
CONF = "CACHEALLOC_CONF"
LAG_MAX_US = 1000000


def lag(text):
    return integer(0, LAG_MAX_US)(text[:-2] if text.endswith("us") else text)


OPTIONS = [
    Option("--lag", "value", "Search for a device so far behind the host at each allocation; default: as a trace of "
           "CACHEALLOC_TRACE tells, else all of 0, 20, 100 and 300.", "N[us]", None, lag),
    Option("--conf", "value", "Keys that the program has and keeps unless the advice changes them; default: those it was "
           "recorded with.", "K:V,...", repeat=True),
    Option("-j --jobs", "value", "Replays at a time; default: one a core.", "N", None, integer(1, 1024)),
    Option("--json", "flag", "The result as JSON."),
    Option("-h --help", "flag", "This text."),
]

HELP = """\
Examples:
  cachealloc tune app.7841.trace             a recording of CACHEALLOC_TRACE
  cachealloc tune step.pickle                a PyTorch memory snapshot
  xz -dc step.trc.xz | cachealloc tune -     anything that `cachealloc replay` reads
  cachealloc tune --lag 20us step.pickle     for a device that is 20 us behind

Usage: cachealloc tune [OPTIONS] FILE

{options}

Prints one line, CACHEALLOC_CONF=..., if a setting lets the program live with at least
1 % less memory; what it was before and what it costs goes to stderr. "No setting
helps" is an answer, too. Each candidate is replayed; one is advised only if with it the
program needs no more memory than before with the device idle or 20, 100 or 300 us
behind, makes at most twice the driver calls and waits (or one more in 100 allocations),
and where memory is plenty reserves at most 2 % more, or as much more as it needs less.
Of equals the one with the fewest keys is taken. Limits, and keys that change what a
program may rely on, are left alone.

Exit status: 0, also when no setting helps; 1 the file cannot be read or is broken; 2 the
command line is wrong; 130 interrupted: the best so far is on stderr.
"""


def help_text():
    return HELP.format(options=describe(OPTIONS))


# ---------------------------------------------------------------------------------------------- the result ---


def _figures(trial, lags):
    """A row a lag."""
    rows = []
    for each in lags:
        outcome = trial.outcomes[each]
        rows.append({"lag_us": each, "min_capacity_bytes": outcome.least, "peak_reserved_bytes": outcome.peak,
                     "driver_calls": outcome.calls, "host_waits": outcome.waits})
    return rows


def advice_text(advice):
    """The keys that change, in words."""
    return ", ".join(f"{key} unset" if value is None else f"{key}:{value}" for key, value in advice.change.items())


def reason(found, advice):
    """The sentence of the verdict."""
    before = found.least_before
    if advice:
        least = advice.least(found.assumed)
        return (f"with {advice_text(advice)} the program lives with {-change(before, least):.1f} % less memory: "
                f"{fine_size(least)} instead of {fine_size(before)}")
    if not before:
        return "no setting helps: nothing is allocated"
    floor = found.floor()
    if before * (1 - search.MARGIN) < floor:
        return (f"no setting helps: the program holds {fine_size(floor)} at once, and lives with "
                f"{fine_size(before)} as it is")
    more = "; pairs of keys were not tried, the recording is too long" if found.pairs_left_out else ""
    return (f"no setting helps: of {found.tried} tried none needs at least {search.MARGIN * 100:g} % less memory than "
            f"{fine_size(before)} at a price that may be paid{more}")


def change(before, after):
    return (after / before - 1) * 100 if before else 0.0


def result(name, found, advice, full, seconds):
    """The object of scripts/schema/tune.schema.json. `full`: every key that the program has."""
    first = found.before.outcomes[found.worst].data
    return {
        "format": "tune", "format_version": 1, "version": __version__, "file": name,
        "input_format": first["input_format"], "events": first["events"], "truncated": first["truncated"],
        "margin_ppm": round(search.MARGIN * 1e6), "lags_us": found.assumed, "verified_lags_us": found.lags,
        "settings_tried": found.tried, "replays": found.player.runs, "jobs": found.player.jobs,
        "elapsed_ns": round(seconds * 1e9),
        "conf_before": candidates.text(full),
        "conf": candidates.text(candidates.changed(full, advice.change)) if advice else None,
        "verdict": reason(found, advice),
        "before": _figures(found.before, found.lags),
        "after": _figures(advice, found.lags) if advice else None,
        "not_advised": [{"conf": trial.conf, "min_capacity_bytes": trial.outcomes[found.worst].least,
                         "why": trial.refused_for} for trial in sorted(found.refused, key=found.rank)[:10]],
    }


def _at(value):
    return "as recorded" if value is None else f"{value} us behind" if value else "device idle"


def _cell(before, after, show):
    return show(before) if after is None else f"{show(before)} -> {show(after)}"


def _share(before, after):
    return f"{change(before, after):+.1f} %" if after is not None and before else ""


def table(data):
    """A row a lag: least memory and peak, driver calls and waits, before and after."""
    rows = [["", "least memory", "", "peak reserved", "", "driver calls", "host waits"]]
    for before, after in zip(data["before"], data["after"] or [{}] * len(data["before"])):
        pairs = {key: (before[key], after.get(key)) for key in before}
        rows.append([_at(before["lag_us"]),
                     _cell(*pairs["min_capacity_bytes"], fine_size), _share(*pairs["min_capacity_bytes"]),
                     _cell(*pairs["peak_reserved_bytes"], fine_size), _share(*pairs["peak_reserved_bytes"]),
                     _cell(*pairs["driver_calls"], terminal.count_text), _cell(*pairs["host_waits"], terminal.count_text)])
    if not data["after"]:
        rows = [[cell for column, cell in enumerate(row) if column not in (2, 4)] for row in rows]
    return terminal.table(rows, right=())


def fine_size(count):
    """A size to a hundredth, so that a per cent shows."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if count >= scale:
            return f"{count / scale:.2f} {unit}"
    return f"{count} B"


def print_verdict(data, may_be_pytorch):
    """The verdict on stderr, the setting on stdout."""
    lines = [f"{data['file']}: {data['input_format']}, {data['events']} events; {data['settings_tried']} settings, "
             f"{data['replays']} replays, {data['jobs']} at a time, {data['elapsed_ns'] / 1e9:.1f} s",
             table(data), terminal.paint(data["verdict"], "bold", sys.stderr)]
    before, after = (max(row["min_capacity_bytes"] for row in data[when] if row["lag_us"] in data["lags_us"])
                     for when in ("before", "after" if data["after"] else "before"))
    for each in data["not_advised"][:1]:
        if each["min_capacity_bytes"] <= after * (1 - search.MARGIN):
            less = -change(before, each["min_capacity_bytes"])
            lines.append(f"not advised: {each['conf']} ({less:.1f} % less memory): {each['why']}")
    if data["conf"] and (may_be_pytorch or data["input_format"].startswith("PyTorch")):
        lines.append("it takes effect under PyTorch with PYTORCH_NO_CUDA_MEMORY_CACHING=1")
    terminal.say("\n".join(lines) + "\n")
    if data["conf"]:
        terminal.out(f"{CONF}={data['conf']}")


# ---------------------------------------------------------------------------------------------- the command ---


def prepare(values, words):
    """The file. Raises UsageError."""
    if len(words) != 1:
        raise UsageError("more than one file" if words else "no file: cachealloc tune [OPTIONS] FILE")
    return words[0]


def conf_before(values, file):
    """Every key that the program has: of --conf, or as recorded."""
    if values["conf"]:
        return candidates.parse(",".join(values["conf"]))
    return record.keys(record.settings(file))


def assumed_lags(values, plays):
    """The lags to search for: the user's, as the trace tells, or all."""
    if values["lag"] is not None:
        return [values["lag"]]
    return [None] if plays.get().is_told else list(search.LAGS)


def tell_warnings(plays):
    """What makes the figures doubtful."""
    for text in plays.warnings:
        terminal.warning(text)
    refused = sum(device["recorded_failed_calls"] for device in plays.get().devices)
    if refused:
        terminal.warning(f"{refused} requests were refused when this was recorded, and are not in the figures")
        terminal.hint(f"`{invocation.words()} explain {plays.name}` tells what would have served them")


def say_best(found):
    """After Ctrl-C."""
    best = found.best
    if best is None:
        terminal.warning(f"interrupted after {found.player.runs} replays; nothing that helps was found so far")
    else:
        terminal.warning(f"interrupted after {found.player.runs} replays; the best so far, not verified: {CONF}={best.conf}")


def tune(values, path):
    """Exit status."""
    shown, started = Progress(), time.monotonic()
    with player.Player(path, values["jobs"], "tune") as plays:
        full = conf_before(values, plays.file)
        if values["conf"]:
            plays.get(",".join(values["conf"]))  # the replay says what is wrong with it
        found = search.Search(plays, candidates.played(full), assumed_lags(values, plays),
                              lambda now: shown.show(progress_text(now)))
        try:
            advice = found.run()
        except KeyboardInterrupt:
            shown.clear()
            say_best(found)
            return INTERRUPTED
        finally:
            shown.clear()
        data = result(path, found, advice, full, time.monotonic() - started)
        may_be_pytorch = record.has_unnamed_variable(plays.file)
        tell_warnings(plays)
    if values["json"]:
        terminal.out(json.dumps(data, indent=1))
    else:
        print_verdict(data, may_be_pytorch)
    return DONE


def progress_text(found):
    best = found.best
    gain = f"; best so far {change(found.least_before, best.outcomes[found.worst].least):+.1f} %: {best.conf}" if best else ""
    return f"{found.player.runs} replays{gain}"


def run(argv):
    try:
        values, words = parse(OPTIONS, argv, anywhere=True)
        if values["help"]:
            terminal.out(help_text().rstrip())
            return DONE
        path = prepare(values, words)
    except UsageError as problem:
        terminal.error(f"tune: {problem}")
        return USAGE
    try:
        with ending():
            return tune(values, path)
    except player.Failed as problem:
        terminal.error(f"tune: {problem}")
        return problem.status
    except paths.NotFound as problem:
        terminal.error(f"tune: {problem}")
        return FAILED
