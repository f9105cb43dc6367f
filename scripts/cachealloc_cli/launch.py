# SPDX-License-Identifier: MIT
"""`cachealloc run`: sets the environment and becomes the program, so status and signals are the program's own."""

import os
import shlex
import shutil
import sys

from . import invocation, paths, settings, terminal
from .args import Option, UsageError, describe, parse

LAUNCHER_ERROR, CANNOT_EXECUTE, NOT_FOUND = 125, 126, 127

OPTIONS = [option for _, option in settings.VARIABLES] + [
    Option("--sim", "flag", "Run on the simulated driver instead of a GPU."),
    Option("--library", "value", "Use this libcachealloc.so.", "FILE"),
    Option("-n --dry-run", "flag", "Print the command with its environment; run nothing."),
    Option("-h --help", "flag", "This text."),
]

HELP = """\
Examples:
  cachealloc run ./app --size 10           the allocator under ./app
  cachealloc run --stats ./app             and a summary at the end
  cachealloc run --stats=s-%p.json ./app   the summary as JSON, one file a process
  cachealloc run --sim --log info ./app    on the simulated driver; settings confirmed

Usage: cachealloc run [OPTIONS] [--] PROGRAM [ARGUMENTS]

{options}

The same without this command: LD_PRELOAD=/path/to/libcachealloc.so PROGRAM, and
one CACHEALLOC_ variable for each option (--log-file is CACHEALLOC_LOG_FILE). A bad
setting among the options is refused, and the program is not started; the library
ignores one that is in the environment, with a line that says so.
{keys}
Exit status: the program's own, and the same signal if it dies by one;
125 this command failed, 126 the program cannot be executed, 127 it was not found.
"""


def help_text():
    return HELP.format(options=describe(OPTIONS), keys=settings.keys_text())


def prepend(path, before):
    """A colon list with `path` in front, in which it stands once."""
    return ":".join([path] + [part for part in (before or "").replace(" ", ":").split(":") if part not in ("", path)])


def environment(library, sim_folder, changes, environ=None):
    """The program's environment: our library preloaded before all others, the simulator found first."""
    fault = paths.preload_fault(library)
    if fault:
        raise UsageError(fault)
    env = dict(os.environ if environ is None else environ)
    env["LD_PRELOAD"] = prepend(library, env.get("LD_PRELOAD"))
    if sim_folder:
        others = env.get("LD_LIBRARY_PATH")
        env["LD_LIBRARY_PATH"] = sim_folder + (":" + others if others else "")
    env.update(changes)
    return env


def run(argv):
    try:
        values, program = parse(OPTIONS, argv)
        if values["help"]:
            terminal.out(help_text().rstrip())
            return 0
        if not program:
            raise UsageError("no program given: cachealloc run [OPTIONS] [--] PROGRAM [ARGUMENTS]")
        changes = settings.from_options(values)
        library = paths.library(values["library"])
        env = environment(library, paths.simulator() if values["sim"] else None, changes)
        settings.refuse(library, changes)
    except settings.BadSettings as problem:
        for line in problem.lines:
            terminal.error(f"run: {line}")
        return LAUNCHER_ERROR
    except (UsageError, paths.NotFound) as problem:
        terminal.error(f"run: {problem}")
        return LAUNCHER_ERROR
    if values["dry_run"]:
        shown = {name: env[name] for name in ("LD_PRELOAD", "LD_LIBRARY_PATH") if name in env}
        shown.update(changes)
        terminal.out(" ".join([f"{name}={shlex.quote(value)}" for name, value in shown.items()]
                              + [shlex.quote(word) for word in program]))
        return 0
    return become(program, env)


def become(program, env):
    """Replaces this process; returns only when that fails."""
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvpe(program[0], program, env)
    except (OSError, ValueError) as problem:
        terminal.error(f"run: {program[0]}: {reason(problem, program, 'run')}")
        return NOT_FOUND if isinstance(problem, (FileNotFoundError, NotADirectoryError)) else CANNOT_EXECUTE


def here(program, verb, more=()):
    """A phrase about a file of that name that is no program by itself, or nothing."""
    if not os.path.isfile(program):
        return ""
    name = shlex.quote(program)
    if program.endswith(".py"):
        return f"; `{invocation.words()} {verb} -- {' '.join(['python3', name, *map(shlex.quote, more)])}` runs that file"
    return f"; a file of that name lies here: {shlex.quote('./' + program)}" if "/" not in program else ""


def reason(problem, words, verb):
    """Why a program could not be started."""
    is_missing = isinstance(problem, FileNotFoundError) and problem.filename  # not: no folder for temporary files
    if is_missing and shutil.which(words[0]):
        return "its interpreter or loader was not found"
    if is_missing and "/" not in words[0]:
        return "not found" + here(words[0], verb, words[1:])
    return getattr(problem, "strerror", None) or problem
