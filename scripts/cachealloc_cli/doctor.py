# SPDX-License-Identifier: MIT
"""`cachealloc doctor`: will the hooks bind to this program, by which road, or why not? Nothing is run, but with --run."""

import json
import os
import re
import shlex
import shutil

from . import frameworks, launch, mapping, paths, roads, settings, surroundings, terminal, trial
from .args import Option, UsageError, describe, parse
from .elf import DF_1_NODEFLIB, Elf, ElfError
from .libraries import Search, closure

YES, NO, UNKNOWN = 0, 1, 2
WORDS = {YES: "yes", NO: "no", UNKNOWN: "unknown"}



def duration(text):
    """A converter for 500ms, 10s, 5m."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h)", text)
    seconds = float(found.group(1)) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600}[found.group(2)] if found else 0
    if not 0 < seconds <= 86400:
        raise ValueError("expected a duration such as 500ms, 10s or 5m")
    return seconds


OPTIONS = [
    Option("--run", "flag", "Start the program with the library; end it, and all it started, soon after the first allocation "
           "that is served."),
    Option("--for", "value", "With --run: watch that long, past the first allocation, too. Without: 5m at most.", "TIME", None,
           duration),
    Option("--sim", "flag", "With --run: on the simulated driver."),
    Option("--json", "flag", "As JSON."),
    Option("--library", "value", "Use this libcachealloc.so.", "FILE"),
    Option("-h --help", "flag", "This text."),
]

HELP = """\
Examples:
  cachealloc doctor ./app
  cachealloc doctor --run -- python3 train.py    what happens when it runs?
  cachealloc doctor --run --for 10s ./app        what passes through in 10 seconds?
  cachealloc doctor --json python3

Usage: cachealloc doctor [OPTIONS] PROGRAM
       cachealloc doctor --run [OPTIONS] [--] PROGRAM [ARGUMENTS]

{options}

The program and its libraries are read, not run. Exit status: 0 calls will be
intercepted, 1 they will not, 2 that cannot be told without running it (or the
command line is wrong).

With --run it is run, its output on stderr, and ended by SIGTERM, after 2 seconds
by SIGKILL. Exit status: 0 an allocation was served; 1 the library is not bound;
2 the program could not be started (or the command line is wrong); 3 all that was
allocated went straight to the driver; 4 nothing was allocated; 5 the program
failed before it allocated anything.
"""


def help_text():
    return HELP.format(options=describe(OPTIONS))


class Report:
    """What was found; the verdict is decided once."""

    def __init__(self, program):
        self.program = program
        self.path = None
        self.verdict = None
        self.reason = None
        self.blocked = False  # the loader cannot put the library into it
        self.roads = []
        self.notes = []  # (is it a problem?, phrase)
        self.libcuda = None
        self.driver = None
        self.library = None
        self.fault = None  # why this library cannot be preloaded

    def decide(self, verdict, reason):
        if self.verdict is None:
            self.verdict, self.reason = verdict, reason

    def note(self, text, problem=False):
        self.notes.append((problem, text))


def interpreter_of(path):
    """The words of a script's first line, or None."""
    try:
        with open(path, "rb") as file:
            line = file.readline(1024)
    except OSError:
        return None
    if not line.startswith(b"#!"):
        return None
    try:
        return shlex.split(line[2:].decode("utf-8", "replace")) or None
    except ValueError:
        return line[2:].decode("utf-8", "replace").split() or None


def follow_scripts(report, path):
    """The binary that would be executed in the end, or None with the verdict decided."""
    for _ in range(5):
        words = interpreter_of(path)
        if words is None:
            return path
        if os.path.basename(words[0]) == "env":
            words = [word for word in words[1:] if not word.startswith("-") and "=" not in word] or words[:1]
        found = shutil.which(words[0])
        report.note(f"{path} is a script for {words[0]}")
        if not found:
            report.decide(NO, f"its interpreter {words[0]} was not found")
            return None
        path = found
    report.decide(UNKNOWN, "too many scripts deep")
    return None


