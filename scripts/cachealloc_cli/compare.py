# SPDX-License-Identifier: MIT
"""`cachealloc compare`: a program under several arms (A and B), in rounds, in the order AB BA AB BA ...

Machines drift: clocks, temperature, neighbours. Runs side by side share the drift, and changing which of them comes
first cancels what the order adds. So each round gives one ratio for each other arm, and the verdict is about ratios.
"""

import contextlib
import datetime
import math
import os
import platform
import random
import shutil
import signal
import tempfile
import time

from . import __version__, arms, comparison, counts, export, launch, layout, measure, metric, paths, recorded, settings, terminal
from .args import Option, UsageError, describe, integer, parse

DONE, TOO_SLOW, FAILED, INCONCLUSIVE = 0, 1, 2, 3
PAIRS = 10
REMOVALS = 200  # tries, 2 s


def percent(text):
    try:
        number = float(text.rstrip("%"))
    except ValueError:
        number = math.nan
    if not -100 < number < 1e6:
        raise ValueError("expected a percentage such as 5 or 5%")
    return number


OPTIONS = [
    Option("-r --runs", "value", "Pairs to measure (10).", "N", None, integer(1, 100000)),
    Option("--warmup", "value", "Pairs to run first, unmeasured (0).", "N", 0, integer(0, 1000)),
    Option("--preset", "value", "pytorch, jax or rmm: A as shipped, B as we recommend.", "WORD", None, arms.preset),
    Option("--conf-a", "value", "A is the allocator with these keys, instead of the stock driver.", "K:V,...",
           repeat=True),
    Option("--conf-b", "value", "B runs with these keys.", "K:V,...", repeat=True),
    Option("--env-a", "value", "A variable for A; may be repeated.", "K=V", convert=arms.variable, repeat=True),
    Option("--env-b", "value", "A variable for B; may be repeated.", "K=V", convert=arms.variable, repeat=True),
    Option("--command-a", "value", "A runs this, quoted as for a shell, instead of PROGRAM.", "LINE", None, arms.words),
    Option("--command-b", "value", "B runs this instead of PROGRAM.", "LINE", None, arms.words),
    Option("--arm", "value", "An arm written out, instead of A and B; give two or more. LINE: variables K=V, tuning keys "
           "K:V, then a command, each optional; the word stock first: without the allocator. The first arm is the one to "
           "compare with.", "NAME=LINE", convert=arms.one, repeat=True),
    Option("--metric", "value", "A figure from the program's output, where higher is better; one group is the number. "
           "May be repeated.", "REGEX", convert=metric.converter("higher"), repeat=True),
    Option("--metric-lower", "value", "The same, where lower is better.", "REGEX", convert=metric.converter("lower"),
           repeat=True),
    Option("--json --export-json", "value", "Every run and the result, rewritten after each pair.", "FILE"),
    Option("--export-csv", "value", "A row a run.", "FILE"),
    Option("--export-markdown", "value", "Table and verdict.", "FILE"),
    Option("--force", "flag", "Overwrite FILE."),
    Option("--ignore-failure", "flag", "Go on when the program fails; runs that failed are counted, not timed."),
    Option("--seed", "value", "Of the environment's random size.", "N", None, integer(0)),
    Option("--fail-above", "value", "Exit with 1 when B is surely slower than A by more than PCT percent.", "PCT",
           None, percent),
    Option("--sim", "flag", "Run on the simulated driver instead of a GPU."),
    Option("--library", "value", "Use this libcachealloc.so.", "FILE"),
    Option("-h --help", "flag", "This text."),
]

