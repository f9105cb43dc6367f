# SPDX-License-Identifier: MIT
"""`cachealloc stats`: the statistics in files of CACHEALLOC_STATS=FILE.json, as a table, as JSON or for Prometheus."""

import json
import os
import time

from . import counts, prometheus, statistics_file, terminal
from .args import Option, UsageError, describe, parse
from .whole_file import whole_file

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


def seconds(text):
    try:
        number = float(text.removesuffix("s"))
    except ValueError:
        raise ValueError("expected seconds, for example 2s") from None
    if not 0.1 <= number <= 86400:
        raise ValueError("expected 0.1s to 86400s")
    return number


OPTIONS = [
    Option("--merge", "flag", "One report over all files: current, peak and total of the ranks are added up."),
    Option("--watch", "optional", "Show them again every TIME, until interrupted; default: 2s.", "TIME", None, seconds),
    Option("--prometheus", "value", "Write the text form of Prometheus, in one step, for node_exporter's textfile collector; "
           "`-`: to stdout.", "FILE"),
    Option("--json", "flag", "As JSON."),
    Option("-h --help", "flag", "This text."),
]

HELP = """\
Examples:
  cachealloc stats s.7841.json               the table of a process
  cachealloc stats --merge s.*.json          one table for all ranks
  cachealloc stats --watch s.7841.json       again every two seconds
  cachealloc stats --prometheus cachealloc.prom s.*.json   for node_exporter

Usage: cachealloc stats [OPTIONS] FILE...

{options}

FILE is what CACHEALLOC_STATS=FILE.json wrote: an object, or one a line, of which the
last whole one counts. It is written at exit, and every CACHEALLOC_STATS_INTERVAL. Of a
process that runs, or was killed, the figures are read where it counts (a file under a
private name in /dev/shm or TMPDIR, on the same host); those of a killed one are written
to FILE then. A peak of merged reports is the sum of the ranks' peaks: at most so much
was held at a time. Of files with one that cannot be read --merge shows nothing, and
--prometheus writes the metrics of the others; the exit status is 1.

Exit status: 0 done; 1 a file cannot be read, holds no statistics, or cannot be written;
2 the command line is wrong; 130 interrupted.
"""


def help_text():
    return HELP.format(options=describe(OPTIONS))


def _size(number):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(number) < 1024 or unit == "GiB":
            return f"{number} B" if unit == "B" else f"{number:.2f} {unit}"
        number /= 1024


def _added(values):
    """Numbers are added up, objects name by name; null is unknown, and adds nothing."""
    known = [value for value in values if value is not None]
    if known and all(isinstance(value, dict) for value in known):
        names = dict.fromkeys(name for value in known for name in value)
        return {name: _added([value.get(name) for value in known]) for name in names}
    if known and all(isinstance(value, list) for value in known):
        return list(dict.fromkeys(item for value in known for item in value))
    if known and all(isinstance(value, int) for value in known):
        return sum(known)
    return known[0] if known and all(value == known[0] for value in known) else None


def merged(reports):
    """One report: devices of the same index on the hosts are one row, since a rank counts what is its own there."""
    devices = {}
    for report in reports:
        for device in report["devices"]:
            devices.setdefault(device["index"], []).append(device)
    return {"format": "stats", "format_version": 1, "processes": len(reports),
            "ranks": sorted({report["rank"] for report in reports if report.get("rank") is not None}),
            "hosts": sorted({report["host"] for report in reports if report.get("host")}),
            "devices": [{**_added(same), "index": index} for index, same in sorted(devices.items())]}


def _number(count, one, many):
    return f"{count} {one if count == 1 else many}"


def _title(report):
    if "processes" in report:
        ranks = f", {_number(len(report['ranks']), 'rank', 'ranks')}" if report["ranks"] else ""
        return (f"{_number(report['processes'], 'process', 'processes')}{ranks} on "
                f"{_number(len(report['hosts']), 'host', 'hosts')}")
    words = [f"pid {report['pid']}" if report.get("pid") is not None else "unknown process"]
    words += [f"rank {report['rank']}"] if report.get("rank") is not None else []
    words += [str(report[name]) for name in ("host", "program") if report.get(name)]
    if report.get("elapsed_ns") is not None:
        words.append(f"{report['elapsed_ns'] / 1e9:.1f} s")
    return "  ".join(words)


ROWS = (("requested by program", "requested_bytes"), ("allocated (after rounding)", "allocated_bytes"),
        ("reserved from driver", "reserved_bytes"), ("cached, free to reuse", "cached_bytes"))


