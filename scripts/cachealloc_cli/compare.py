# SPDX-License-Identifier: MIT
"""`cachealloc compare`: the same program under A and B, in pairs, in the order AB BA AB BA ...

Machines drift: clocks, temperature, neighbours. Two runs side by side share the drift, and changing which of
the two comes first cancels what the order adds. So each pair gives one ratio, and the verdict is about ratios.
"""

import datetime
import json
import os
import platform
import random
import shutil
import sys
import tempfile

from . import __version__, comparison, launch, measure, paths, settings, terminal
from .args import Option, UsageError, describe, integer, parse

DONE, TOO_SLOW, FAILED, INCONCLUSIVE = 0, 1, 2, 3


def percent(text):
    number = float(text.rstrip("%"))
    if not -100 < number < 1e6:
        raise ValueError("expected a percentage such as 5 or 5%")
    return number


OPTIONS = [
    Option("-r --runs", "value", "Pairs to measure (10).", "N", 10, integer(1, 100000)),
    Option("--warmup", "value", "Pairs to run first, unmeasured (0).", "N", 0, integer(0, 1000)),
    Option("--conf-a", "value", "A is the allocator with these keys, instead of the stock driver.", "K:V,...",
           repeat=True),
    Option("--conf-b", "value", "B runs with these keys.", "K:V,...", repeat=True),
    Option("--json", "value", "Every run and the result, rewritten after each pair.", "FILE"),
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
  cachealloc compare --conf-b max_split_size_mb:64 ./app
  cachealloc compare --conf-a reuse_slack_mb:0 --conf-b reuse_slack_mb:256 ./app
  SIMCUDA_LATENCY=published cachealloc compare --sim ./app    no GPU needed

Usage: cachealloc compare [OPTIONS] [--] PROGRAM [ARGUMENTS]

{options}

A is the stock driver, its calls counted (CACHEALLOC_DISABLE=count). Times are of
the whole process. Memory and driver calls are summed over the program's processes
and devices. The program's output is discarded. A run that failed (exit status
not 0, or a signal) gives no figure: the verdict says who failed how often, and
times are compared in the pairs in which neither did.

