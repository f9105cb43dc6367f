# SPDX-License-Identifier: MIT
"""From files to parts: one a device of a trace or a snapshot, or of a file of statistics."""

import array
import bz2
import gzip
import json
import lzma
import os
import re
import shutil
import subprocess

from . import paths, terminal
from .ending import held, wanted

TYPES = {"u8": "B", "u32": "I", "u64": "Q"}
COMPRESSED = ((b"\xfd7zXZ", lzma.open), (b"\x1f\x8b", gzip.open), (b"BZh", bz2.open))
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class Refused(Exception):
    """One sentence for the user, and the exit status."""

    def __init__(self, text, status=1):
        super().__init__(text)
        self.status = status


class Timeline:
    """A part of cachealloc-replay's --timeline: its head, and its columns as arrays."""

    def __init__(self, head, data):
        self.head = head
        self.columns, at = {}, 0
        for name, kind, count in head["columns"]:
            column = array.array(TYPES[kind])
            column.frombytes(data[at:at + count * column.itemsize])
            self.columns[name] = column
            at += count * column.itemsize


class Part:
    """A device of a file. Either `timeline` or `rows`: lines of statistics."""

    def __init__(self, name, head, timeline=None, rows=None, figures=None, devices=1):
        self.name = name
        self.head = head
        self.timeline = timeline
        self.rows = rows
        self.figures = figures
        self.devices = devices
        self.limit_bytes = 0
        self.completed = True
        self.format = "statistics"

    def described(self):
        """What the page is told."""
        names = ("device", "source", "clock", "start_unix_ns", "pid", "device_name", "device_bytes", "program",
                 "settings")
        fields = {name: self.head.get(name) for name in names}
        fields.update(name=self.name, format=self.format, limit_bytes=self.limit_bytes, rows=self.rows, figures=self.figures,
                      devices=self.devices, found_completed=self.completed, waste_note=self.waste_note())
        return fields

    def waste_note(self):
        if self.head["source"] == "recorded" and self.format == "cachealloc trace":
            return "The sizes of blocks and what waits are those of a replay of the trace, which is not told of refusals."
        if self.head["source"] == "recorded":
            return "Blocks are taken for multiples of 512 bytes; what an allocator left uncut beyond that counts as pieces."
        return ""


# ---- one file


def _opener(path):
    with open(path, "rb") as file:
        start = file.read(6)
    for magic, opener in COMPRESSED:
        if start.startswith(magic):
            return opener
    return None


def plain_file(path, folder):
    """The path of a file that is not compressed: a copy in the folder if need be."""
    if path == "-":
        raise Refused("standard input cannot be drawn: give the file's name", 2)
    try:
        opener = _opener(path)
        if not opener:
            return path
        copy = os.path.join(folder, "plain")
        with opener(path) as packed, open(copy, "wb") as file:
            shutil.copyfileobj(packed, file, 1 << 20)
        return copy
    except OSError as problem:
        raise Refused(f"{path}: {problem.strerror or problem}") from None
    except (EOFError, lzma.LZMAError) as problem:
        raise Refused(f"{path}: the compressed file is broken: {problem}") from None


def read(path, replay, folder, progress):
    """The parts of one file. Raises Refused."""
    plain = plain_file(path, folder)
    progress.say(f"reading {path}")
    return statistics(path, plain) if is_statistics(plain) else replay.parts(path, plain, folder, progress)


# ---- statistics


def is_statistics(path):
    with open(path, "rb") as file:
        return bool(re.match(rb'\s*\{\s*"format"\s*:\s*"stats"', file.read(4096)))


def _numbers(value):
    return isinstance(value, int) or (isinstance(value, dict) and isinstance(value.get("current"), int))


def _line(path, number, line):
    try:
        data = json.loads(line)
        if data["format"] != "stats" or data["format_version"] != 1:
            raise ValueError(f"format_version {data['format_version']} is not known")
        return data, [(device["index"], {name: value for name, value in device.items() if _numbers(value)})
                      for device in data["devices"]]
    except (ValueError, KeyError, TypeError) as problem:
        raise Refused(f"{path}:{number}: not a line of statistics: {problem}") from None