def table(report):
    lines = [_title(report)]
    for device in report["devices"]:
        name = f"device {device['index']:<2} {device.get('name') or '':.21}"
        lines.append(f"{name:<30} {'current':>12} {'peak':>12} {'total':>12}")
        for text, field in ROWS:
            gauge = device.get(field) or {}
            lines.append(f"  {text:<28} " + " ".join(f"{_size(gauge[part]) if gauge.get(part) is not None else '-':>12}"
                                                     for part in ("current", "peak", "total")))
        active, live = ((device.get(field) or {}).get("current") for field in ("active_bytes", "allocated_bytes"))
        if None not in (active, live) and active > live:
            lines.append(f"  {'freed, may still be in use':<28} {_size(active - live):>12}")
        calls = {key: device.get(key) or 0 for key in ("alloc_calls", "free_calls", "cache_hits", "passed_alloc_calls",
                                                        "driver_alloc_calls", "driver_free_calls", "ooms")}
        rest = max(calls["alloc_calls"] - calls["passed_alloc_calls"], 0)
        share = f"{int(calls['cache_hits'] * 10000 / rest) / 100:.2f}% served from cache" if rest else "none for the cache"
        lines.append(f"calls   {calls['alloc_calls']} alloc, {calls['free_calls']} free; {share}")
        streams = device.get("async_alloc_calls") or 0
        if streams:
            hits = device.get("async_cache_hits") or 0
            lines.append(f"async   {streams} alloc, {device.get('async_free_calls') or 0} free; "
                         f"{int(hits * 10000 / streams) / 100:.2f}% served from cache")
        lines.append(f"driver  {calls['driver_alloc_calls']} alloc, {calls['driver_free_calls']} free, {calls['ooms']} OOM")
        if calls["passed_alloc_calls"]:
            lines.append(f"passed  {calls['passed_alloc_calls']} of these straight to the driver")
        if device.get("other_alloc_calls"):
            lines.append(f"other   {device['other_alloc_calls']} alloc by calls that the driver serves itself")
    return "\n".join(lines)


class Failed(Exception):
    pass


def _settle(path, found, report):
    """The last figures of a process that is dead go where it would have written them."""
    text = json.dumps(report, separators=(",", ":")) if path.endswith(".json") else table(report)
    try:
        fd = os.open(os.path.realpath(path), os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CREAT, 0o600)
        with os.fdopen(fd, "wb") as file:
            size = os.fstat(fd).st_size
            half = size and os.pread(fd, 1, size - 1) != b"\n"  # a line that the disk had no room for
            file.write((b"\n" if half else b"") + text.encode(errors="replace") + b"\n")
        os.unlink(found.path)
    except OSError as problem:
        terminal.error(f"stats: {path}: {problem.strerror}: the last figures are shown, but not written there")


def _counted(path, found, written):
    """The figures where the process counts; None: the file has been made anew, and written, by a later one."""
    if written.get("pid") != found.pid and (written.get("time_unix_ns") or 0) > found.begun_ns:
        return None
    report = found.report((written.get("seq") or 0) + 1)
    if not found.alive:
        _settle(path, found, report)
    return report


def _nothing(text):
    if text.strip():
        return "no statistics (JSON of CACHEALLOC_STATS=FILE.json) in it"
    return ("no statistics in it, it is empty: its process has not ended, or was killed, and its counts are not here "
            "(another host, another user, or it had none: CACHEALLOC_LOG=info tells)")


def read_one(path):
    found = counts.of_file(path)  # first: who ends meanwhile has written to the file
    text, problem = "", None
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError as error:
        problem = error
    written = statistics_file.last(text)
    report = (_counted(path, found, written or {}) if found else None) or written
    if report is None and problem:
        raise Failed(f"{path}: {problem.strerror}")
    if report is None:
        raise Failed(f"{path}: {_nothing(text)}")
    return report


def read(paths):
    """The reports, and whether there is one of each. All are read: a killed process's counts are gone some day."""
    reports = []
    for path in paths:
        try:
            reports.append(read_one(path))
        except Failed as problem:
            terminal.error(f"stats: {problem}")
    return reports, len(reports) == len(paths)


def is_statistics(path):
    """A name or a file that a process's statistics have: what stands where the output's name was forgotten."""
    if path.endswith(".json") or not os.path.isfile(path):
        return path.endswith(".json")
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return statistics_file.last(file.read()) is not None
    except OSError:
        return False


def show(values, paths):
    """Exit status. A sum of some is shown to nobody; each process has metrics of its own."""
    reports, complete = read(paths)
    if not complete and (values["merge"] or not reports):
        return FAILED
    if values["prometheus"]:
        text = prometheus.text(reports)
        if values["prometheus"] == "-":
            terminal.out(text.rstrip("\n"))
            return DONE if complete else FAILED
        try:
            with whole_file(values["prometheus"]) as file:
                file.write(text.encode(errors="replace"))
        except OSError as problem:
            raise Failed(f"{values['prometheus']}: {problem.strerror}") from None
        return DONE if complete else FAILED
    if values["merge"]:
        reports = [merged(reports)]
    for report in reports:
        terminal.out(json.dumps(report) if values["json"] else table(report))
    return DONE if complete else FAILED


def run(argv):
    try:
        values, paths = parse(OPTIONS, argv, anywhere=True)
        if values["help"]:
            terminal.out(help_text().rstrip())
            return DONE
        if not paths:
            raise UsageError("no file: cachealloc stats [OPTIONS] FILE...")
        if values["prometheus"] and (values["merge"] or values["json"]):
            raise UsageError("--prometheus goes with neither --merge nor --json")
        if values["prometheus"] and is_statistics(values["prometheus"]):
            raise UsageError(f"--prometheus {values['prometheus']}: statistics are not overwritten; the metrics' file comes first")
    except UsageError as problem:
        terminal.error(f"stats: {problem}")
        return USAGE
    pause = 2.0 if values["watch"] is True else values["watch"]
    try:
        status = show(values, paths)
        while pause and status == DONE:
            terminal.flush()
            if terminal.lost:
                break
            time.sleep(pause)
            status = show(values, paths)
    except Failed as problem:
        terminal.error(f"stats: {problem}")
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return status
