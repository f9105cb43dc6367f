# SPDX-License-Identifier: MIT
"""The text form of Prometheus (exposition format 0.0.4). Counters end in _total; bytes and seconds are base units.

A gauge's total has a name of its own, since `x` and `x_total` are one family to parsers of the newer form.
"""

import json
import os

from . import paths

PREFIX = "cachealloc_"
FIGURES = {"largest_free_block_bytes", "pending_blocks"}  # gauges without peak and total
LABELS = ("host", "rank", "pid", "program")


def _escaped(text):
    return str(text).replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _descriptions():
    """Of the fields, as in docs/statistics.md; {} where the schema was not installed."""
    try:
        with open(os.path.join(os.path.dirname(paths.options()), "schema", "stats.schema.json"), encoding="utf-8") as file:
            fields = json.load(file)["properties"]["devices"]["items"]["properties"]
    except OSError:
        return {}
    return {name: field["description"].replace("`", "").removesuffix(", in nanoseconds") for name, field in fields.items()}


def _labels(report, device):
    pairs = [(name, report[name]) for name in LABELS if report.get(name) is not None]
    pairs.append(("device", device["index"]))
    pairs += [("uuid", device["uuid"])] if device.get("uuid") else []
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs) + "}"


def _samples(name, value):
    """(name, kind, value in base units) of a field; nothing of what is unknown or no number."""
    if isinstance(value, dict):
        for part, kind in (("current", "gauge"), ("peak", "gauge"), ("total", "counter")):
            if isinstance(value.get(part), int):
                yield PREFIX + name + {"current": "", "peak": "_peak", "total": "_increases_total"}[part], kind, value[part]
    elif name == "driver_ns" and isinstance(value, int):
        yield PREFIX + "driver_seconds_total", "counter", value / 1e9
    elif name in FIGURES and isinstance(value, int):
        yield PREFIX + name, "gauge", value
    elif name != "index" and isinstance(value, int):
        yield PREFIX + name + "_total", "counter", value


def text(reports):
    """Of all reports: the samples of a name stand together, as the format wants it."""
    families = {}
    for report in reports:
        for device in report["devices"]:
            for field, value in device.items():
                for name, kind, number in _samples(field, value):
                    families.setdefault((name, kind, field), []).append(f"{name}{_labels(report, device)} {number}")
    lines, texts = [], _descriptions()
    for (name, kind, field), samples in families.items():
        part = "peak: " if name.endswith("_peak") else "sum of all increases: " if name.endswith("_increases_total") else ""
        lines += [f"# HELP {name} {part}{texts.get(field, field)}", f"# TYPE {name} {kind}", *dict.fromkeys(samples)]
    return "\n".join(lines) + "\n" if lines else ""
