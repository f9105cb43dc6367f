# SPDX-License-Identifier: MIT
"""Shared by the measurements of this folder: where the build is, programs with and without the preload, callgrind.

Arms are `plain` (False) and `preload` (True). Times are taken in pairs whose order changes from pair to pair (AB BA),
so that what drifts meets both. Instruction counts need no repetition: they are the same every time.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = Path(os.environ.get("CACHEALLOC_BUILD", ROOT / "build")).resolve()
LIBRARY = BUILD / "shim" / "libcachealloc.so"
PROGRAMS = BUILD / "tests" / "bench"
AT_ONCE = PROGRAMS  # the folder of the driver that returns at once
SIMULATOR = BUILD / "tests" / "sim"

sys.path.insert(0, str(ROOT / "scripts"))
from cachealloc_cli import interval  # noqa: E402  pylint: disable=wrong-import-position,unused-import


def environment(preload, driver, **extra):
    """The environment without our variables and those of the drivers; driver: a folder with libcuda.so.1."""
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("CACHEALLOC_", "SIMCUDA_", "BENCH_")) and k != "LD_PRELOAD"}
    env["LD_LIBRARY_PATH"] = str(driver)
    if preload:
        env["LD_PRELOAD"] = str(LIBRARY)
    env.update({k: str(v) for k, v in extra.items()})
    return env


def run(argv, preload, driver, timeout=120, **extra):
    """Runs a program of this folder; its JSON. Anything but success ends the measurement."""
    argv = [str(a) for a in argv]
    done = subprocess.run([str(PROGRAMS / argv[0]), *argv[1:]], env=environment(preload, driver, **extra),
                          timeout=timeout, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)} ended with {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def in_pairs(measure, pairs):
    """measure(preload) alternately; ([plain results], [preload results]), one of each a pair."""
    results = {False: [], True: []}
    for i in range(pairs):
        for preload in (False, True) if i % 2 == 0 else (True, False):
            results[preload].append(measure(preload))
    return results[False], results[True]


def without_valgrind():
    """Why instructions cannot be counted here; None when they can."""
    if not shutil.which("valgrind"):
        return "valgrind is not installed (scripts/setup.sh knows it)"
    if os.environ.get("CACHEALLOC_TEST_SANITIZER") or os.environ.get("CACHEALLOC_TEST_EMULATOR"):
        return "valgrind cannot run sanitizer builds, nor programs of another machine"
    return None


def instructions(argv, preload, driver, functions, timeout=300, **extra):
    """Instructions executed inside the named functions (a pattern) and what they call."""
    argv = [str(a) for a in argv]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "callgrind.out"
        done = subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}",
                               f"--toggle-collect={functions}", str(PROGRAMS / argv[0]), *argv[1:]],
                              env=environment(preload, driver, **extra), timeout=timeout, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"callgrind of {' '.join(argv)} ended with {done.returncode}: {done.stderr[-2000:]}")
        total = re.search(r"^(?:totals|summary): (\d+)", out.read_text(), re.MULTILINE)
    if not total or not int(total.group(1)):
        raise RuntimeError(f"callgrind of {' '.join(argv)} counted nothing: is {functions} still a function?")
    return int(total.group(1))


def last_cpu():
    """A processor that this process may use."""
    return max(os.sched_getaffinity(0))


def need_build(*programs):
    for path in [LIBRARY, *(PROGRAMS / p for p in programs)]:
        if not path.exists():
            sys.exit(f"{Path(sys.argv[0]).name}: no {path}: build it, `meson configure -Dtests=true build && ninja -C build`, or set "
                     "CACHEALLOC_BUILD")


def table(head, rows):
    """Text, first column left, the others right."""
    cells = [[str(c) for c in row] for row in [head, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    return "\n".join("  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths)))
                     .rstrip() for row in cells)


def write(result, out):
    if out:
        out.write_text(json.dumps(result, indent=2) + "\n")