HELP = """\
Examples:
  cachealloc compare ./app args                  stock driver against allocator
  cachealloc compare -r 20 --warmup 1 ./app      more pairs, caches warm
  cachealloc compare --preset pytorch --metric 'tok/s ([0-9.]+)' python3 train.py
  cachealloc compare --conf-a reuse_slack_mb:0 --conf-b reuse_slack_mb:256 ./app
  cachealloc compare --arm driver=stock --arm none=reuse_slack_mb:0 --arm usual= ./app
  cachealloc compare --ignore-failure ./app      who runs out of memory, and how often?
  cachealloc compare before.json after.json      two recordings; nothing is run
  SIMCUDA_LATENCY=published cachealloc compare --sim ./app    no GPU needed

Usage: cachealloc compare [OPTIONS] [--] PROGRAM [ARGUMENTS]
       cachealloc compare [OPTIONS] FILE FILE

{options}

A is the stock driver, its calls counted (CACHEALLOC_DISABLE=count). Times are of
the whole process. Memory and driver calls are summed over the program's processes
and devices. The program's output is discarded, but for --metric. A run that
failed (exit status not 0, or a signal) gives no figure: the verdict says who
failed how often, with an exact test, and figures are compared in the pairs in
which neither failed. What is claimed at once shares an error rate of 5 percent.
FILE: results of --json, statistics (CACHEALLOC_STATS=FILE.json), or traces, two
of a kind. Ctrl-C ends it; what was measured so far is reported and exported.
A process that ends by _exit, exec or a signal is counted by the library alone.

Exit status: 0; 2 a run failed (not with --ignore-failure), an export could not be
written, it was interrupted, or the command line is wrong; with --fail-above 1 too
slow, 3 inconclusive.
"""


def help_text():
    return HELP.format(options=describe(OPTIONS))


class Session:
    """The measured rounds so far, and everything needed to measure the next."""

    def __init__(self, values, program):
        self.values = {**values, "runs": values["runs"] or PAIRS}
        self.arms = arms.of_options(values)
        for arm in self.arms:
            arm.command = arm.command or program
        self.metrics = values["metric"] + values["metric_lower"]
        self.seed = values["seed"] if values["seed"] is not None else random.SystemRandom().randrange(2**32)
        self.random = random.Random(self.seed)
        self.library = paths.library(values["library"])
        folder = paths.simulator() if values["sim"] else None
        self.envs = {arm.name: launch.environment(self.library, folder, {}, arm.environment(os.environ))
                     for arm in self.arms}
        self.pairs = []      # {name of an arm: run} each
        self.rest = []       # runs of the round in which a failure ended it
        self.failure = None  # that failure: arm, run, its last words
        self.started = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.clock = None    # of the first measured round
        self.last = None     # of the end of the last one
        self.at = ""         # the arm that runs
        self.folder = None

    def order(self, number):
        """Two arms: AB BA. More: they move up by one every second round, too, so that each comes at each place."""
        shift = number // 2 % len(self.arms) if len(self.arms) > 2 else 0
        turned = self.arms[shift:] + self.arms[:shift]
        return turned if number % 2 == 0 else turned[::-1]

    def pair(self, number):
        """Measures round `number` (negative: warm-up). Returns {name: run}, or None after a failure."""
        runs = {}
        for place, arm in enumerate(self.order(number)):
            self.at = arm.name
            stem = f"{'w' if number < 0 else 'p'}{abs(number):05d}{arm.name}"
            run = measure.once(arm.command, self.envs[arm.name], arm.name, self.folder, stem,
                               self.random.randrange(4096), self.metrics)
            run.update(pair=number, place=place)
            if measure.failed(run) and not self.values["ignore_failure"]:
                self.failure = arm, run, measure.last_words(self.folder, stem)
                self.rest = [*runs.values(), run] if number >= 0 else []
                return None
            runs[arm.name] = run
        return runs

    def tell_failure(self):
        arm, run, words = self.failure
        how = f"died by {run['signal']}" if run["signal"] else f"exited with {run['exit_code']}"
        terminal.error(f"compare: under {arm.name} ({arm.label}) the program {how}; --ignore-failure goes on")
        terminal.say("".join(f"  | {line}\n" for line in words))

    def progress(self):
        """The line on a terminal."""
        done, wanted = len(self.pairs), self.values["runs"]
        word = "pair" if len(self.arms) == 2 else "round"
        if self.clock is None:
            return f"warm-up, {self.at}"
        left = ""
        if done:
            seconds = (self.last - self.clock) / done * (wanted - done) - (time.monotonic() - self.last)
            left = f", about {terminal.about(max(0, seconds))} left"
        return f"{word} {min(done + 1, wanted)} of {wanted}, {self.at}{left}"

    def runs(self):
        """Every measured run, in the order in which they were made."""
        return [pair[name] for pair in self.pairs for name in sorted(pair, key=lambda n: pair[n]["place"])] + self.rest

    def result(self):
        """The whole as the object of scripts/schema/compare.schema.json."""
        runs, names = self.runs(), [arm.name for arm in self.arms]
        compared = comparison.comparisons(names, self.pairs, runs, self.metrics)
        return {
            "format": "compare", "format_version": 1, "version": __version__, "date": self.started,
            "command": self.arms[0].command, "seed": self.seed, "warmup": self.values["warmup"],
            "preset": self.values["preset"],
            "pairs_wanted": self.values["runs"], "pairs_done": len(self.pairs),
            "machine": {"system": platform.system(), "release": platform.release(),
                        "architecture": platform.machine(), "cpus": os.cpu_count()},
            "simulated": comparison.simulated(runs),
            "simulated_latency": os.environ.get("SIMCUDA_LATENCY") or None,
            "metrics": [one.as_json() for one in self.metrics],
            "arms": [comparison.summary(arm, runs, self.metrics) for arm in self.arms],
            "claims": comparison.claims(len(names), self.metrics, runs),
            "time_ratio": compared[0]["time_ratio"], "comparisons": compared,
            "runs": runs,
        }