def statistics(path, plain):
    devices, heads = {}, {}
    with open(plain, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            data, found = _line(path, number, line)
            for index, row in found:
                row["elapsed_ns"] = data.get("elapsed_ns")
                devices.setdefault(index, []).append(row)
                heads[index] = data
    if not devices:
        raise Refused(f"{path}: the statistics have no device: the program used none")
    parts = []
    for index, rows in sorted(devices.items()):
        clock = all(isinstance(row["elapsed_ns"], int) for row in rows)
        for row in rows:
            if not clock:
                del row["elapsed_ns"]
        head = {"device": index, "source": "statistics", "clock": clock, "pid": heads[index].get("pid"),
                "program": heads[index].get("program")}
        parts.append(Part(path, head, rows=rows, devices=len(devices)))
    return parts


# ---- traces and snapshots


def size_of(text):
    """8589934592, 8G or 8GiB in bytes; None: no size."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMGT]?)(?:iB|B)?", text)
    return int(float(found[1]) * UNITS[found[2]]) if found else None


def limit_of(head):
    """The least of the device's memory and the limits that were set, as far as the recording tells; else 0."""
    total = head["device_bytes"]
    limits = [total] if total else []
    for name, value in re.findall(r"^CACHEALLOC_(LIMIT|CONF)=(.*)$", head["settings"] or "", re.M):
        share = re.fullmatch(r"(\d+(?:\.\d+)?)%", value) if name == "LIMIT" else \
            re.fullmatch(r"per_process_memory_fraction:(0?\.\d+)", value)
        if share and total:
            limits.append(int(total * float(share[1]) / (100 if name == "LIMIT" else 1)))
        elif name == "LIMIT" and size_of(value):
            limits.append(size_of(value))
    return min(limits, default=0)


class Replay:
    """cachealloc-replay, with the user's settings."""

    def __init__(self, replayed, conf, memory):
        self.words = ["--replayed"] if replayed else []
        self.words += ["--conf", conf] if conf else []
        self.words += ["--memory", memory] if memory else []
        self.memory = size_of(memory) if memory else None

    def parts(self, path, plain, folder, progress):
        timelines = os.path.join(folder, "timeline")
        result = self.run(path, plain, timelines, progress)
        devices = {device["index"]: device for device in result["devices"]}
        heads = list(self.timelines(timelines))
        os.unlink(timelines)
        parts = []
        for timeline in heads:
            part = Part(path, timeline.head, timeline, figures=devices[timeline.head["device"]], devices=len(heads))
            part.format = result["input_format"]
            part.completed = result["completed"]
            part.limit_bytes = limit_of(timeline.head) if part.head["source"] == "recorded" else self.memory or 0
            parts.append(part)
        return parts

    def run(self, path, plain, timelines, progress):
        """The result as JSON; the timelines are in the file."""
        words = [paths.replay(), "--json", "--timeline", timelines, *self.words, "--", plain]
        with open(timelines + ".json", "w+b") as out, open(timelines + ".log", "w+b") as log:
            status = None
            with held(), subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=log) as process:
                while status is None and not wanted():
                    try:
                        status = process.wait(0.5)
                    except subprocess.TimeoutExpired:
                        progress.say(f"replaying {path}")
                if status is None:
                    process.kill()
            out.seek(0)
            log.seek(0)
            self.tell(path, plain, status, log.read().decode("utf-8", "replace"), progress)
            return json.loads(out.read().decode("utf-8", "replace"))

    def tell(self, path, plain, status, log, progress):
        """Its messages, under the file's own name."""
        for line in log.replace(plain, path).splitlines():
            kind, _, text = line.partition(": ")[2].partition(": ")  # behind the program's name
            progress.end()
            if status in (0, 3):
                terminal.warning(f"report: {text or kind}")
            elif kind == "error":
                raise Refused(text, 2 if status == 2 else 1)
        if status not in (0, 3):
            raise Refused(f"{path}: cachealloc-replay ended with {status}")

    @staticmethod
    def timelines(path):
        with open(path, "rb") as file:
            while True:
                line = file.readline()
                if not line:
                    return
                head = json.loads(line.decode("utf-8", "replace"))
                yield Timeline(head, file.read(head["bytes"]))
