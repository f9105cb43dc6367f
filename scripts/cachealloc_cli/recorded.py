# SPDX-License-Identifier: MIT
"""Two recorded files of a kind, compared without running the program.

Results of `compare --json` have many runs an arm: arms of the same name are compared by Welch's interval, since runs of
two sessions are no pairs. Statistics and traces are one run each: their figures stand side by side, without an interval.
A trace is played on the allocator first, both with the same settings.
"""

import csv
import io
import json
import os
import shutil
import statistics
import subprocess

from . import __version__, interval, layout, measure, paths, terminal
from .args import UsageError
from .comparison import confidence_of, good, of_arm
from .whole_file import is_one_of

KINDS = {"stats": "statistics", "compare": "results of compare", "trace": "traces"}
ALLOWED = ("export_json", "export_csv", "export_markdown", "force")
LIMIT_BYTES = 1 << 30

#: name, unit and how to take it from a device of the statistics; summed over devices
STATS = (
    ("allocations", "count", lambda d: d.get("alloc_calls")), ("served from the cache", "count", lambda d: d.get("cache_hits")),
    ("driver calls", "count", lambda d: _both(d.get("driver_alloc_calls"), d.get("driver_free_calls"))),
    ("in driver calls", "ns", lambda d: d.get("driver_ns")), ("out of memory", "count", lambda d: d.get("ooms")),
    ("peak requested", "bytes", lambda d: _peak(d, "requested_bytes")),
    ("peak reserved", "bytes", lambda d: _peak(d, "reserved_bytes")),
)
TRACE = (
    ("allocations", "count", lambda d: d["allocations"] + d["live_at_start"]), ("served from the cache", "count", lambda d: d["hits"]),
    ("driver calls", "count", lambda d: sum(one["driver_alloc_calls"] + one["driver_free_calls"] for one in d["devices"])),
    ("peak live", "bytes", lambda d: d["peak_live_bytes"]), ("peak reserved", "bytes", lambda d: d["peak_reserved_bytes"]),
)


class Unreadable(Exception):
    """One sentence about a file."""


def _both(one, other):
    return one + other if isinstance(one, int) and isinstance(other, int) else None


def _peak(device, name):
    gauge = device.get(name)
    return gauge.get("peak") if isinstance(gauge, dict) else None


def is_meant(words):
    """Do the words name files to read, not a program to run?"""
    return bool(words) and os.path.isfile(words[0]) and not shutil.which(words[0]) and not (
        "/" in words[0] and os.access(words[0], os.X_OK))


def _json(path):
    """The last object of a file of JSON, or of JSON lines; None if it is no JSON."""
    try:
        if os.path.getsize(path) > LIMIT_BYTES:
            return None
        with open(path, "rb") as file:
            text = file.read().strip()
    except OSError as problem:
        raise Unreadable(f"{path}: {problem.strerror}") from None
    for part in (text, text.rsplit(b"\n", 1)[-1]):
        try:
            data = json.loads(part)
        except (ValueError, RecursionError):
            continue
        if isinstance(data, dict):
            return data
    return None


