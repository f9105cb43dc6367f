# SPDX-License-Identifier: MIT
"""Recordings for `cachealloc report`, and its page taken apart."""

import array
import base64
import html.parser
import json
import struct
import subprocess
import sys
import zlib

from command import COMMAND, ROOT, environment
from conftest import BUILD, run

RECORDED = ROOT / "tests" / "traces" / "recorded"
PROGRAM = BUILD / "tests" / "traces" / "trace_program"
MIB = 1 << 20
(LIVE, ALLOC, FREED, HELD, TAKEN, FLUSH, GIVE_BACK, TRIM, REFUSED, FAILED, WAITED, COMPLETED) = range(1, 13)


def report(*words, **more):
    env = more.pop("env", {})
    env.setdefault("CACHEALLOC_BUILD", BUILD)
    more.setdefault("timeout", 120)
    return subprocess.run([sys.executable, COMMAND, "report", *map(str, words)], env=environment(**env), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)


def made(path, *words):
    """The page at `path` is written; returns it taken apart."""
    done = report(*words, "-o", path)
    assert done.returncode == 0 and not done.stdout, done.stderr
    return Page(path)


class Page(html.parser.HTMLParser):
    """A page's elements and data, as a browser takes them."""

    def __init__(self, path):
        super().__init__(convert_charrefs=True)
        self.path, self.tags, self.text, self.open = path, [], {}, None
        self.feed(path.read_text())
        self.data = json.loads(self.text["data"])
        self.parts = self.data["parts"]

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style", "title"):
            self.open = dict(attrs).get("id", tag)

    def handle_endtag(self, tag):
        self.open = None

    def handle_data(self, data):
        if self.open:
            self.text[self.open] = self.text.get(self.open, "") + data

    def columns(self, number=0):
        """The columns of a part, from its packed bytes, whose values lie byte by byte."""
        part = self.parts[number]
        data, at, columns = zlib.decompress(base64.b64decode(self.text[part["blob"]])), 0, {}
        for name, kind, count, planes in part["columns"]:
            column = array.array({"u8": "B", "u32": "I", "u64": "Q"}[kind])
            plain = bytearray(count * column.itemsize)
            for k in range(planes):
                plain[k::column.itemsize] = data[at:at + count]
                at += count
            column.frombytes(bytes(plain))
            columns[name] = column
        assert at == len(data)
        return columns


def sums(columns):
    """Peaks of requested, allocated, reserved, and how many events there are of each kind."""
    live = rounded = reserved = block = segment = 0
    peaks, kinds = [0, 0, 0], {kind: 0 for kind in range(1, 13)}
    for kind, arg in zip(columns["kind"], columns["arg"]):
        kinds[kind] += 1
        if kind in (LIVE, ALLOC):
            live, rounded, block = live + columns["requested"][block], rounded + columns["size"][block], block + 1
        elif kind == FREED:
            live, rounded = live - columns["requested"][arg], rounded - columns["size"][arg]
        elif kind in (HELD, TAKEN):
            reserved, segment = reserved + columns["segment_bytes"][segment], segment + 1
        elif kind in (FLUSH, GIVE_BACK, TRIM):
            reserved -= columns["segment_bytes"][arg]
        peaks = [max(pair) for pair in zip(peaks, (live, rounded, reserved))]
    return (*peaks, kinds, reserved)


def out_of_memory(folder, name="oom.trace"):
    """A trace, recorded on the simulator, at whose end memory is in pieces and a request is refused."""
    text, trace = folder / "holes.trc", folder / name
    # every second block is freed, and what is left keeps each segment
    lines = [f"A {i} {5 * MIB - 700 * (i % 3)} 0" for i in range(80)] + [f"F {i}" for i in range(0, 80, 2)]
    text.write_text("\n".join([*lines, "P", f"A 99 {12 * MIB} 0"]) + "\n")
    done = run([PROGRAM, text], SIMCUDA_MEM=f"{SIM_MEMORY // MIB}M", CACHEALLOC_TRACE=trace)
    assert "out of memory" in done.stderr, (done.stdout, done.stderr)
    return trace


SIM_MEMORY = 404 * MIB


def crafted(program="p", settings="", device=8 << 30, name="a device", records=()):
    """The bytes of a trace of our own format; records: (kind, a, b)."""
    fields = b""
    for tag, text in ((2, program), (3, settings)):
        data = text.encode()
        fields += struct.pack("<II", tag, len(data)) + data + bytes(-len(data) % 8)
    head = struct.pack("<8sIHHIIIIQQII", b"\211CAtr\r\n\n", 0x01020304, 1, 1, 56 + len(fields), 56, 24, 1, 1000, 1700000000 * 10**9, 7, 1)
    body = [struct.pack("<BBHIQQ", 11, 0, 0xffff, 1000, device, 0), struct.pack("<BBHI16s", 12, 0, 0, 1000, name.encode()[:16])]
    body += [struct.pack("<BBHIQQ", kind, 0, 0xffff, 1000 + 1000 * n, a, b) for n, (kind, a, b) in enumerate(records, 1)]
    return head + fields + b"".join(body) + struct.pack("<BBHIQQ", 15, 255, 0xffff, 10**6, 0, 0)
