# SPDX-License-Identifier: MIT
"""One measured run of a program: its time, its end, and what library and simulator wrote about it."""

import collections
import glob
import json
import os
import re
import signal
import subprocess
import time

from . import counts, metric

# Calls that reach the (simulated) driver for device memory.
_DRIVER_CALLS = re.compile(r"cuMem(Alloc|AllocPitch|Free|AllocAsync|FreeAsync|AllocFromPoolAsync|AllocManaged)"
                           r"(_v2)?(_ptsz|_ptds)?")


SIMULATED = "simcuda device"  # begins the names of its devices


class Unusable(Exception):
    """The program cannot be started at all."""


def _load(path, form):
    """A JSON object of the given format (None: any), or None."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            data = json.load(file)
    except (OSError, ValueError):
        return None
    good = isinstance(data, dict) and (form is None or (data.get("format"), data.get("format_version")) == (form, 1))
    return data if good else None


def summed(devices, get):
    """Sum over devices of a figure; None if no device has it."""
    values = [value for value in map(get, devices) if isinstance(value, int)]
    return sum(values) if values else None


def _files(folder, stem, ending):
    """[(process, path)]"""
    found = [(os.path.basename(path)[len(stem) + 1:].split(".")[0], path)
             for path in sorted(glob.glob(os.path.join(glob.escape(folder), f"{stem}.*.{ending}")))]
    return [(process, path) for process, path in found if process.isdigit()]  # not of an arm whose name begins with this one's


def _written(path):
    """The statistics of a process: written at its end, or where it has counted, if it ended by _exit, exec or a signal."""
    data = _load(path, "stats")
    found = None if data else counts.of_file(path)
    return found.report(0) if found else data


def stats_figures(folder, stem):
    """Figures of every process and device of a run, summed; all None when nothing was intercepted. And the devices."""
    devices, files, unknown = [], 0, 0
    for _, path in _files(folder, stem, "json"):
        data = _written(path)
        if data:
            files += 1
            devices += [device for device in data.get("devices") or [] if isinstance(device, dict)]
        elif not os.path.getsize(path):  # it has begun to allocate
            unknown += 1
    calls = summed(devices, lambda d: d.get("driver_alloc_calls"))
    frees = summed(devices, lambda d: d.get("driver_free_calls"))
    return {
        "processes": files,
        "unknown_processes": unknown,
        "ooms": summed(devices, lambda d: d.get("ooms")),
        "alloc_calls": summed(devices, lambda d: d.get("alloc_calls")),
        "other_alloc_calls": summed(devices, lambda d: d.get("other_alloc_calls")),
        "driver_calls": calls + frees if calls is not None and frees is not None else None,
        "driver_ns": summed(devices, lambda d: d.get("driver_ns")),
        "peak_reserved_bytes": summed(devices, lambda d: (d.get("reserved_bytes") or {}).get("peak")),
    }, devices


def simulator_figures(folder, stem, devices):
    """What reached the simulated driver, summed over processes; None when the program did not run on it. It tells nothing
    of one that ended by _exit, exec or a signal."""
    told = {process: _load(path, None) for process, path in _files(folder, stem, "simulator")}
    found = [data for data in told.values() if data and isinstance(data.get("calls"), dict)]
    silent = collections.Counter(process for process, _ in _files(folder, stem, "json")) - collections.Counter(told.keys())
    if not found and not any(str(device.get("name")).startswith(SIMULATED) for device in devices):
        return None
    calls = {}
    for data in found:
        for name, number in data["calls"].items():
            calls[name] = calls.get(name, 0) + number
    return {
        "driver_calls": sum(number for name, number in calls.items() if _DRIVER_CALLS.fullmatch(name)),
        "peak_bytes": sum(sum(data.get("peak_bytes") or [0]) for data in found),
        "races": sum(data.get("races") or 0 for data in found),
        "calls": calls,
        "unknown_processes": sum(silent.values()),
    }


class Interrupts:
    """Signals that end a session. One that comes while a program is being started counts when it has been: raised in that
    moment, the program would be left behind."""

    wanted = False
    waiting = False

    @classmethod
    def handle(cls, *_):
        cls.wanted = True
        if cls.waiting:
            raise KeyboardInterrupt

    @classmethod
    def check(cls):
        if cls.wanted:
            raise KeyboardInterrupt


def _timed(program, env, output, errors):
    """(status as subprocess has it, nanoseconds). Raises Unusable, KeyboardInterrupt."""
    Interrupts.check()
    start = time.perf_counter_ns()
    try:
        child = subprocess.Popen(program, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=errors)
    except (OSError, ValueError) as problem:
        raise Unusable(f"{program[0]}: {getattr(problem, 'strerror', None) or problem}") from None
    try:
        Interrupts.waiting = True
        Interrupts.check()
        return child.wait(), time.perf_counter_ns() - start
    except BaseException:
        child.kill()
        child.wait()
        raise
    finally:
        Interrupts.waiting = False


def once(program, env, name, folder, stem, padding, metrics=()):
    """Runs the program as the arm of that name and returns a dict of what was seen. Raises Unusable."""
    base = os.path.join(folder, stem)
    files = base.replace("%", "%%") + ".%p"
    # where the stack starts depends on the environment's size
    env = {**env, "CACHEALLOC_STATS": files + ".json", "SIMCUDA_STATS": files + ".simulator",
           "COMPARE_PADDING": "x" * padding}
    with open(base + ".stdout" if metrics else os.devnull, "wb") as output, open(base + ".stderr", "wb") as errors:
        status, spent = _timed(program, env, output, errors)
    figures, devices = stats_figures(folder, stem)
    said = metric.read([base + ".stdout", base + ".stderr"]) if metrics else ""
    if metrics:
        os.unlink(base + ".stdout")
    return {
        "arm": name,
        "time_ns": spent,
        "exit_code": status if status >= 0 else None,
        "signal": signal_name(-status) if status < 0 else None,
        "out_of_memory": status != 0 and (bool(figures["ooms"]) or says_out_of_memory(folder, stem)),
        "padding_bytes": padding,
        **figures,
        "simulator": simulator_figures(folder, stem, devices),
        "metrics": [one.find(said) for one in metrics],
    }


def signal_name(number):
    """SIGKILL; a real-time signal has no name of its own."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def says_out_of_memory(folder, stem):
    """True if the end of what a run wrote on stderr has one of CUDA's words for it."""
    text = " ".join(last_words(folder, stem, 20)).lower()
    return "out of memory" in text or "cuda_error_out_of_memory" in text or "cudaerrormemoryallocation" in text


def failed(run):
    return run["exit_code"] != 0


def last_words(folder, stem, lines=5):
    """The end of what a run wrote on stderr."""
    try:
        with open(os.path.join(folder, stem + ".stderr"), encoding="utf-8", errors="replace") as file:
            return [line.rstrip() for line in file.readlines()[-lines:]]
    except OSError:
        return []
