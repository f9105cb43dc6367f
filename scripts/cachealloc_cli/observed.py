# SPDX-License-Identifier: MIT
"""What `cachealloc doctor --run` sees of one process: its files in /proc, and what the library in it wrote."""

import json
import os
import re

from . import frameworks, paths, processes, surroundings
from .elf import Elf, ElfError

SURE_S = 0.2   # a process that has no library so long after it was first seen will not have it


class Process:
    """What was seen of one process."""

    def __init__(self, pid, now):
        self.pid = pid
        self.since = now
        self.program = None
        self.library = None  # has it ours? None: not known
        self.driver = False  # has it libcuda?
        self.frameworks = {}
        self.lines = []      # the library's
        self.stats = None

    def look(self, now):
        """At a process that lives."""
        self.program = processes.program_of(self.pid) or self.program
        mapped = processes.libraries_of(self.pid)
        if mapped is None:
            return
        names = {os.path.basename(path) for path in mapped}
        if any(name.startswith(paths.LIBRARY_NAME) for name in names):
            self.library = True
        elif now - self.since > SURE_S or self.why_not():
            self.library = False
        self.driver = self.driver or any(name.startswith("libcuda.so") for name in names)
        for path in mapped:
            name = frameworks.of_library(path)
            if name:
                self.frameworks.setdefault(name, path)

    def why_not(self):
        """Why no library can be loaded into its program, or None."""
        try:
            static = self.program and os.path.isfile(self.program) and Elf(self.program).static
        except ElfError:
            return None
        if static:
            return "it is statically linked"
        return self.program and surroundings.privileged(self.program)

    def called(self):
        return bool(self.lines)

    def count(self, name):
        return sum(device.get(name) or 0 for device in (self.stats or {}).get("devices") or [] if isinstance(device, dict))

    def first(self):
        """(bytes, is it served?) of the first allocation, or None."""
        for line in self.lines:
            found = re.match(r"info: first allocation: (\d+) bytes, (served here|straight)", line)
            if found:
                return int(found.group(1)), found.group(2) == "served here"
        return None


def last(text):
    """The last whole object of a file of JSON lines."""
    for line in reversed(text.splitlines()):
        try:
            data = json.loads(line)
        except ValueError:
            continue
        if isinstance(data, dict):
            return data
    return None
