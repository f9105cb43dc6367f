# SPDX-License-Identifier: MIT
"""A line on stderr that is written over, where stderr is a terminal."""

import os
import sys
import time

INTERVAL_S = 0.1


class Progress:
    def __init__(self):
        self._shown = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._next = 0.0
        self._dirty = False

    def show(self, text):
        now = time.monotonic()
        if not self._shown or now < self._next:
            return
        self._next = now + INTERVAL_S
        self._dirty = True
        sys.stderr.write(f"\r\033[K{text[:78]}")
        sys.stderr.flush()

    def clear(self):
        if self._dirty:
            self._dirty = False
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