def _replayed(path):
    done = subprocess.run([paths.replay(), os.path.abspath(path), "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          encoding="utf-8", errors="surrogateescape", check=False)
    try:
        return json.loads(done.stdout)
    except ValueError:
        why = (done.stderr.strip().splitlines() or ["nothing was written"])[-1]
        why, advised, _ = why.split("error: ")[-1].partition("; try: ")  # a command to replay a compressed file
        why += "; unpack it first" if advised else ""
        raise Unreadable(why if path in why else f"{path}: {why}") from None


def load(path):
    """(kind, contents). Raises Unreadable, NotFound."""
    if not os.path.isfile(path):
        raise Unreadable(f"{path}: no such file")
    data = _json(path)
    form = data and (data.get("format"), data.get("format_version"))
    if form in (("stats", 1), ("compare", 1)):
        return form[0], data
    return "trace", _replayed(path)


def _figures(kind, both):
    rows = []
    for name, unit, get in STATS if kind == "stats" else TRACE:
        if kind == "stats":
            values = [measure.summed(data.get("devices") or [], get) for data in both]
        else:
            values = [get(data) for data in both]
        rows.append({"name": name, "unit": unit, "first": values[0], "second": values[1]})
    return rows


def _times(data, name):
    return [run["time_ns"] for run in good(of_arm(data["runs"], name))]


def _intervals(both):
    """Each arm that both results have."""
    labels = [{arm["name"]: arm["label"] for arm in data["arms"]} for data in both]
    names = [name for name in labels[0] if name in labels[1] and all(_times(data, name) for data in both)]
    found = []
    for name in names:
        times = [_times(data, name) for data in both]
        figures = interval.unpaired_ratio(*times, confidence_of(len(names)))
        keys = ("estimate_ppm", "low_ppm", "high_ppm")
        found.append({"arm": name, "labels": [one[name] for one in labels], "runs": list(map(len, times)),
                      "time_median_ns": [round(statistics.median(one)) for one in times],
                      **dict(zip(keys, (None if figure is None else round(figure * 1e6) for figure in figures)))})
    return found


def compare(files):
    """The object of scripts/schema/compare_files.schema.json. Raises Unreadable, NotFound."""
    kinds, both = zip(*map(load, files))
    if kinds[0] != kinds[1]:
        raise Unreadable(f"{files[0]} has {KINDS[kinds[0]]} and {files[1]} {KINDS[kinds[1]]}: two of a kind can be compared")
    result = {"format": "compare_files", "format_version": 1, "version": __version__, "kind": kinds[0], "files": list(files),
              "figures": [], "intervals": []}
    try:
        if kinds[0] == "compare":
            result["intervals"] = _intervals(both)
        else:
            result["figures"] = _figures(kinds[0], both)
    except (KeyError, TypeError, AttributeError, ValueError) as problem:
        raise Unreadable(f"{files[0]} and {files[1]}: damaged ({type(problem).__name__}: {problem})") from None
    if kinds[0] == "compare" and not result["intervals"]:
        raise Unreadable(f"{files[0]} and {files[1]} have no arm of the same name that worked in both")
    return result


# ---- text

UNITS = {"count": terminal.count_text, "bytes": terminal.size_text, "ns": terminal.time_text}


def rows(result):
    """The table: a figure a row."""
    found = [["", *result["files"], "change"]]
    for row in result["figures"]:
        show = UNITS[row["unit"]]
        found.append([row["name"], show(row["first"]), show(row["second"]), layout.change(row["first"], row["second"])])
    for row in result["intervals"]:
        found.append([f"{row['arm']}, median time", *map(terminal.time_text, row["time_median_ns"]),
                      layout.change(*row["time_median_ns"])])
    return found


def _sentence(result, row):
    """About one arm: the second file against the first."""
    name, (few, many) = row["arm"], row["runs"]
    corrected = f", corrected for {len(result['intervals'])} claims" if len(result["intervals"]) > 1 else ""
    note = f"{few} and {many} runs of two sessions, not paired{corrected}"
    if row["low_ppm"] is None:
        return f"{name}: too few runs for an interval ({note})"
    estimate, low, high = (row[key] / 1e6 for key in ("estimate_ppm", "low_ppm", "high_ppm"))
    if low > 1:
        return f"{name}: {estimate:.4g} times faster in the second file (95% CI {low:.3g} to {high:.3g}, {note})"
    if high < 1:
        return f"{name}: {1 / estimate:.4g} times slower in the second file (95% CI {1 / high:.3g} to {1 / low:.3g}, {note})"
    return f"{name}: no difference shown (95% CI {low:.3g} to {high:.3g}, the first file's time over the second's, {note})"


def lines(result):
    """The verdict."""
    if result["kind"] != "compare":
        return ["one run each: the figures are exact, and how much they vary from run to run is not known"]
    found = [_sentence(result, row) for row in result["intervals"]]
    other = [row["arm"] for row in result["intervals"] if row["labels"][0] != row["labels"][1]]
    return found + [f"{name}: not the same arm in both files" for name in other]


def _markdown(result):
    table = rows(result)
    body = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in table]
    return "\n".join([body[0], "|---|--:|--:|--:|", *body[1:], "", *(line + "\n" for line in lines(result))])


def _csv(result):
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow(["figure", "unit", "first", "second"])
    for row in result["figures"]:
        out.writerow([row["name"], row["unit"], row["first"], row["second"]])
    for row in result["intervals"]:
        out.writerow([f"{row['arm']} median time", "ns", *row["time_median_ns"]])
    return text.getvalue()


FORMS = {"export_json": lambda result: json.dumps(result, indent=1) + "\n", "export_csv": _csv, "export_markdown": _markdown}


def run(values, files, exports):
    """Exit status. Raises UsageError, Unreadable, NotFound."""
    if len(files) != 2:
        raise UsageError(f"{files[0]} is no program; recorded files are compared in twos: cachealloc compare FILE FILE")
    for key, value in values.items():
        if value and key not in ALLOWED and key != "help":
            raise UsageError(f"--{key.replace('_', '-')} means nothing with recorded files: nothing is run")
    for _, path in exports.files:
        if is_one_of(path, files):
            raise UsageError(f"{path} is one of the files to compare, and is not overwritten")
    with terminal.Progress(lambda: "reading and playing the files"):
        result = compare(files)
    problems = exports.write(result, FORMS, last=True)
    terminal.out(terminal.table(rows(result), right=(1, 2, 3)))
    for line in lines(result):
        terminal.out(terminal.paint(line, "bold"))
    terminal.flush()
    for problem in problems:
        terminal.error(f"compare: {problem}")
    return 2 if problems else 0
