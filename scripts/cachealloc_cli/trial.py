# SPDX-License-Identifier: MIT
"""`cachealloc doctor --run`: the program is started with the library, and what happens is told.

The library's own log lines (one file a process) say whether calls came through, under which driver, by which road, and
where the first memory came from; its statistics count what was served and what went straight to the driver; /proc shows
which processes have the library at all.
"""

import glob
import os
import re
import signal
import tempfile
import time

from . import counts, frameworks, launch, observed, paths, processes, surroundings, terminal

SERVED, NOT_BOUND, UNKNOWN, PASSED, NOTHING, FAILED = range(6)
WORDS = ("served", "not_bound", "not_started", "passed", "nothing_allocated", "failed")
TEXTS = (("served", "green"), ("not bound", "red"), ("not started", "red"), ("passed through", "yellow"),
         ("nothing was allocated", "yellow"), ("failed", "red"))
LONGEST_S = 300.0
MORE_S = 2.0   # after the first memory that went straight to the driver
LOOK_S = 0.05


class Trial:
    """The program while it runs, and what was seen of it."""

    def __init__(self, report, words, env, folder):
        self.report = report
        self.words = words
        self.folder = folder
        self.disabled = env.get("CACHEALLOC_DISABLE", "").lower() not in ("", "0", "off", "false", "no")
        base = os.path.join(folder, "").replace("%", "%%") + "%p"
        env = {**env, "CACHEALLOC_LOG": "info", "CACHEALLOC_LOG_FILE": base + ".log", "CACHEALLOC_STATS": base + ".json",
               "CACHEALLOC_STATS_INTERVAL": "100ms"}
        self.seen = {}
        self.started = time.monotonic()
        self.served_after = None  # seconds
        self.passed_after = None
        self.interrupted = False  # by a signal, from before the program starts: no moment is left in which it would stay behind
        self.ended = None         # by us: how
        self.own_end = None       # the program's own: its status
        self.over_after = None    # seconds
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self.interrupt)
        self.tree = processes.Tree(words, env)

    def interrupt(self, *_):
        self.interrupted = True

    def elapsed(self):
        """Seconds, until the watching was over."""
        return self.over_after if self.over_after is not None else time.monotonic() - self.started

    def _process(self, pid):
        return self.seen.setdefault(pid, observed.Process(pid, self.elapsed()))

    def look(self):
        """At processes, log lines and statistics. Returns whether anything lives."""
        alive = self.tree.alive()
        for pid in alive:
            self._process(pid).look(self.elapsed())
        self.read()
        if self.served_after is None and self.served():
            self.served_after = self.elapsed()
        if self.passed_after is None and self.passed() + self.other():
            self.passed_after = self.elapsed()
        return bool(alive)

    def read(self):
        """The files that the library has written."""
        for path in glob.glob(os.path.join(glob.escape(self.folder), "*.*")):
            number, _, kind = os.path.basename(path).partition(".")
            if not number.isdigit():
                continue
            with open(path, encoding="utf-8", errors="replace") as file:
                text = file.read()
            process = self._process(int(number))
            if kind == "log":
                process.lines = [re.sub(r"^cachealloc(\[[^]]*\])?: ", "", line) for line in text.splitlines()]
            else:
                process.stats = observed.last(text) or process.stats

    def served(self):
        """How many allocations, as far as was seen."""
        if self.disabled:
            return 0
        return sum(max(one.count("alloc_calls") - one.count("passed_alloc_calls") + one.count("async_alloc_calls"),
                       bool(one.first() and one.first()[1])) for one in self.seen.values())

    def passed(self):
        if self.disabled:
            return sum(max(one.count("alloc_calls"), bool(one.first())) for one in self.seen.values())
        return sum(max(one.count("passed_alloc_calls"), bool(one.first() and not one.first()[1])) for one in self.seen.values())

    def other(self):
        """By calls that the driver serves itself."""
        return sum(one.count("other_alloc_calls") for one in self.seen.values())

    def is_over(self, seconds):
        """Has enough been seen?"""
        now = self.elapsed()
        if self.interrupted:
            return True
        if seconds is not None:
            return now >= seconds
        if self.served_after is not None or now >= LONGEST_S:
            return True
        return self.passed_after is not None and now >= self.passed_after + MORE_S

    def watch(self, seconds):
        """Until enough was seen, the program has ended, or an interrupt; then everything is ended."""
        with terminal.Progress(lambda: f"doctor: {self.elapsed():.0f} s, {self.served()} served; Ctrl-C ends it", every=5.0):
            begun = time.monotonic()
            while self.look() and not self.is_over(seconds):
                time.sleep(max(LOOK_S, 4 * (time.monotonic() - begun)))  # a machine may have thousands of processes
                begun = time.monotonic()
        self.over_after = self.elapsed()
        self.own_end = self.tree.child.poll()
        self.ended = self.tree.end()
        if self.ended is None:
            self.own_end = self.tree.child.poll()
        self.read()

    # ---- what it comes to

    def main_failed(self):
        return self.own_end not in (None, 0)

    def without_library(self):
        """Processes in which the library is not, the most telling first."""
        return sorted((one for one in self.seen.values() if one.library is False), key=lambda one: not one.driver)

    def blocked(self):
        """Why the program itself cannot have the library, or None."""
        roads = self.report.roads
        if self.report.blocked:
            return self.report.reason
        return next((road.text for road in roads if not road.binds), None)

    def verdict(self):
        """(one of the constants, a phrase)."""
        if self.served():
            return SERVED, self._first()
        if self.disabled and any(one.called() for one in self.seen.values()):
            return PASSED, "every call goes straight to the driver: CACHEALLOC_DISABLE is set; unset it"
        if self.passed() + self.other():
            return PASSED, "memory was allocated, and none of it was served here"
        if not any(one.called() for one in self.seen.values()):
            lost = self._not_bound()
            if lost:
                return NOT_BOUND, lost
        if self.main_failed():
            return FAILED, f"it {self._own_end()} before it allocated anything"
        return NOTHING, self._nothing()

    def _not_bound(self):
        """Why no call can have come, or None. The program's file says it for certain; a look at its processes may be too late."""
        if self.blocked():
            return self.blocked()
        unbound = self.without_library()
        if unbound and not any(one.library and one.driver for one in self.seen.values()):
            one = unbound[0]
            return f"process {one.pid} ({one.program}) runs without the library" + (f": {one.why_not()}" if one.why_not() else "")
        return None

    def _first(self):
        one = next((one for one in self.seen.values() if one.first() and one.first()[1]), None)
        after = f"after {self.served_after:.1f} s" if self.served_after is not None else "at its end"
        where = ""
        if one and one.pid != self.tree.child.pid:
            where = f", in its process {one.pid}" + (f" ({os.path.basename(one.program)})" if one.program else "")
        return f"the first allocation{f', {one.first()[0]} bytes,' if one else ''} {after}{where}"

    def _nothing(self):
        what = "interrupted" if self.interrupted else f"within {self.elapsed():.3g} s" if self.own_end is None else "it ended"
        if any(one.called() for one in self.seen.values()):
            return f"{what}; it has made CUDA calls, which came through"
        if any(one.driver for one in self.seen.values()):
            return (f"{what}; libcuda is loaded, and no call has come through the library: there was none, or it came from a library "
                    "that was opened by dlmopen or with RTLD_DEEPBIND")
        return f"{what}; it has made no CUDA call"

    def _own_end(self):
        status = self.own_end
        if status is None:
            return "did not end by itself"
        return f"died by {_signal_name(-status)}" if status < 0 else f"exited with {status}"

    def end_text(self):
        """How the program came to its end."""
        if self.ended is None:
            return f"it {self._own_end()}"
        before = f"it {self._own_end()}, and what it had started" if self.own_end is not None else "it"
        if self.ended == "SIGTERM":
            return f"{before} was ended by SIGTERM"
        if self.ended == "SIGKILL":
            return f"{before} did not end by SIGTERM within {processes.GRACE_S:.0f} s, and was killed"
        return f"{before} could not be ended: process {', '.join(map(str, self.ended))}"

    def lines(self):
        """The library's lines of all processes, each once."""
        return list(dict.fromkeys(line for one in self.seen.values() for line in one.lines))

    def surroundings(self):
        """(device and driver, road), by the library's own line, or (None, None)."""
        for line in self.lines():
            found = re.match(r"info: (device \d+: .*); calls are (.*)", line)
            if found:
                return found.groups()
        return None, None

    def frameworks(self):
        """{name: version or None}: by what was mapped, and by what the library said."""
        said = {name: None for name in frameworks.FRAMEWORKS for line in self.lines() if f": {name}'s own cache is o" in line}
        found = {name: path for one in self.seen.values() for name, path in one.frameworks.items()}
        return {**said, **{name: frameworks.version(path) for name, path in found.items()}}

    def changes(self):
        """What goes straight to the driver, and what changes that."""
        lines = [line[6:] for line in self.lines() if re.match(r"info: .*own cache is o(n|ff)", line)]
        passed, other = self.passed(), self.other()
        if passed and self.disabled:
            lines.append("all of it: unset CACHEALLOC_DISABLE")
        elif passed and not any("own cache is on" in line for line in lines):
            lines.append("requests were passed by under_framework, min_size or max_size: "
                         "CACHEALLOC_CONF=under_framework:cache,min_size:0,max_size:unlimited serves them")
        if other:
            lines.append("stream-ordered, managed and virtual memory and arrays come from the driver itself; "
                         "CACHEALLOC_CONF=async:keep makes its pools keep what is freed")
        return lines

    def troubles(self):
        """Warnings and errors of the library, and processes that it is not in."""
        known = {text for _, text in self.report.notes}
        said = [line for line in self.lines()
                if line.startswith(("warning: ", "error: ")) and line.partition(": ")[2] not in known][:10]
        bare = [one for one in self.without_library() if one.driver or (one.why_not() and not self.served())]
        return said + [f"process {one.pid} ({one.program}) has no library"
                       + (f": {one.why_not()}" if one.why_not() else "") for one in bare[:5]]


