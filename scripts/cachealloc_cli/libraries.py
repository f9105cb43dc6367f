# SPDX-License-Identifier: MIT
"""Where the dynamic loader would find a library, and which libraries a program brings along."""

import os
import re
import subprocess

from .elf import DF_1_NODEFLIB, Elf, ElfError

LIMIT_LIBRARIES = 400


def expand(folder, origin, elf):
    """$ORIGIN, $LIB and $PLATFORM in a search path."""
    library = "lib64" if elf.bits == 64 else "lib"
    for name, value in (("ORIGIN", origin), ("LIB", library), ("PLATFORM", elf.machine.replace("-", "_"))):
        folder = folder.replace(f"${{{name}}}", value).replace(f"${name}", value)
    return folder


def cache():
    """{soname: [path, ...]} of the loader's cache; empty where ldconfig is missing."""
    for command in ("ldconfig", "/sbin/ldconfig", "/usr/sbin/ldconfig"):
        try:
            done = subprocess.run([command, "-p"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=20,
                                  check=False, env={**os.environ, "LC_ALL": "C", "LD_PRELOAD": ""})
        except (OSError, subprocess.SubprocessError):
            continue
        found = {}
        for line in done.stdout.decode("utf-8", "replace").splitlines():
            match = re.match(r"\s+(\S+) \(.*\) => (.+)$", line)
            if match:
                found.setdefault(match.group(1), []).append(match.group(2))
        return found
    return {}


class Search:
    """The loader's search, for programs started with the given environment."""

    def __init__(self, environ):
        self.environ = environ
        self.cache = cache()

    def folders(self, elf, path):
        """[(folder, where it was named)] in the order of ld.so(8), without the cache."""
        origin = os.path.dirname(os.path.realpath(path))
        found = []
        if not elf.runpath:
            found += [(expand(folder, origin, elf), "RPATH") for folder in elf.rpath]
        found += [(folder or ".", "LD_LIBRARY_PATH")
                  for folder in re.split("[:;]", self.environ.get("LD_LIBRARY_PATH", "")) if folder]
        return found + [(expand(folder, origin, elf), "RUNPATH") for folder in elf.runpath]

    def find(self, name, elf, path):
        """(path, where) of a library that `elf` would get, or (None, None)."""
        if "/" in name:
            return (name, "its path") if os.path.isfile(name) else (None, None)
        for folder, where in self.folders(elf, path):
            candidate = os.path.join(folder, name)
            if self.fits(candidate, elf):
                return candidate, where
        if elf.flags_1 & DF_1_NODEFLIB:
            return None, None
        for candidate in self.cache.get(name, []):
            if self.fits(candidate, elf):
                return candidate, "the loader's cache"
        for folder in ("/lib64", "/usr/lib64", "/lib", "/usr/lib"):
            if self.fits(os.path.join(folder, name), elf):
                return os.path.join(folder, name), "the default folders"
        return None, None

    @staticmethod
    def fits(candidate, elf):
        """The loader skips files of another architecture."""
        try:
            other = Elf(candidate)
        except ElfError:
            return False
        return (other.bits, other.machine) == (elf.bits, elf.machine)


def closure(elf, path, search):
    """[(name, path, Elf)] of every library that is loaded with the program, breadth first; missing ones have
    None twice."""
    found, seen = [], set()
    queue = [(name, elf, path) for name in elf.needed]
    while queue and len(found) < LIMIT_LIBRARIES:
        name, parent, parent_path = queue.pop(0)
        if name in seen:
            continue
        seen.add(name)
        where, _ = search.find(name, parent, parent_path)
        try:
            library = Elf(where) if where else None
        except ElfError:
            where, library = None, None
        found.append((name, where, library))
        if library:
            queue += [(needed, library, where) for needed in library.needed]
    return found