def measure_pairs(session, exports):
    """Fills session.pairs. Returns False after a failure."""
    values = session.values
    for number in range(-values["warmup"], values["runs"]):
        if number == 0:
            session.clock = time.monotonic()
        runs = session.pair(number)
        if runs is None:
            return False
        if number >= 0:
            session.last = time.monotonic()
            session.pairs.append(runs)
            if exports.files:
                exports.write(session.result(), export.FORMS)
    return True


def gate(limit, ratio, name="B", reference="A"):
    """Exit status of --fail-above: `ratio` is A's time over B's, with its bounds."""
    if limit is None:
        return DONE
    if ratio["low_ppm"] is None:
        terminal.warning(f"--fail-above {limit:g}%: two pairs or more in which neither arm fails are needed")
        return INCONCLUSIVE
    least, most = ((1e6 / ratio[key] - 1) * 100 for key in ("high_ppm", "low_ppm"))
    if least > limit:
        terminal.error(f"compare: {name} is at least {least:.1f}% slower than {reference}; the limit is {limit:g}%")
        return TOO_SLOW
    if most > limit:
        terminal.warning(f"inconclusive: {name}'s slowdown is between {least:.1f}% and {most:.1f}%; "
                         f"the limit is {limit:g}%; use more pairs")
        return INCONCLUSIVE
    return DONE


def gates(limit, compared):
    """Of several arms: too slow if one surely is."""
    found = [gate(limit, each["time_ratio"], each["arm"], each["reference"]) for each in compared]
    return TOO_SLOW if TOO_SLOW in found else max(found)


def check_programs(session):
    """Raises UsageError for an arm that has no program, or one that is not there."""
    for arm in session.arms:
        if not arm.command:
            others = any(one.command for one in session.arms)
            raise UsageError((f"{arm.name} has no program" if others else "no program given")
                             + ": cachealloc compare [OPTIONS] [--] PROGRAM [ARGUMENTS]")
        if not shutil.which(arm.command[0], path=session.envs[arm.name].get("PATH")):
            raise UsageError(f"{arm.command[0]}: not found or not executable")


