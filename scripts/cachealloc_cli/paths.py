# SPDX-License-Identifier: MIT
"""Where the library, the simulator and the option table are, relative to this command.

Uninstalled: this file is SOURCES/scripts/cachealloc_cli/paths.py and the build is $CACHEALLOC_BUILD or
SOURCES/build. Installed: PREFIX/share/cachealloc/cachealloc_cli/paths.py and PREFIX/lib*; in a Python package all of it
is in one folder. So the whole can be moved to another folder.
"""

import glob
import os
import re
import shlex

HERE = os.path.dirname(os.path.realpath(__file__))
SOURCES = os.path.dirname(os.path.dirname(HERE))
LIBRARY_NAME = "libcachealloc.so"


class NotFound(Exception):
    """One sentence: what was looked for, and where."""


def in_package():
    """True in a Python package: the library is beside this file."""
    return os.path.isfile(os.path.join(HERE, LIBRARY_NAME))


def uninstalled():
    return not in_package() and os.path.isfile(os.path.join(SOURCES, "meson.build"))


def build():
    """The build folder of an uninstalled command."""
    return os.path.abspath(os.environ.get("CACHEALLOC_BUILD") or os.path.join(SOURCES, "build"))


def _library_candidates():
    if os.environ.get("CACHEALLOC_BUILD") or uninstalled():
        yield os.path.join(build(), "shim", LIBRARY_NAME)
    yield os.path.join(HERE, LIBRARY_NAME)
    prefix = os.path.dirname(os.path.dirname(HERE))
    prefix = os.path.dirname(prefix) if os.path.basename(prefix) == "share" else prefix
    for pattern in ("lib", "lib64", "lib/*-linux-gnu"):
        for folder in sorted(glob.glob(os.path.join(prefix, pattern))):
            yield os.path.join(folder, LIBRARY_NAME)


def library(given=None):
    """Path of libcachealloc.so. Raises NotFound."""
    candidates = [os.path.abspath(given)] if given else list(_library_candidates())
    for path in candidates:
        if os.path.isfile(path):
            return path
    what = f"{LIBRARY_NAME} was not found at " + (" or ".join(candidates[:2]) or "any known place")
    if not given and uninstalled():
        what += "; build it with `meson setup build && meson compile -C build`, or set CACHEALLOC_BUILD"
    raise NotFound(what)


def library_version(path):
    """The version written in the file ("cachealloc 0.1.0"), or None."""
    try:
        with open(path, "rb") as file:
            found = re.search(rb"\bcachealloc (\d+\.\d+\.\d+[0-9a-z.+-]*)\0", file.read(64 << 20))
    except OSError:
        return None
    return found.group(1).decode() if found else None


def preload_fault(path):
    """Why LD_PRELOAD cannot put this library under a program, or None."""
    if any(character in path for character in ": "):
        return f"{path}: LD_PRELOAD cannot name a path with a space or a colon; --library may name a link to it"
    return None if library_version(path) else f"{path} is not {LIBRARY_NAME}"


def _simulator_advice():
    """How to come by the simulator."""
    folder = shlex.quote(build())
    if os.path.isfile(os.path.join(build(), "build.ninja")):
        return f"`meson configure -Dsimulator=enabled {folder} && ninja -C {folder}` builds it"
    if uninstalled():
        return f"`meson setup -Dsimulator=enabled {folder} {shlex.quote(SOURCES)} && ninja -C {folder}` builds it"
    return "it is in a build of the sources with -Dsimulator=enabled, which CACHEALLOC_BUILD may name"


def simulator():
    """Folder of the simulated libcuda.so.1. Raises NotFound."""
    candidates = [os.path.join(build(), "tests", "sim")] if os.environ.get("CACHEALLOC_BUILD") or uninstalled() else []
    try:
        candidates.append(os.path.join(os.path.dirname(library()), "cachealloc", "sim"))
    except NotFound:
        pass
    for folder in candidates:
        if os.path.isfile(os.path.join(folder, "libcuda.so.1")):
            return folder
    raise NotFound(f"the simulated driver libcuda.so.1 was not found in {' or '.join(candidates) or 'any known place'}; "
                   + _simulator_advice())


def replay():
    """Path of the program cachealloc-replay. Raises NotFound."""
    candidates = []
    if os.environ.get("CACHEALLOC_BUILD") or uninstalled():
        candidates.append(os.path.join(build(), "allocator", "cachealloc-replay"))
    if in_package():
        candidates.append(os.path.join(HERE, "cachealloc-replay"))
    elif not uninstalled():
        prefix = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
        candidates.append(os.path.join(prefix, "bin", "cachealloc-replay"))
    for path in candidates:
        if os.path.isfile(path):
            return path
    advice = "; build it with `meson setup build && meson compile -C build`" if uninstalled() else ""
    raise NotFound("cachealloc-replay was not found at " + " or ".join(candidates) + advice)


def options():
    """The table of settings, generated from config/options.def: scripts/, or share/cachealloc/ when installed, or in the
    Python package."""
    if in_package():
        return os.path.join(HERE, "options.json")
    return os.path.join(os.path.dirname(HERE), "options.json")


def is_simulator(path):
    """True when the file is our simulated driver."""
    try:
        with open(path, "rb") as file:
            return b"SIMCUDA_MEM" in file.read(64 << 20)
    except OSError:
        return False
