# SPDX-License-Identifier: MIT
"""A figure of the program's own, taken from its output by a regular expression with one group.

The last match counts: programs repeat a running figure and end with the final one. stdout comes before stderr. Of an
output larger than TAIL the end is searched.
"""

import math
import re

TAIL_BYTES = 64 << 20


class Metric:
    """better: "higher" or "lower"."""

    def __init__(self, pattern, better):
        self.pattern = pattern
        self.better = better
        try:
            self.expression = re.compile(pattern, re.MULTILINE)
        except re.error as problem:
            raise ValueError(f"not a regular expression: {problem}") from None
        if self.expression.groups != 1:
            raise ValueError("expected one group in parentheses around the number, such as 'tok/s ([0-9.]+)'"
                             + ("; (?:...) groups without counting" if self.expression.groups else ""))
        self.name = _name(pattern)
        self.not_a_number = None  # that was found in its place

    def find(self, text):
        """The number, or None where the text has none."""
        found = None
        for found in self.expression.finditer(text):
            pass
        if not found:
            return None
        try:
            value = float((found.group(1) or "").replace(",", "").replace("_", ""))
        except ValueError:
            value = math.nan
        if math.isfinite(value):
            return value
        self.not_a_number = found.group(1) or ""
        return None

    def as_json(self):
        return {"name": self.name, "pattern": self.pattern, "better": self.better}


def _name(pattern):
    """What a person calls it: the words around the group."""
    words = re.sub(r"\((?!\?).*\)", " ", pattern)
    words = re.sub(r"\\[a-zA-Z]|[\\^$*+?{}\[\]|()]", " ", words).strip(" :=.,")
    return re.sub(r"\s+", " ", words) or pattern


def converter(better):
    def convert(pattern):
        return Metric(pattern, better)
    return convert


def read(paths):
    """The end of the program's output."""
    parts = []
    for path in paths:
        try:
            with open(path, "rb") as file:
                size = file.seek(0, 2)
                file.seek(max(0, size - TAIL_BYTES))
                parts.append(file.read().decode("utf-8", "replace").replace("\r", "\n"))
        except OSError:
            pass
    return "\n".join(parts)