def with_files(argv):
    """(values, files): where nothing is run, options may stand behind the files, too."""
    files = []
    while True:
        values, rest = parse(OPTIONS, argv)
        if not rest:
            return values, files
        files.append(rest[0])
        argv = argv[:len(argv) - len(rest)] + rest[1:]


def prepare(argv):
    """(session, exports, None) or (None, None, exit status). Raises UsageError, NotFound."""
    values, program = parse(OPTIONS, argv)
    if values["help"]:
        terminal.out(help_text().rstrip())
        return None, None, DONE
    is_recorded = recorded.is_meant(program)
    if is_recorded:
        values, program = with_files(argv)
    exports = export.Exports(values)
    fault = exports.fault()
    if fault:
        raise UsageError(fault)
    if is_recorded:
        return None, None, recorded.run(values, program, exports)
    session = Session(values, program)
    check_programs(session)
    for arm in session.arms:
        settings.refuse(session.library, {name: value for name, value in arm.changes.items()
                                          if name.startswith(settings.PREFIX) and name not in arms.STOCK})
    for name in sorted({name for arm in session.arms for name in arm.removed if name in os.environ}):
        terminal.hint(f"{name}={os.environ[name]} is left out, since the preset decides it; --env-a and --env-b set it anew")
    if arms.confounded(session.arms):
        terminal.hint("A and B differ in allocator and in command; --conf-a '' gives A the allocator, too")
    return session, exports, None


@contextlib.contextmanager
def keeping():
    """SIGTERM is a batch system's notice, and SIGHUP a terminal's end: what was measured is kept."""
    before = {number: signal.signal(number, measure.Interrupts.handle) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
              if signal.getsignal(number) is not signal.SIG_IGN}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def remove(folder):
    """What the program had started may live on and write into it for a moment."""
    for _ in range(REMOVALS):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.exists(folder):
            return
        time.sleep(0.01)


@contextlib.contextmanager
def folder_of_runs():
    """For what a run writes. Nothing of it is left, nor of the counts of processes that ended without a word."""
    folder = tempfile.mkdtemp(prefix="cachealloc-compare-")
    try:
        yield folder
    finally:
        counts.remove_of(folder)
        remove(folder)


def measured(session, exports):
    """True if every round was measured. Nothing is said before the folder is gone: a message may be this command's end."""
    complete = False
    with keeping():
        try:
            with folder_of_runs() as session.folder, terminal.Progress(session.progress):
                complete = measure_pairs(session, exports)
        except (measure.Unusable, OSError) as problem:  # the second: no room for what a run writes
            terminal.error(f"compare: {problem}")
        except KeyboardInterrupt:
            terminal.warning(f"interrupted after {len(session.pairs)} of {session.values['runs']} pairs")
    if session.failure:
        session.tell_failure()
    return complete


def report(session, exports, complete):
    """Exit status, after the verdict."""
    result = session.result()
    problems = exports.write(result, export.FORMS, last=True)
    terminal.out(layout.text(result, terminal.width()))
    terminal.flush()
    for one in session.metrics:
        if one.not_a_number is not None:
            terminal.warning(f"{one.name}: {one.not_a_number!r} is not a number")
    layout.warn(result, session.values["warmup"])
    for problem in problems:
        terminal.error(f"compare: {problem}")
    if problems or not complete:
        return FAILED
    return gates(session.values["fail_above"], result["comparisons"])


def run(argv):
    try:
        session, exports, status = prepare(argv)
        if session is None:
            return status
        complete = measured(session, exports)
        return report(session, exports, complete) if session.pairs or session.rest else FAILED
    except settings.BadSettings as problem:
        for line in problem.lines:
            terminal.error(f"compare: {line}")
    except (UsageError, paths.NotFound, recorded.Unreadable, OSError) as problem:
        terminal.error(f"compare: {problem}")
    return FAILED
