# SPDX-License-Identifier: MIT
"""The verbs of the command. A verb's module is imported when it is used: all of them take 130 ms."""

import importlib
import signal
import sys

from . import __version__, paths, terminal
from .args import nearest

#: module, with run(arguments) and help_text(), and what it is for

VERBS = {
    "run": ("launch", "run a program on the caching allocator"),
    "compare": ("compare", "measure a program with and without it, interleaved"),
    "doctor": ("doctor", "tell whether the hooks will bind; with --run, whether they did"),
    "replay": ("replay", "play a recorded trace on the allocator, without a GPU"),
    "report": ("report", "draw a recorded trace, a snapshot or statistics as a page"),
    "convert": ("convert", "write a trace or snapshot for somebody else's viewer"),
    "stats": ("stats", "show statistics files: one, all ranks merged, or for Prometheus"),
    "tune": ("tune", "find settings with which a recorded program needs less memory"),
    "explain": ("explain", "tell why a program ran out of memory, and what would have helped"),
    "version": ("version", "versions of command and library"),
}

#: exit statuses of verbs whose standard output cannot be written; of the others it is 1
LOST = {"run": 125, "compare": 2, "doctor": 2}

HELP = """\
cachealloc {version}: a caching allocator underneath unmodified CUDA programs

Examples:
  cachealloc run --stats -- ./app args       run it, with a summary at the end
  cachealloc compare -r 10 -- ./app args     is it faster, and what does it cost?
  cachealloc doctor ./app                    will it work with this program?

Without this command, nothing else is needed:
  LD_PRELOAD={library} ./app

Verbs:
{verbs}
  help [VERB]   this text, or a verb's

cachealloc VERB --help tells the rest.
"""


def module(verb):
    return importlib.import_module("." + VERBS[verb][0], __package__)


def help_text():
    try:
        library = paths.library()  # absolute: a relative name is looked up anew by each program that starts
    except paths.NotFound:
        library = None
    if library is None or paths.preload_fault(library):
        library = "/path/to/" + paths.LIBRARY_NAME
    verbs = "\n".join(f"  {name:<13} {text}" for name, (_, text) in VERBS.items())
    return HELP.format(version=__version__, verbs=verbs, library=library)


def show_help(argv):
    if argv and argv[0] in VERBS:
        terminal.out(module(argv[0]).help_text().rstrip())
    elif argv and argv[0] != "help":
        return unknown(argv[0])
    else:
        terminal.out(help_text().rstrip())
    return 0


def unknown(verb):
    close = nearest(verb, list(VERBS) + ["help"])
    terminal.error(f"unknown verb {verb!r}; " + (f"did you mean {close!r}?" if close
                                                 else "`cachealloc help` lists them"))
    return 2


def dispatch(argv):
    if not argv:
        terminal.say(help_text())
        return 2
    verb, rest = argv[0], argv[1:]
    if verb in ("-h", "--help", "help"):
        return show_help(rest if verb == "help" else [])
    if verb in ("-V", "--version"):
        return module("version").run(rest)
    if verb not in VERBS:
        return unknown(verb)
    return module(verb).run(rest)


def script():
    """The command of a Python package."""
    return main(sys.argv[1:])


def main(argv):
    # Python ignores SIGPIPE; the program that `run` becomes must not inherit that.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    terminal.stand_in_for_closed()
    terminal.show_everything()
    try:
        status = dispatch(argv)
    except KeyboardInterrupt:
        return 130
    terminal.flush()
    if terminal.lost:
        terminal.error(f"standard output: {terminal.lost}")
        return LOST.get(argv[0] if argv else "", 1)
    return status
