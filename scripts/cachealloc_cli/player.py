# SPDX-License-Identifier: MIT
"""Many replays of one recorded file, on all cores, none twice.

A replay is a process of its own: cachealloc-replay. Whatever ends this command ends those that still run.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor, wait

from . import paths
from .ending import held, wanted

#: memory of a replay beside the file itself, and in sizes of the file: its text and its events
_OWN_BYTES, _FILES = 64 << 20, 3

#: seconds of a wait, after which a signal is seen that came in it: 5 looks a second cost nothing beside a replay
_GLANCE_S = 0.2


class Failed(Exception):
    """One sentence: why a replay gave no figures."""

    def __init__(self, text, status=1):
        super().__init__(text)
        self.status = status


class Outcome:
    """The figures of a replay, as `cachealloc-replay --json` gives them."""

    def __init__(self, data):
        self.data = data
        self.devices = data["devices"]
        self.completed = data["completed"]
        self.least = data["min_capacity_bytes"]
        self.leasts = {device["index"]: device["min_capacity_bytes"] for device in self.devices}
        self.peak = data["peak_reserved_bytes"]
        self.live = data["peak_live_bytes"]
        self.largest_live = max((device["peak_live_bytes"] for device in self.devices), default=0)
        self.allocations = data["hits"] + data["misses"]
        self.calls = sum(device["roads"][road][f"driver_{call}_calls"] for device in self.devices
                         for road in ("sync", "async") for call in ("alloc", "free"))
        self.waits = self._sum("host_syncs")
        self.is_told = data["lag_us"] is None

    def _sum(self, name):
        return sum(device[name] for device in self.devices)

    def device(self, index):
        return next((device for device in self.devices if device["index"] == index), None)


def cores():
    """Processors that this process may use."""
    try:
        return len(os.sched_getaffinity(0)) or 1
    except (AttributeError, OSError):
        return os.cpu_count() or 1


def _available_bytes():
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) << 10
    except (OSError, ValueError):
        pass
    return None


def fitting_jobs(wanted, file_bytes):
    """As many replays at a time as the machine's memory holds, at least one."""
    available = _available_bytes()
    return wanted if available is None else max(1, min(wanted, available // (_FILES * file_bytes + _OWN_BYTES)))


class _Asked:
    """A replay that was asked for."""

    def __init__(self, future):
        self._future = future

    def result(self):
        """Its Outcome; a signal ends the wait."""
        with held():
            while not wanted() and not wait([self._future], _GLANCE_S).done:
                pass
        return self._future.result()


class Player:
    """`path` may be -, standard input, which is then kept in a file that has no name. `file` can be opened in any case."""

    def __init__(self, path, jobs=None, verb="replay"):
        self.verb = verb
        self.name = path
        self.to_refusal = False  # of asks that do not say
        self.warnings = []
        self.runs = 0
        self._kept = self._keep(path)
        self.file = f"/proc/self/fd/{self._kept.fileno()}"
        self.jobs = fitting_jobs(jobs or cores(), os.fstat(self._kept.fileno()).st_size)
        self._pool = ThreadPoolExecutor(self.jobs)
        self._asked = {}
        self._running = set()
        self._lock = threading.Lock()
        self._stopping = False

    @property
    def program(self):
        """Not looked for before something is played: a log is explained without it."""
        return paths.replay()

    @staticmethod
    def _keep(path):
        try:
            if path != "-":
                file = open(path, "rb")  # pylint: disable=consider-using-with
                if os.path.isdir(path):
                    raise IsADirectoryError(21, "Is a directory")
                if os.path.isfile(path) and os.path.getsize(path):  # those of /proc have no size, and most cannot be sought in
                    return file
                source = file
            else:
                source = sys.stdin.buffer
            kept = tempfile.TemporaryFile()  # pylint: disable=consider-using-with
            shutil.copyfileobj(source, kept)
            kept.flush()
            return kept
        except OSError as problem:
            raise Failed(f"{path}: {problem.strerror}") from None

    @contextlib.contextmanager
    def reading(self):
        """The file, opened anew."""
        with open(self.file, "rb") as file:
            yield file

    def ask(self, conf="", lag=None, memory=None, least=False, to_refusal=None):
        """The Outcome is the result() of what is returned; lag None: as the file tells."""
        refusal = self.to_refusal if to_refusal is None else to_refusal
        key = (conf, lag, memory, least, refusal)
        if key not in self._asked:
            with held():
                self._asked[key] = _Asked(self._pool.submit(self._play, *key))
        return self._asked[key]

    def get(self, *words, **named):
        return self.ask(*words, **named).result()

    def get_all(self, asked):
        """The results of asks, in their order."""
        return [each.result() for each in list(asked)]

    def _play(self, conf, lag, memory, least, refusal):
        words = [self.program, self.file, "--json"]
        words += ["--conf", conf] if conf else []
        words += ["--lag", str(lag)] if lag is not None else []
        words += ["--memory", str(memory)] if memory is not None else []
        words += ["--find-min-capacity"] if least else []
        words += ["--to-refusal"] if refusal else []
        with self._lock:
            if self._stopping:
                raise Failed("stopped")
            # A session of its own: Ctrl-C is this command's, which says what is known by then.
            child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                     pass_fds=(self._kept.fileno(),), start_new_session=True)
            self._running.add(child)
        try:
            out, err = child.communicate()
        finally:
            with self._lock:
                self._running.discard(child)
        return self._outcome(child.returncode, out, err.decode("utf-8", "replace"))

    def _outcome(self, status, out, err):
        err = err.replace(self.file, self.name).replace("cachealloc-replay", f"cachealloc {self.verb}")
        lines = [line.partition(": ")[2] for line in err.splitlines()]
        if status not in (0, 3):
            text = lines[0].partition(": ")[2] if lines else f"cachealloc-replay ended with {status}"
            raise Failed(text, status if status == 2 else 1)
        with self._lock:
            self.runs += 1
            for line in lines:
                kind, _, text = line.partition(": ")
                if kind == "warning" and text not in self.warnings:
                    self.warnings.append(text)
        return Outcome(json.loads(out))

    def close(self):
        """Ends the replays that run, and waits until they have."""
        with held():
            with self._lock:
                self._stopping = True
                running = list(self._running)
            for child in running:
                child.kill()
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._kept.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
