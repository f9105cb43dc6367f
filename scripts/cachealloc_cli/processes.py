# SPDX-License-Identifier: MIT
"""A program together with every process that it starts: found by /proc, ended as one.

This process becomes the reaper of its orphans (prctl PR_SET_CHILD_SUBREAPER), so that a process that has left the
program's session, or outlived its parent, is still found below us. Nothing is left behind.
"""

import ctypes
import os
import signal
import subprocess
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
GRACE_S, LAST_S, STEP_S = 2.0, 5.0, 0.02


def _prctl(option, value):
    try:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    except (OSError, AttributeError):
        pass  # then only those of the program's own descent are found


def _status(pid):
    """(parent, state) of a process, or None. One whose first thread has ended before others has that thread's state, a zombie's:
    it runs ("R") as long as there is another."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return int(fields[1]), "R" if int(fields[17]) > 1 else fields[0].decode()
    except (OSError, ValueError, IndexError):
        return None


class Tree:
    """A started program and its descendants."""

    def __init__(self, words, env):
        """Raises OSError, ValueError. The program's output goes to stderr: stdout is ours."""
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
        self.before = set(self._below())
        stdin = subprocess.DEVNULL if os.isatty(0) else None  # a session of its own has no terminal
        self.child = subprocess.Popen(words, env=env, stdin=stdin, stdout=2, start_new_session=True,
                                      preexec_fn=lambda: _prctl(PR_SET_PDEATHSIG, signal.SIGKILL))

    @staticmethod
    def _below():
        """pids of all processes that descend from this one; zombies among them that nobody else waits for are reaped."""
        known = {int(name): _status(name) for name in os.listdir("/proc") if name.isdigit()}
        parents = {pid: seen for pid, seen in known.items() if seen}
        found, level = [], {os.getpid()}
        while level:
            level = {pid for pid, (parent, _) in parents.items() if parent in level} - set(found)
            found += level
        return {pid: parents[pid] for pid in found}

    def alive(self):
        """pids that have not ended."""
        self.child.poll()
        alive = []
        for pid, (parent, state) in self._below().items():
            if pid in self.before:
                continue
            if state not in "ZX":
                alive.append(pid)
            elif parent == os.getpid() and pid != self.child.pid:
                try:
                    os.waitpid(pid, os.WNOHANG)
                except OSError:
                    pass
        return alive

    def _signal(self, number, told=frozenset()):
        """All but those in `told`. Returns the pids that are alive."""
        alive = set(self.alive())
        for pid in alive - told:
            try:
                os.kill(pid, number)
                os.kill(pid, signal.SIGCONT)
            except OSError:
                pass
        return alive

    def _gone(self, seconds):
        until = time.monotonic() + seconds
        while self.alive():
            if time.monotonic() >= until:
                return False
            time.sleep(STEP_S)
        return True

    def end(self):
        """Ends all that is left. Returns how: None (nothing was), "SIGTERM", "SIGKILL", or the pids that could not be
        ended."""
        if not self.alive():
            return None
        told = self._signal(signal.SIGTERM)
        if self._gone(GRACE_S / 2):
            return "SIGTERM"
        self._signal(signal.SIGTERM, told)  # one that was forked in between; one that a handler started to clean up had its time
        if self._gone(GRACE_S / 2):
            return "SIGTERM"
        until = time.monotonic() + LAST_S
        while time.monotonic() < until:
            self._signal(signal.SIGKILL)
            if self._gone(STEP_S):
                return "SIGKILL"
        return self.alive()


def program_of(pid):
    """The file that a process executes, or its name; None if it is gone."""
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        pass
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return None


def libraries_of(pid):
    """Paths of the files that a process has mapped; None if that cannot be seen (another user's, or gone)."""
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return None
    return {line.split(None, 5)[5] for line in lines if line.count("/") and len(line.split(None, 5)) == 6} if lines else None