Exit status: 0; 2 a run failed (not with --ignore-failure) or the command line
is wrong; with --fail-above 1 too slow, 3 inconclusive.
"""


def help_text():
    return HELP.format(options=describe(OPTIONS))


def arms(values):
    conf_a, conf_b = (",".join(values[key]) for key in ("conf_a", "conf_b"))
    if values["conf_a"]:
        a = measure.Arm("A", f"cachealloc {conf_a}".strip(), {"CACHEALLOC_CONF": conf_a})
    else:
        a = measure.Arm("A", "stock, counted", {"CACHEALLOC_DISABLE": "count"})
    b = measure.Arm("B", f"cachealloc {conf_b}".strip(), {"CACHEALLOC_CONF": conf_b} if conf_b else {})
    return a, b


class Session:
    """The measured pairs so far, and everything needed to measure the next."""

    def __init__(self, values, program):
        self.values = values
        self.program = program
        self.arms = arms(values)
        self.seed = values["seed"] if values["seed"] is not None else random.SystemRandom().randrange(2**32)
        self.random = random.Random(self.seed)
        self.library = paths.library(values["library"])
        self.env = launch.environment(self.library, paths.simulator() if values["sim"] else None, {})
        self.pairs = []  # {"A": run, "B": run} each
        self.rest = []   # runs of the pair in which a failure ended it
        self.started = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.folder = None

    def pair(self, number):
        """Measures pair `number` (negative: warm-up). Returns {"A": run, "B": run}, or None after a failure."""
        runs = {}
        for place, arm in enumerate(self.arms if number % 2 == 0 else self.arms[::-1]):
            stem = f"{'w' if number < 0 else 'p'}{abs(number):05d}{arm.name}"
            run = measure.once(self.program, self.env, arm, self.folder, stem, self.random.randrange(4096))
            run.update(pair=number, place=place)
            if measure.failed(run) and not self.values["ignore_failure"]:
                self.tell_failure(arm, run, stem)
                self.rest = [*runs.values(), run] if number >= 0 else []
                return None
            runs[arm.name] = run
        return runs

    def tell_failure(self, arm, run, stem):
        how = f"died by {run['signal']}" if run["signal"] else f"exited with {run['exit_code']}"
        terminal.error(f"compare: under {arm.name} ({arm.label}) the program {how}; --ignore-failure goes on")
        for line in measure.last_words(self.folder, stem):
            sys.stderr.write(f"  | {line}\n")

    def runs(self):
        """Every measured run, in the order in which they were made."""
        return [pair[name] for pair in self.pairs for name in sorted(pair, key=lambda n: pair[n]["place"])] + self.rest

    def result(self):
        """The whole as the object of scripts/schema/compare.schema.json."""
        runs = self.runs()
        return {
            "format": "compare", "format_version": 1, "version": __version__, "date": self.started,
            "command": self.program, "seed": self.seed, "warmup": self.values["warmup"],
            "pairs_wanted": self.values["runs"], "pairs_done": len(self.pairs),
            "machine": {"system": platform.system(), "release": platform.release(),
                        "architecture": platform.machine(), "cpus": os.cpu_count()},
            "simulated": comparison.simulated(runs),
            "simulated_latency": os.environ.get("SIMCUDA_LATENCY") or None,
            "arms": [comparison.summary(arm, runs) for arm in self.arms],
            "time_ratio": comparison.ratio(self.pairs),
            "runs": runs,
        }


def write_json(path, result):
    """Replaces the file in one step, so that a reader never sees half of it."""
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
        file.write("\n")
    os.replace(temporary, path)


def progress(done, wanted):
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[Kpair {done} of {wanted}" if done < wanted else "\r\033[K")
        sys.stderr.flush()


def measure_pairs(session):
    """Fills session.pairs. Returns False after a failure."""
    values = session.values
    for number in range(-values["warmup"], values["runs"]):
        progress(max(number, 0), values["runs"])
        runs = session.pair(number)
        if runs is None:
            if values["json"] and session.rest:
                write_json(values["json"], session.result())
            return False
        if number < 0:
            continue
        session.pairs.append(runs)
        if values["json"]:
            write_json(values["json"], session.result())
    progress(values["runs"], values["runs"])
    return True


def gate(limit, ratio):
    """Exit status of --fail-above: `ratio` is A's time over B's, with its bounds."""
    if limit is None:
        return DONE
    if ratio["low_ppm"] is None:
        terminal.warning(f"--fail-above {limit:g}%: two pairs or more in which neither arm fails are needed")
        return INCONCLUSIVE
    least, most = ((1e6 / ratio[key] - 1) * 100 for key in ("high_ppm", "low_ppm"))
    if least > limit:
        terminal.error(f"compare: B is at least {least:.1f}% slower than A; the limit is {limit:g}%")
        return TOO_SLOW
    if most > limit:
        terminal.warning(f"inconclusive: B's slowdown is between {least:.1f}% and {most:.1f}%; "
                         f"the limit is {limit:g}%; use more pairs")
        return INCONCLUSIVE
    return DONE


def prepare(argv):
    """(session, None) or (None, exit status). Raises UsageError, NotFound."""
    values, program = parse(OPTIONS, argv)
    if values["help"]:
        terminal.out(help_text().rstrip())
        return None, DONE
    if not program:
        raise UsageError("no program given: cachealloc compare [OPTIONS] [--] PROGRAM [ARGUMENTS]")
    if not shutil.which(program[0]):
        raise UsageError(f"{program[0]}: not found or not executable")
    if values["json"] and os.path.exists(values["json"]) and not values["force"]:
        raise UsageError(f"{values['json']} exists; --force overwrites it")
    if values["json"] and not os.path.isdir(os.path.dirname(os.path.abspath(values["json"]))):
        raise UsageError(f"{values['json']}: its folder does not exist")
    session = Session(values, program)
    for arm in session.arms:
        settings.refuse(session.library, {name: arm.changes[name] for name in arm.changes if name == "CACHEALLOC_CONF"})
    return session, None


def run(argv):
    try:
        session, status = prepare(argv)
    except settings.BadSettings as problem:
        for line in problem.lines:
            terminal.error(f"compare: {line}")
        return FAILED
    except (UsageError, paths.NotFound) as problem:
        terminal.error(f"compare: {problem}")
        return FAILED
    if session is None:
        return status
    with tempfile.TemporaryDirectory(prefix="cachealloc-compare-") as session.folder:
        try:
            complete = measure_pairs(session)
        except measure.Unusable as problem:
            terminal.error(f"compare: {problem}")
            return FAILED
        except KeyboardInterrupt:
            progress(0, 0)
            terminal.warning(f"interrupted after {len(session.pairs)} of {session.values['runs']} pairs")
            complete = False
    if session.pairs or session.rest:
        result = session.result()
        terminal.out(comparison.text(result))
        sys.stdout.flush()
        comparison.warn(result, session.values["warmup"])
        if complete:
            return gate(session.values["fail_above"], result["time_ratio"])
    return FAILED
