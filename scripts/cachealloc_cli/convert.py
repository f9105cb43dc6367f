# SPDX-License-Identifier: MIT
"""`cachealloc convert`: a recording, for somebody else's viewer."""

import os
import signal
import sys
import time

from . import convert_input, convert_memory_viz, convert_perfetto, convert_tables, terminal
from .args import Option, UsageError, describe, nearest, parse
from .whole_file import is_one_of, whole_file

DONE, FAILED, USAGE = 0, 1, 2
LARGE = 32 << 20  # bytes of a snapshot that takes a second or so to read

FORMS = {
    "memory_viz": (convert_memory_viz.write, True, "the pickle that PyTorch's _memory_viz.py and its page read"),
    "perfetto": (convert_perfetto.write, True, "a trace for Perfetto: memory over time, events, work of streams"),
    "rmm": (convert_tables.rmm, False, "the log of RMM's logging_resource_adaptor, of one device"),
    "csv": (convert_tables.csv, False, "a table, one row an event"),
}


def form(text):
    if text not in FORMS:
        close = nearest(text, FORMS)
        raise ValueError(f"expected {', '.join(FORMS)}" + (f"; did you mean {close}?" if close else ""))
    return text


def ordinal(text):
    if not text.isdigit():
        raise ValueError("expected a device's number")
    return int(text)


OPTIONS = [
    Option("--to", "value", "The form: memory_viz, perfetto, rmm or csv.", "FORM", convert=form),
    Option("-o --output", "value", "Where it goes; - is stdout.", "OUT"),
    Option("--device", "value", "Only what happened on that device (not with memory_viz, whose viewers choose one).", "N",
           convert=ordinal),
    Option("--force", "flag", "Overwrite OUT if it exists, but not FILE."),
    Option("-h --help", "flag", "This text."),
]

HELP = """\
Examples:
  cachealloc convert app.7841.trace --to memory_viz -o app.pickle
  cachealloc convert app.7841.trace --to perfetto -o app.pftrace
  cachealloc convert step.pickle --to csv -o - --device 0
  xz -dc step.trace.xz | cachealloc convert - --to rmm -o step.csv

Usage: cachealloc convert FILE --to FORM -o OUT [OPTIONS]

FILE is a trace (CACHEALLOC_TRACE), a snapshot (CACHEALLOC_SNAPSHOT) or a memory
snapshot of PyTorch's, of any version, as a pickle or as JSON; - is stdin.

{options}

Forms:
{forms}

Columns of csv:
{columns}

OUT appears when it is complete: until then, and after a failure, there is none.

Exit status: 0; 1 FILE could not be read or OUT not be written; 2 the command
line is wrong.
"""


def _wrapped(rows, left):
    lines = []
    for name, words in rows:
        line, start = "", name
        for word in words.split():
            if len(line) + len(word) > 76 - left:
                lines.append(f"  {start:<{left}}{line}".rstrip())
                start, line = "", ""
            line += (" " if line else "") + word
        lines.append(f"  {start:<{left}}{line}".rstrip())
    return "\n".join(lines)


def help_text():
    forms = _wrapped([(name, words) for name, (_, _, words) in FORMS.items()], 12)
    return HELP.format(options=describe(OPTIONS), forms=forms, columns=_wrapped(convert_tables.COLUMNS, 17))


class Progress:
    """A share of the work that is done, on a terminal, once that has taken two seconds."""

    def __init__(self):
        self.shown = False
        self.next = time.monotonic() + 2
        self.wanted = sys.stderr.isatty()

    def say(self, text):
        sys.stderr.write(f"\r\033[K{text}")
        sys.stderr.flush()
        self.shown = True

    def __call__(self, share):
        now = time.monotonic()
        if self.wanted and now >= self.next:
            self.say(f"{share * 100:.0f} %")
            self.next = now + 0.2

    def end(self):
        if self.shown:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()


