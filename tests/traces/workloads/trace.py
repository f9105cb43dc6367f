# SPDX-License-Identifier: MIT
"""Writes a trace, and reads one: `I id bytes stream` live at the start, `A id bytes stream` allocate, `F id` free, `P`
end of a phase (all work submitted so far has finished), and, only if asked for, `U id stream` another stream uses the
block, too."""

import lzma
from pathlib import Path

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


class Trace:
    """Events in order. A block is its id."""

    def __init__(self, uses=False):
        self.lines = []
        self.live = {}  # id -> bytes
        self.last = 0
        self.uses = uses
        self.started = False

    def start(self, size, stream=0):
        """A block that is live when the trace begins."""
        assert not self.started
        return self._take("I", size, stream)

    def take(self, size, stream=0):
        self.started = True
        return self._take("A", size, stream)

    def _take(self, kind, size, stream):
        self.last += 1
        self.live[self.last] = size
        self.lines.append(f"{kind} {self.last} {size} {stream}")
        return self.last

    def drop(self, block):
        del self.live[block]
        self.started = True
        self.lines.append(f"F {block}")

    def drop_all(self, blocks):
        for block in blocks:
            self.drop(block)

    def use(self, block, stream):
        if self.uses:
            self.lines.append(f"U {block} {stream}")

    def phase(self):
        self.lines.append("P")

    def text(self):
        return "\n".join(self.lines) + "\n"


def recorded(name):
    """The events of a recorded trace (../recorded) as lists of words."""
    with lzma.open(Path(__file__).resolve().parent.parent / "recorded" / f"{name}.trc.xz", "rt", encoding="ascii") as file:
        return [line.split() for line in file]