def check_loader(report, elf, path):
    """Reasons why no preloaded library, or not this one, would be loaded."""
    if elf.static:
        report.decide(NO, "it is statically linked: no loader runs, so nothing can be preloaded")
    if elf.kind not in (2, 3):
        report.decide(NO, "it is not a program")
    if "musl" in (elf.interpreter or ""):
        report.decide(NO, "it uses the musl C library, and libcachealloc.so needs glibc")
    reason = surroundings.privileged(path)
    if reason:
        report.decide(NO, reason)
    report.blocked = report.verdict == NO
    if report.library is None:
        return
    try:
        ours = Elf(report.library)
    except ElfError as problem:
        report.decide(UNKNOWN, f"{report.library}: {problem}")
        return
    if (ours.bits, ours.machine) != (elf.bits, elf.machine):
        report.decide(NO, f"it is a {elf.bits}-bit {elf.machine} program and the library is "
                          f"{ours.bits}-bit {ours.machine}")
        report.blocked = True
    if report.fault:
        report.decide(NO, "the library cannot be preloaded")


def check_roads(report, elf, path, search, loaded):
    """Roads of the program and of every library loaded with it."""
    report.roads = roads.of_file("the program", elf, elf)
    for name, where, library in loaded:
        if library is None:
            if not roads.is_driver(name):
                report.note(f"{name} was not found", problem=True)
        elif not roads.is_driver(name) and not roads.is_runtime(name):
            report.roads += roads.of_file(name, library, elf)
        if where and where.startswith("/") and roads.is_driver(name) and "/stubs/" in where:
            report.note(f"{name} would be {where}, the toolkit's stub", problem=True)
    if elf.flags_1 & DF_1_NODEFLIB:
        report.note("linked with -z nodeflib: libcuda.so.1 is looked for in its RPATH and RUNPATH only")
    for folder, where in search.folders(elf, path):
        if where in ("RPATH", "RUNPATH") and os.path.isfile(os.path.join(folder, "libcuda.so.1")):
            report.note(f"its {where} holds a libcuda.so.1 of its own in {folder}")
    if "dlmopen" in elf.imported and not roads.contains_runtime(elf):
        report.note("it imports dlmopen: what it loads into another namespace is not seen", problem=True)
    if elf.contains(b"RTLD_DEEPBIND"):
        report.note("it mentions RTLD_DEEPBIND: what the constructors of a library opened so look up, and what it is linked to, passes by")


def note_frameworks(report, path, loaded, environ, is_run):
    """What becomes of the memory of frameworks with a cache of their own, and whether memory is mapped. is_run: which of the
    installed ones it uses will be seen."""
    found = {}
    for _, where, _ in loaded:
        name = frameworks.of_library(where) if where else None
        if name:
            found.setdefault(name, where)
    installed = frameworks.of_python(path, environ) if os.path.basename(path).startswith("python") and not is_run else {}
    for name, library in installed.items():
        if name not in found:
            report.note(f"{name} is installed beside it; if the program uses it: {frameworks.phrase(name, environ, library)}")
    for name, library in found.items():
        report.note(frameworks.phrase(name, environ, library))
    said = mapping.note(environ, [name for name, _, _ in loaded], "PyTorch" in {**installed, **found})
    if said:
        report.note(said)


EXEC = {"execve", "execv", "execvp", "execvpe", "execl", "execlp", "execle", "execveat", "fexecve", "posix_spawn",
        "posix_spawnp"}


def conclude(report, elf):
    """The verdict, when nothing stood against it."""
    certain = [road for road in report.roads if road.kind != "run-time"]
    bound = [road for road in certain if road.binds]
    if bound and report.library is None:
        report.decide(NO, "its calls could be intercepted, but libcachealloc.so was not found")
    elif bound:
        report.decide(YES, bound[0].text)
    elif certain:
        report.decide(NO, certain[0].text)
    elif any(not road.binds for road in report.roads):
        report.decide(NO, report.roads[0].text)
    elif report.roads:
        report.decide(UNKNOWN, report.roads[0].text + "; whether it does shows only when it runs")
    elif elf.imported & EXEC:
        report.decide(UNKNOWN, "it uses no CUDA itself, but starts other programs, which inherit the library: ask about those")
    else:
        report.decide(NO, "neither it nor its libraries use CUDA, and it cannot load CUDA later")


