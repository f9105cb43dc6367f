# SPDX-License-Identifier: MIT
"""`cachealloc version`: what is installed. The library is read, never loaded into this process."""

import json

from . import __version__, paths, terminal
from .args import Option, UsageError, describe, parse

OPTIONS = [
    Option("--json", "flag", "As JSON."),
    Option("--library", "value", "Look at this libcachealloc.so.", "FILE"),
    Option("-h --help", "flag", "This text."),
]

HELP = """\
Examples:
  cachealloc version
  cachealloc version --json

Usage: cachealloc version [OPTIONS]

{options}

Exit status: 0, 1 when the library was not found, 2 wrong usage.
"""


def help_text():
    return HELP.format(options=describe(OPTIONS))


def run(argv):
    try:
        values, rest = parse(OPTIONS, argv)
        if rest:
            raise UsageError(f"unexpected word {rest[0]!r}")
    except UsageError as problem:
        terminal.error(f"version: {problem}")
        return 2
    if values["help"]:
        terminal.out(help_text().rstrip())
        return 0
    try:
        path, problem = paths.library(values["library"]), None
    except paths.NotFound as missing:
        path, problem = None, str(missing)
    library = paths.library_version(path) if path else None
    if values["json"]:
        terminal.out(json.dumps({"format": "version", "format_version": 1, "version": __version__,
                                 "library_path": path, "library_version": library}, indent=2))
    else:
        terminal.out(f"cachealloc {__version__}")
        if path:
            terminal.out(f"library {library or 'of unknown version'}  {path}")
    if problem:
        terminal.error(problem)
    elif library and library != __version__:
        terminal.warning(f"command {__version__} and library {library} differ")
    return 1 if problem else 0
