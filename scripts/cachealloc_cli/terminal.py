# SPDX-License-Identifier: MIT
"""Words to the user: data on stdout, messages on stderr, colour only where it is wanted."""

import codecs
import errno
import io
import os
import sys
import threading

lost = ""  # why stdout could not be written

_COLOURS = {"red": "31", "green": "32", "yellow": "33", "bold": "1"}


class _Closed(io.StringIO):
    """Standard output, or error, that was closed before the command began: what is written to it is lost."""

    def __init__(self, tells):
        super().__init__()
        self.tells = tells

    def write(self, text):
        global lost
        if self.tells:
            lost = os.strerror(errno.EBADF)
        return len(text)

    @property
    def buffer(self):
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def stand_in_for_closed():
    """Python has no stream then. Their numbers are taken, not inherited: a file that got one would be a child's standard output."""
    if None in (sys.stdin, sys.stdout, sys.stderr):
        number = os.open(os.devnull, os.O_RDWR)
        while number <= 2:
            number = os.open(os.devnull, os.O_RDWR)
        os.close(number)
    sys.stdin = sys.stdin or _Closed(tells=False)
    sys.stdout = sys.stdout or _Closed(tells=True)
    sys.stderr = sys.stderr or _Closed(tells=False)


def wants_colour(stream):
    """NO_COLOR (not empty) wins, then FORCE_COLOR, then: is it a terminal?"""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def _shown(problem):
    """An error handler: bytes of a name as they were, and an escape for a character that the encoding lacks."""
    text = problem.object[problem.start:problem.end]
    return b"".join(bytes([ord(one) - 0xdc00]) if "\udc80" <= one <= "\udcff" else one.encode("ascii", "backslashreplace")
                    for one in text), problem.end


def show_everything():
    """No name and no sign ends a command, whatever the locale."""
    codecs.register_error("cachealloc", _shown)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="cachealloc")


def paint(text, colour, stream=None):
    if not wants_colour(stream or sys.stdout):
        return text
    return f"\033[{_COLOURS[colour]}m{text}\033[0m"


def _give_up(stream):
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
    stream.flush()


def flush():
    """What cannot be written is given up, once; the end of the command says so."""
    global lost
    try:
        sys.stdout.flush()
    except OSError as problem:
        lost = problem.strerror
        _give_up(sys.stdout)


def say(text):
    """To stderr, after what was written to stdout. A message that cannot be written is lost, and changes no result."""
    flush()
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        _give_up(sys.stderr)


def _message(kind, colour, text):
    say(f"cachealloc: {paint(kind, colour, sys.stderr)}: {text}\n")


def error(text):
    _message("error", "red", text)


def warning(text):
    _message("warning", "yellow", text)


def hint(text):
    _message("hint", "bold", text)


def out(text=""):
    global lost
    try:
        sys.stdout.write(text + "\n")
    except OSError as problem:
        lost = problem.strerror
        flush()


def width():
    """Columns of the terminal that stdout is, or None."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None if sys.stdout.isatty() else None
    except (OSError, ValueError):
        return None


class Progress:
    """A line on stderr for what takes longer than two seconds, if that is a terminal; a thread of its own writes it, so
    that whoever waits for a program only waits. `line()` gives its text."""

    def __init__(self, line, after=2.0, every=1.0):
        self.line = line
        self.after = after
        self.every = every
        self.done = threading.Event()
        self.thread = None

    def __enter__(self):
        if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            self.thread = threading.Thread(target=self._write, daemon=True)
            self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        if self.thread:
            self.thread.join()

    def _write(self):
        wait, shown = self.after, False
        while not self.done.wait(wait):
            wait = self.every
            shown = True
            try:
                room = (os.get_terminal_size(sys.stderr.fileno()).columns or 80) - 1
            except OSError:
                room = 79
            sys.stderr.write("\r\033[K" + self.line()[:room])
            sys.stderr.flush()
        if shown:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()


def about(seconds):
    """Of a duration that is an estimate: "40 s", "3 min", "2.5 h"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


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