def examine(program, library=None, environ=None, is_run=False):
    """A Report about the program; is_run: it is run afterwards."""
    environ = os.environ if environ is None else environ
    report = Report(program)
    try:
        report.library = paths.library(library)
    except paths.NotFound as missing:
        report.note(str(missing), problem=True)
    report.fault = paths.preload_fault(report.library) if report.library else None
    if report.fault:
        report.note(report.fault, problem=True)
    report.path = path = program if "/" in program else shutil.which(program)
    if not path or not os.path.exists(path):
        report.decide(UNKNOWN, "not found" + launch.here(program, "doctor --run"))
        return report
    if not os.path.isfile(path):
        report.decide(UNKNOWN, "not a file")
        return report
    if not os.access(path, os.X_OK):
        report.note(f"{path} is not executable{launch.here(program, 'doctor --run')}", problem=True)
    report.driver = surroundings.driver_version()
    report.notes += surroundings.environment_notes(environ, report.library)
    path = follow_scripts(report, path)
    if path is None:
        return report
    report.path = os.path.realpath(path)
    try:
        elf = Elf(path)
        search = Search(environ)
        check_loader(report, elf, path)
        loaded = closure(elf, path, search)
        check_roads(report, elf, path, search, loaded)
        note_frameworks(report, path, loaded, settings.taken_over(report.library, environ), is_run)
        report.libcuda = search.find("libcuda.so.1", elf, path)
    except ElfError as problem:
        report.decide(UNKNOWN, f"{path}: {problem}")
        return report
    conclude(report, elf)
    return report


def as_json(report, tried=None):
    return {
        "format": "doctor", "format_version": 1, "program": report.program, "path": report.path,
        "will_intercept": WORDS[report.verdict], "reason": report.reason, "library_path": report.library,
        "libcuda_path": report.libcuda[0] if report.libcuda else None, "driver_version": report.driver,
        "roads": [{"kind": road.kind, "file": road.file, "binds": road.binds, "text": road.text}
                  for road in report.roads],
        "notes": [{"problem": problem, "text": text} for problem, text in report.notes],
        "run": tried and trial.as_json(tried),
    }


def show(report):
    words = {YES: ("will intercept", "green"), NO: ("will not intercept", "red"), UNKNOWN: ("cannot tell", "yellow")}
    word, colour = words[report.verdict]
    terminal.out(f"{report.program}: {terminal.paint(word, colour)}: {report.reason}")
    for (kind, text), files in roads.by_text(report.roads):
        terminal.out(f"  road     {kind}, {files}: {text}")
    if report.libcuda:
        terminal.out(f"  driver   {surroundings.describe_libcuda(*report.libcuda)}")
    if report.driver:
        terminal.out(f"  driver   version {report.driver}")
    terminal.out(f"  library  {report.library or 'not found'}")
    show_notes(report, 7)


def show_notes(report, width):
    for problem, text in report.notes:
        word = terminal.paint("problem", "red") + " " * (width - 7) if problem else f"{'note':<{width}}"
        terminal.out(f"  {word}  {text}")


def run_program(values, words):
    """Exit status of --run. Raises UsageError, NotFound."""
    found = shutil.which(words[0])
    if not found:
        raise UsageError(f"{words[0]}: not found or not executable{launch.here(words[0], 'doctor --run', words[1:])}")
    environ = dict(os.environ)
    if values["sim"]:
        environ["LD_LIBRARY_PATH"] = launch.prepend(paths.simulator(), environ.get("LD_LIBRARY_PATH"))
    report = examine(words[0], values["library"], environ, is_run=True)
    try:
        tried = trial.run(report, words, values)
    except (OSError, ValueError) as problem:
        raise UsageError(f"{words[0]}: {launch.reason(problem, words, 'doctor --run')}") from None
    if values["json"]:
        terminal.out(json.dumps(as_json(report, tried), indent=2))
    else:
        trial.show(tried, words[0])
        show_notes(report, 9)
    return tried.verdict()[0]


def run(argv):
    try:
        values, rest = parse(OPTIONS, argv)
        if values["help"]:
            terminal.out(help_text().rstrip())
            return 0
        if values["run"] and rest:
            return run_program(values, rest)
        if not values["run"] and (values["for"] or values["sim"]):
            raise UsageError("--for and --sim go with --run")
        if len(rest) != 1:
            raise UsageError("one program is needed: cachealloc doctor PROGRAM" if not rest
                             else f"unexpected word {rest[1]!r}: only the program is needed, not its arguments; "
                                  "--run takes both")
    except (UsageError, paths.NotFound) as problem:
        terminal.error(f"doctor: {problem}")
        return UNKNOWN
    report = examine(rest[0], values["library"])
    if values["json"]:
        terminal.out(json.dumps(as_json(report), indent=2))
    else:
        show(report)
    return report.verdict
