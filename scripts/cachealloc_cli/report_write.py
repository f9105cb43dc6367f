# SPDX-License-Identifier: MIT
"""The page's text, files that are whole or not there at all, and progress on a terminal."""

import base64
import html
import json
import os
import re
import sys
import time
import zlib

from . import __version__
from .whole_file import whole_file

FOLDER = os.path.join(os.path.dirname(os.path.realpath(__file__)), "report_page")

# Of the replay's JSON and of statistics: name, words, unit. A test compares the page with the JSON.
FIGURES = (
    ("peak_live_bytes", "peak requested by the program", "bytes"),
    ("requested_bytes", "peak requested by the program (counted by the library)", "bytes"),
    ("allocated_bytes", "peak allocated, with rounding", "bytes"),
    ("peak_reserved_bytes", "peak reserved, in pages of 2 MiB", "bytes"),
    ("reserved_bytes", "peak reserved", "bytes"),
    ("waste_ppm", "waste at the peak", "ppm"),
    ("bytes_from_driver", "taken from the driver in all", "bytes"),
    ("allocations", "allocations", "count"),
    ("frees", "frees", "count"),
    ("hits", "allocations without a driver call", "count"),
    ("driver_alloc_calls", "driver calls: segments taken", "count"),
    ("driver_free_calls", "driver calls: segments given back", "count"),
    ("flushes", "flushes: rounds of giving back under pressure", "count"),
    ("trims", "trims: segments given back early or by keys that trim", "count"),
    ("ooms", "requests refused", "count"),
    ("order_waits", "waits on the device that were inserted", "count"),
    ("host_syncs", "waits of the host", "count"),
    ("min_capacity_bytes", "least memory", "bytes"),
)


class Progress:
    """A line on a terminal's stderr, from the third second on."""

    def __init__(self):
        self.started = time.monotonic()
        self.shown = False

    def say(self, what):
        if sys.stderr.isatty() and time.monotonic() - self.started >= 2:
            sys.stderr.write(f"\r\033[Kcachealloc: {what} ({time.monotonic() - self.started:.0f} s)")
            sys.stderr.flush()
            self.shown = True

    def end(self):
        if self.shown:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
        self.shown = False


def replace(path, pieces):
    """Writes the text beside `path` and renames it: `path` is whole, or as it was."""
    with whole_file(path) as file:
        for piece in pieces:
            file.write(piece.encode("utf-8", "replace"))


def script_json(value):
    """JSON that cannot end the element it stands in."""
    text = json.dumps(value, separators=(",", ":"))  # ASCII: U+2028 is escaped, too
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _planes(column):
    """All lowest bytes, then all second ones, ..., as far as any is not 0: bytes of a kind are alike, and pack well."""
    data, width = column.tobytes(), column.itemsize
    planes = [data[k::width] for k in range(width)]
    while planes and planes[-1].count(0) == len(planes[-1]):
        planes.pop()
    return planes


def packed(timeline, kinds):
    """The page's [name, type, rows, planes] for each column, and their bytes."""
    packer, columns, pieces = zlib.compressobj(6), [], []
    for (name, kind, count), column in zip(kinds, timeline.columns.values()):
        planes = _planes(column)
        pieces += [packer.compress(plane) for plane in planes]
        columns.append((name, kind, count, len(planes)))
    return columns, base64.b64encode(b"".join(pieces) + packer.flush()).decode("ascii")


def _asset(name):
    with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
        return file.read()


def page(parts):
    """Pieces of the page's text."""
    described, blobs = [], []
    for number, part in enumerate(parts):
        fields = part.described()
        if part.timeline:
            fields["blob"] = f"blob-{number}"
            fields["columns"], text = packed(part.timeline, part.head["columns"])
            blobs.append(f'<script type="application/octet-stream" id="blob-{number}">{text}</script>')
        described.append(fields)
    title = parts[0].name if len(parts) == 1 else f"{parts[0].name} and {len(parts) - 1} more"
    values = {
        "TITLE": html.escape(f"{title}: device memory"),
        "STYLE": _asset("page.css"),
        "DATA": script_json({"version": __version__, "figure_names": FIGURES, "parts": described}),
        "BLOBS": "\n".join(blobs),
        "SCRIPT": "\n".join(_asset(name) for name in ("model.js", "scale.js", "views.js", "words.js", "page.js")),
    }
    # in one pass: what is put in is not looked at again
    for piece in re.split(r"(@[A-Z]+@)", _asset("page.html")):
        yield values.get(piece[1:-1], piece) if piece.startswith("@") and piece.endswith("@") else piece
