# SPDX-License-Identifier: MIT
"""`cachealloc report`: recorded memory as a page that needs no network, or as a picture.

cachealloc-replay reads the files and gives timelines and figures (report_data); the page draws them itself
(report_page/), pictures are drawn here (report_svg). Nothing is written before everything is read.
"""

import os
import signal
import sys
import tempfile

from . import paths, report_data, report_svg, report_write, terminal
from .args import Option, UsageError, describe, integer, parse
from .ending import ending
from .whole_file import is_one_of

DONE, FAILED, USAGE = 0, 1, 2

OPTIONS = [
    Option("-o --output", "value", "Write the page, or the picture, there; `-`: stdout.", "FILE"),
    Option("--svg", "value", "One picture instead of the page: " + ", ".join(report_svg.VIEWS) + ".", "VIEW"),
    Option("--at", "value", "The picture `map` shows this moment: oom (the last request that was refused; the default where "
           "there is one), peak, or an event's number.", "MOMENT"),
    Option("--device", "value", "Draw this device only.", "N", None, integer(0, 63)),
    Option("--replayed", "flag", "Draw what cachealloc would have done, also where the file tells what was done."),
    Option("--conf", "value", "Keys of that replay; may be repeated.", "K:V,...", repeat=True),
    Option("--memory", "value", "Memory of each device in that replay, for example 80G.", "SIZE"),
    Option("--force", "flag", "Overwrite FILE, but none of those drawn."),
    Option("-h --help", "flag", "This text."),
]

HELP = """\
Examples:
  cachealloc run --trace run.trace -- ./app           record
  cachealloc report run.trace -o run.html             draw, and open run.html
  cachealloc report rank*.trace -o ranks.html         ranks side by side
  cachealloc report snapshot.pickle -o torch.html     PyTorch's memory snapshot
  cachealloc report run.trace --svg memory -o memory.svg

Usage: cachealloc report [OPTIONS] FILE...

{options}

FILE is a trace of CACHEALLOC_TRACE, a PyTorch memory snapshot, statistics of
CACHEALLOC_STATS=FILE.json, or another file that cachealloc-replay reads, plain
or compressed (.xz, .gz, .bz2). Traces and snapshots are drawn as recorded,
files that do not tell where segments lay as a replay on cachealloc.

Exit status: 0 done; 1 a file cannot be read or is broken, or nothing can be
written; 2 wrong usage. Nothing is written but after everything was read.
"""


def help_text():
    return HELP.format(options=describe(OPTIONS))


def command_line(argv):
    """Options may stand behind files, too."""
    values, files = parse(OPTIONS, [])[0], []
    while argv:
        found, rest = parse(OPTIONS, argv)
        for option in OPTIONS:
            if option.repeat:
                values[option.key] += found[option.key]
            elif found[option.key] != option.default:
                values[option.key] = found[option.key]
        if argv[len(argv) - len(rest) - 1:][:1] == ["--"]:
            files += rest
            break
        files += rest[:1]
        argv = rest[1:]
    return values, files


def checked(argv):
    values, files = command_line(argv)
    if values["help"]:
        return values, files
    if not files:
        raise UsageError("no file given: cachealloc report FILE... -o out.html")
    if values["svg"] and values["svg"] not in report_svg.VIEWS:
        raise UsageError(f"--svg {values['svg']}: expected one of {', '.join(report_svg.VIEWS)}")
    if values["at"] and values["svg"] != "map":
        raise UsageError("--at is of use with --svg map only")
    if values["at"] and values["at"] not in ("oom", "peak") and not values["at"].isdigit():
        raise UsageError(f"--at {values['at']}: expected oom, peak or the number of an event")
    if values["svg"] and len(files) > 1:
        raise UsageError("--svg draws one file")
    if not values["output"] and not values["svg"]:
        raise UsageError("no output given: cachealloc report FILE... -o out.html")
    if (values["conf"] or values["memory"]) and not values["replayed"]:
        raise UsageError("--conf and --memory are settings of a replay: add --replayed")
    return values, files


def output_obstacle(values, files):
    """Why the file cannot be written, as far as that is known before the work; or None."""
    path = values["output"]
    if not path or path == "-":
        return None
    if is_one_of(path, files):
        return f"{path} is one of the files to draw, and is not overwritten"
    if os.path.exists(path) and not values["force"]:
        return f"{path} exists; --force overwrites it"
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        return f"{folder} is not a folder"
    return None


def write(values, pieces):
    """Raises Refused."""
    to_stdout = values["output"] in (None, "-")
    try:
        if to_stdout:
            for piece in pieces:
                sys.stdout.buffer.write(piece.encode("utf-8", "replace"))
            sys.stdout.buffer.flush()
        else:
            report_write.replace(values["output"], pieces)
    except OSError as problem:
        name = "standard output" if to_stdout else values["output"]
        raise report_data.Refused(f"{name}: {problem.strerror}") from None


def make(values, files, folder):
    """Pieces of text, which need the folder no more."""
    progress = report_write.Progress()
    replay = report_data.Replay(values["replayed"], ",".join(values["conf"]), values["memory"])
    parts = []
    for path in files:
        parts += report_data.read(path, replay, folder, progress)
    if values["device"] is not None:
        parts = [part for part in parts if part.head["device"] == values["device"]]
        if not parts:
            raise report_data.Refused(f"no file has a device {values['device']}")
    progress.say("drawing")
    if values["svg"]:
        pieces = [report_svg.draw(values["svg"], parts, values["at"])]
    else:
        pieces = list(report_write.page(parts))
    progress.end()
    return pieces


def run(argv):
    try:
        values, files = checked(argv)
    except UsageError as problem:
        terminal.error(f"report: {problem}")
        return USAGE
    if values["help"]:
        terminal.out(help_text().rstrip())
        return DONE
    obstacle = output_obstacle(values, files)
    if obstacle:
        terminal.error(f"report: {obstacle}")
        return USAGE
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a file that is too large is an error like a full disk
    try:
        with ending():
            with tempfile.TemporaryDirectory(prefix="cachealloc-report-") as folder:
                pieces = make(values, files, folder)
            write(values, pieces)
    except report_data.Refused as problem:
        terminal.error(f"report: {problem}")
        return problem.status
    except OSError as problem:
        terminal.error(f"report: {problem.filename or tempfile.gettempdir()}: {problem.strerror}")
        return FAILED
    except paths.NotFound as problem:
        terminal.error(f"report: {problem}")
        return FAILED
    return DONE