class OneDevice:
    """A recording, as if nothing but that device had been recorded."""

    def __init__(self, recording, device):
        self.recording, self.device = recording, device

    def __getattr__(self, name):
        return getattr(self.recording, name)

    def events(self, progress=None):
        return (event for event in self.recording.events(progress) if event.device == self.device)


def mixed(argv):
    """Options may stand before and after FILE. Returns (values, FILE)."""
    files, options = [], []
    while argv:
        values, rest = parse(OPTIONS, argv)
        options.append(values)
        files += rest[:1]
        argv = rest[1:]
    values = {option.key: None for option in OPTIONS}
    for one in options:
        values.update({name: value for name, value in one.items() if value is not None})
    return values, files


def checked(argv):
    """(values, FILE), or (None, None) where only help was asked for. Raises UsageError."""
    values, files = mixed(argv)
    if values["help"]:
        return None, None
    if len(files) != 1:
        raise UsageError("no FILE given" if not files else f"one FILE at a time: {' '.join(files)}")
    for key, name in (("to", "--to"), ("output", "-o")):
        if not values[key]:
            raise UsageError(f"{name} is missing: cachealloc convert FILE --to FORM -o OUT")
    if values["to"] == "memory_viz" and values["device"] is not None:
        raise UsageError("--device is of no use to memory_viz: its viewers choose a device")
    out = values["output"]
    if out == "-" and FORMS[values["to"]][1] and sys.stdout.isatty():
        raise UsageError(f"{values['to']} is nothing for a terminal: give -o a file, or pipe it")
    if out != "-" and os.path.exists(out) and not values["force"]:
        raise UsageError(f"{out} exists; --force overwrites it")
    if out != "-" and is_one_of(out, files):
        raise UsageError(f"{out} is the recording itself, and is not overwritten")
    if out != "-" and not os.path.isdir(os.path.dirname(os.path.abspath(out))):
        raise UsageError(f"{out}: its folder does not exist")
    return values, files[0]


def loaded(path, progress):
    """Raises OSError, Unreadable."""
    if path == "-":
        data = sys.stdin.buffer.read()
    else:
        with open(path, "rb") as file:
            data = file.read()
    if progress.wanted and len(data) > LARGE:
        progress.say(f"reading {path}")
    return convert_input.read(data)


def recording_of(values, path):
    """Raises OSError, Unreadable, UsageError."""
    progress = Progress()
    try:
        recording = loaded(path, progress)
    finally:
        progress.end()
    if recording.is_cut:
        terminal.warning(f"{path} is cut off: what is there is converted")
    devices = recording.ordinals()
    if values["device"] is not None and values["device"] not in devices:
        raise UsageError(f"{path} has no device {values['device']}; it has {', '.join(map(str, devices)) or 'none'}")
    if values["to"] == "rmm" and len(devices) > 1 and values["device"] is None:
        raise UsageError(f"a log of RMM's is of one device, and {path} has {', '.join(map(str, devices))}: choose by --device")
    return recording if values["device"] is None else OneDevice(recording, values["device"])


def convert(values, recording):
    out, progress = values["output"], Progress()
    write = FORMS[values["to"]][0]
    try:
        if out == "-":
            write(recording, sys.stdout.buffer.write, progress)
            sys.stdout.buffer.flush()
            return
        with whole_file(out) as file:
            write(recording, file.write, progress)
    finally:
        progress.end()


def run(argv):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a file that may not grow is an error like a full disk
    path = None
    try:
        values, path = checked(argv)
        if values is None:
            terminal.out(help_text().rstrip())
            return DONE
        recording = recording_of(values, path)
    except UsageError as problem:
        terminal.error(f"convert: {problem}")
        return USAGE
    except (OSError, convert_input.Unreadable) as problem:
        terminal.error(f"convert: {path}: {getattr(problem, 'strerror', None) or problem}")
        return FAILED
    try:
        convert(values, recording)
    except OSError as problem:
        terminal.error(f"convert: {values['output']}: {problem.strerror}")
        return FAILED
    except (ValueError, OverflowError) as problem:
        terminal.error(f"convert: {path}: {problem}")
        return FAILED
    return DONE
