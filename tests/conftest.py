# SPDX-License-Identifier: MIT
"""Fixtures shared by the process, fault, stress, abi and cli suites.

The build to test is $CACHEALLOC_BUILD (default: ./build beside the sources). Every program runs in a process
of its own, with a time-out, and with an environment from which CACHEALLOC_* and SIMCUDA_* have been removed.
"""

import json
import os
import re
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("CACHEALLOC_BUILD", ROOT / "build")).resolve()
LIBRARY = BUILD / "shim" / "libcachealloc.so"
MUTANTS = BUILD / "tests" / "stress" / "libcachealloc_mutants.so"
SIM = BUILD / "tests" / "sim"
FROM = pytest.StashKey()  # the number that chose the cases, where not all are run
REACHED = pytest.StashKey()  # (entry point, code, number of injected failures reached)


def clean_env(**extra):
    """The environment without our variables, plus the simulator's folder on the loader's path."""
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("CACHEALLOC_", "SIMCUDA_")) and k != "LD_PRELOAD"}
    env["LD_LIBRARY_PATH"] = str(SIM)
    env.update({k: str(v) for k, v in extra.items()})
    return env


def unmarked(text):
    """Log lines without process and rank: `cachealloc[7841 r3]: ` becomes `cachealloc: `."""
    return re.sub(r"^cachealloc\[\d+(?: r\d+)?\]: ", "cachealloc: ", text, flags=re.M)


def simulator_entries():
    """The names of the driver that the simulator builds."""
    text = (ROOT / "tests" / "sim" / "entries.def").read_text()
    twins = re.findall(r"^SIM_TWINS\((\w+), (\w+),", text, re.M)
    return {*re.findall(r"^SIM_ENTRY\((\w+),", text, re.M), *(name for name, _ in twins),
            *(name + suffix for name, suffix in twins)}


def async_words():
    """What the key `async` accepts in this version: how stream-ordered memory is served."""
    options = json.loads((ROOT / "scripts" / "options.json").read_text())["options"]
    accepted = next(o["accepted"] for o in options if o["kind"] == "key" and o["name"] == "async")
    return [word for word in re.findall(r"\w+", accepted) if word != "or"]


def run(argv, preload=True, timeout=60, check=None, cwd=None, **env):
    """Runs argv; preload=True adds our library, or with CACHEALLOC_TEST_MUTANT the one of the mutants. Returns
    CompletedProcess with text output."""
    full = clean_env(**env)
    first = os.environ.get("CACHEALLOC_TEST_PRELOAD_FIRST", "")  # a sanitizer's runtime, which libraries need too
    library = MUTANTS if "CACHEALLOC_TEST_MUTANT" in env else LIBRARY
    libraries = [p for p in (first, str(library) if preload else "", full.get("LD_PRELOAD")) if p]
    if libraries:
        full["LD_PRELOAD"] = ":".join(libraries)
    emulator = os.environ.get("CACHEALLOC_TEST_EMULATOR", "").split()  # for programs of another machine
    for name in ("LD_PRELOAD", "LD_LIBRARY_PATH") if emulator else ():
        value = full.pop(name, None)  # the program's, not the emulator's
        emulator += ["-E", f"{name}={value}"] if value else []
    done = subprocess.run([*emulator, *(str(a) for a in argv)], env=full, timeout=timeout, cwd=cwd,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if check is not None:
        assert done.returncode == check, (done.returncode, done.stdout[-4000:], done.stderr[-4000:])
    return done


@pytest.fixture
def pauses_unseen():
    """Words for run(): the library takes no notice of pauses of the host (allocator/order/host_pause.c). One where a busy
    machine takes the processor away is like any other, and a program that makes none gets a mark all the same."""
    if not MUTANTS.exists():
        pytest.skip("built without mutants")
    return {"CACHEALLOC_TEST_MUTANT": "PAUSE_UNSEEN"}


def in_short(items, start):
    """Of a file with QUICK_EVERY = n every n-th case."""
    for number, item in enumerate(items):
        every = getattr(getattr(item, "module", None), "QUICK_EVERY", 1)
        if (number + start) % every == 0:
            yield item


def of_the_many(items, start):
    """Of a test with many cases every third one, with very many every sixth: under a sanitizer a process takes two to five
    times as long, and what it looks for hides in no single value of a parameter. None of a test that runs a program
    without the library."""
    cases = {}
    for item in items:
        if getattr(item, "originalname", item.name) in NATIVE:
            continue
        cases.setdefault((item.path, getattr(item, "originalname", item.name)), []).append(item)
    for same in cases.values():
        every = 1 if len(same) < MANY_CASES else 3 if len(same) < VERY_MANY_CASES else 6
        yield from same[start % every::every]


MANY_CASES = 4
VERY_MANY_CASES = 150
NATIVE = ("test_native", "test_natively")


def pytest_collection_modifyitems(config, items):
    """What the short form of the tests (scripts/test.sh --quick) and the one under a sanitizer leave out: from another case
    on in each run, or from CACHEALLOC_TEST_FROM on. The whole form without a sanitizer, and --long, run all."""
    start = int(os.environ.get("CACHEALLOC_TEST_FROM", time.time()))
    if os.environ.get("CACHEALLOC_TEST_QUICK"):
        chosen = in_short
    elif os.environ.get("CACHEALLOC_TEST_SANITIZER") and not os.environ.get("CACHEALLOC_TEST_LONG"):
        chosen = of_the_many
    else:
        return
    config.stash[FROM] = start
    kept = set(chosen(items, start))
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def pytest_configure(config):
    config.stash[REACHED] = []
    config.addinivalue_line("markers", "loader: needs nothing but the loader; runs under an emulator too")


@pytest.fixture(scope="session")
def build():
    if not BUILD.is_dir():
        pytest.exit(f"no build at {BUILD}: set CACHEALLOC_BUILD", returncode=2)
    return BUILD


@pytest.fixture(scope="session", autouse=True)
def _counts_of_killed_programs(tmp_path_factory):
    """A program that a test kills leaves a file of counts (docs/statistics.md)."""
    yield
    for page in Path("/dev/shm").glob("cachealloc-*.counts"):
        try:
            if bytes(tmp_path_factory.getbasetemp()) in page.read_bytes()[:8192]:
                page.unlink()
        except OSError:  # of another user, or gone
            pass


# ------------------------------------------------------------------ injected failures ---


@pytest.fixture
def reached(request):
    """A list; each (entry point, code, number of failures reached) in it is printed at the end."""
    return request.config.stash[REACHED]


def pytest_terminal_summary(terminalreporter, config):
    if FROM in config.stash:
        terminalreporter.line(f"a part of the cases: CACHEALLOC_TEST_FROM={config.stash[FROM]} chooses the same")
    results = config.stash[REACHED]
    if results:
        terminalreporter.section("injected failures")
        for entry, code, number in results:
            terminalreporter.line(f"{entry}: {number} failures with code {code}")
        terminalreporter.line(f"{sum(r[2] for r in results)} failures reached in {len(results)} series")
