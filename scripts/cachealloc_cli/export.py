# SPDX-License-Identifier: MIT
"""A comparison as files: JSON (all of it), CSV (a row a run), Markdown (table and verdict, for an issue or a README).

A file that cannot be written never ends the measurement: it is tried again after the next pair, and said at the end.
"""

import csv
import io
import json
import os
import shlex

from . import layout, verdict
from .comparison import good
from .whole_file import is_plain, whole_file

CSV_FIELDS = ("arm", "pair", "place", "failed", "exit_code", "signal", "out_of_memory", "time_ns", "alloc_calls",
              "driver_calls", "driver_ns", "peak_reserved_bytes")


def as_json(result):
    return json.dumps(result, indent=1, allow_nan=False) + "\n"


def as_csv(result):
    """A run that failed has no time: whoever averages the column must not average it in."""
    names = [one["name"] for one in result["metrics"]]
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow([*CSV_FIELDS, *(f"metric:{name}" for name in names)])
    worked = good(result["runs"])
    for run in result["runs"]:
        shown = {**run, "pair": run["pair"] + 1, "failed": int(run not in worked),
                 "out_of_memory": int(run["out_of_memory"])}
        if run not in worked:
            shown["time_ns"] = None
        rows.writerow(["" if shown[field] is None else shown[field] for field in CSV_FIELDS]
                      + ["" if value is None else repr(value) for value in run["metrics"]])
    return text.getvalue()


def _escape(text):
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")


def as_markdown(result):
    shown = layout.columns(result)
    lines = [f"`{shlex.join(result['command'])}`".replace("|", "\\|"), "", *layout.header(result)]
    lines += [""] if layout.header(result) else []
    lines += ["| | arm | runs | failed | " + " | ".join(_escape(title) for title, _ in shown) + " |",
              "|---|---|--:|--:|" + "--:|" * len(shown)]
    for place, arm in enumerate(result["arms"]):
        cells = [arm["name"], arm["label"], str(arm["runs"]), str(arm["failed_runs"])]
        lines.append("| " + " | ".join(map(_escape, cells + [cells[place] for _, cells in shown])) + " |")
    said = [f"**{_escape(line)}**" for line in verdict.lines(result)]
    said += [_escape(line) for line in verdict.about_metrics(result) + layout.exact_lines(result)]
    version = f"cachealloc {result['version']}, {result['date']}, seed {result['seed']}"
    return "\n\n".join(["\n".join(lines), *said, version]) + "\n"


FORMS = {"export_json": as_json, "export_csv": as_csv, "export_markdown": as_markdown}


def write(path, text):
    """Replaces the file in one step, so that a reader never sees half of it. Raises OSError."""
    with whole_file(path) as file:
        file.write(text.encode(errors="surrogateescape"))  # a command's words need not be UTF-8


class Exports:
    """The files that the command line asks for."""

    def __init__(self, values):
        self.files = [(key, values[key]) for key in FORMS if values[key] is not None]
        self.force = values["force"]

    def fault(self):
        """A sentence about a file that cannot be written, before anything is run; or None."""
        paths = [os.path.realpath(path) for _, path in self.files]
        for key, path in self.files:
            if not path:
                return f"--{key.replace('_', '-')}: the name of a file is missing"
            if paths.count(os.path.realpath(path)) > 1:
                return f"{path} is named for two exports"
            if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
                return f"{path}: its folder does not exist"
            if os.path.isdir(path):
                return f"{path} is a folder"
            if os.path.exists(path) and is_plain(path) and not self.force:
                return f"{path} exists; --force overwrites it"
        return None

    def write(self, result, forms, last=False):
        """A list of sentences about files that could not be written. What is no plain file is written once, at the
        end. forms: {key: a function that gives the text}."""
        problems = []
        for key, path in self.files:
            if not last and not is_plain(path):
                continue
            try:
                write(path, forms[key](result))
            except OSError as problem:
                problems.append(f"{path}: {problem.strerror}")
        return problems
