# SPDX-License-Identifier: MIT
"""Words to the user: data on stdout, messages on stderr, colour only where it is wanted."""

import os
import sys

_COLOURS = {"red": "31", "green": "32", "yellow": "33", "bold": "1"}


def wants_colour(stream):
    """NO_COLOR (not empty) wins, then FORCE_COLOR, then: is it a terminal?"""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def paint(text, colour, stream=None):
    if not wants_colour(stream or sys.stdout):
        return text
    return f"\033[{_COLOURS[colour]}m{text}\033[0m"


def _message(kind, colour, text):
    sys.stdout.flush()
    sys.stderr.write(f"cachealloc: {paint(kind, colour, sys.stderr)}: {text}\n")
    sys.stderr.flush()


def error(text):
    _message("error", "red", text)


def warning(text):
    _message("warning", "yellow", text)


def hint(text):
    _message("hint", "bold", text)


def out(text=""):
    sys.stdout.write(text + "\n")


def size_text(count):
    """1288490189 -> "1.2 GiB"; None -> "-"."""
    if count is None:
        return "-"
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    value, unit = float(count), 0
    while abs(value) >= 1024 and unit < len(units) - 1:
        value /= 1024
        unit += 1
    return f"{count:.0f} B" if unit == 0 else f"{value:.1f} {units[unit]}"


def time_text(nanoseconds):
    """1234567 -> "1.23 ms"; None -> "-"."""
    if nanoseconds is None:
        return "-"
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if nanoseconds >= scale:
            return f"{nanoseconds / scale:.3g} {unit}" if nanoseconds < 100 * scale \
                else f"{nanoseconds / scale:.0f} {unit}"
    return f"{nanoseconds:.0f} ns"


def count_text(number):
    return "-" if number is None else f"{number:,.0f}".replace(",", " ")


def table(rows, right):
    """Aligned text; columns whose index is in `right` are flush right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [cell.rjust(width) if column in right else cell.ljust(width)
                 for column, (cell, width) in enumerate(zip(row, widths))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