def _signal_name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def run(report, words, values):
    """A Trial that is over. Raises OSError, ValueError, NotFound, UsageError."""
    env = launch.environment(paths.library(values["library"]), paths.simulator() if values["sim"] else None, {})
    with tempfile.TemporaryDirectory(prefix="cachealloc-doctor-") as folder:
        trial = Trial(report, words, env, folder)
        try:
            trial.watch(values["for"])
        finally:
            trial.tree.end()
            counts.remove_of(folder)
    return trial


# ---- text and JSON

def show(trial, name):
    code, reason = trial.verdict()
    word, colour = TEXTS[code]
    terminal.out(f"{name}: {terminal.paint(word, colour)}: {reason}")
    device, road = trial.surroundings()
    if not device and trial.report.libcuda:
        device = surroundings.describe_libcuda(*trial.report.libcuda)
    rows = [("driver", device), ("road", road and f"calls are {road}")]
    rows += [("framework", f"{name} {version or ''}".rstrip()) for name, version in trial.frameworks().items()]
    if trial.served() + trial.passed() + trial.other():
        rows.append(("seen", f"allocations, at least: {trial.served()} served, {trial.passed()} straight to the driver, "
                             f"{trial.other()} by calls that the driver serves itself"))
    rows += [("change", line) for line in trial.changes()]
    rows += [("library", trial.report.library), ("end", trial.end_text())]
    for title, text in rows:
        if text:
            terminal.out(f"  {title:<9}  {text}")
    for text in trial.troubles():
        terminal.out(f"  {terminal.paint('problem', 'red')}    {text}")
    return code


def as_json(trial):
    code, reason = trial.verdict()
    device, road = trial.surroundings()
    return {
        "verdict": WORDS[code], "reason": reason, "elapsed_ms": round(trial.elapsed() * 1000),
        "served": trial.served(), "passed": trial.passed(), "other": trial.other(), "device": device, "road": road,
        "frameworks": [{"name": name, "version": version} for name, version in trial.frameworks().items()],
        "changes": trial.changes(), "problems": trial.troubles(), "end": trial.end_text(),
        "processes": [{"pid": one.pid, "program": one.program, "library": one.library, "driver": one.driver,
                       "calls": one.called()} for one in trial.seen.values()],
    }
