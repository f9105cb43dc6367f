# SPDX-License-Identifier: MIT
"""What around a program matters to preloading: privileges, the driver, the environment."""

import os
import re
import stat
import subprocess

from . import invocation, paths, settings
from .args import nearest


def privileged(path):
    """Why the loader would ignore LD_PRELOAD for this file, or None."""
    try:
        mode = os.stat(path)
    except OSError:
        return None
    if mode.st_mode & stat.S_ISUID and mode.st_uid != os.geteuid():
        return "it is set-uid, and the loader ignores LD_PRELOAD for such programs"
    if mode.st_mode & stat.S_ISUID:
        return "it is set-uid: for any user but its owner the loader ignores LD_PRELOAD"
    if mode.st_mode & stat.S_ISGID and mode.st_mode & stat.S_IXGRP:
        return "it is set-gid, and the loader ignores LD_PRELOAD for such programs"
    try:
        if os.getxattr(path, "security.capability"):
            return "it has file capabilities, and the loader ignores LD_PRELOAD for such programs"
    except (OSError, AttributeError):
        pass
    return None


def driver_version():
    """Version of the NVIDIA kernel driver, or None."""
    try:
        with open("/proc/driver/nvidia/version", encoding="ascii", errors="replace") as file:
            found = re.search(r"\s(\d+\.\d+[.\d]*)\s", file.read())
            if found:
                return found.group(1)
    except OSError:
        pass
    try:
        done = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], timeout=20,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.match(r"\d+\.[.\d]+", done.stdout.decode("ascii", "replace"))
    return found.group(0) if done.returncode == 0 and found else None


def _simulated():
    """A phrase about the simulated driver, where there is one."""
    try:
        paths.simulator()
    except paths.NotFound:
        return ""
    return f" ({invocation.words()} run --sim has a simulated one)"


def describe_libcuda(path, where):
    """One phrase about the libcuda.so.1 that would be found."""
    if path is None:
        return "libcuda.so.1 was not found: no NVIDIA driver here" + _simulated()
    kind = ""
    if paths.is_simulator(path):
        kind = ", the simulated driver"
    elif "/stubs/" in os.path.realpath(path):
        kind = ", the toolkit's stub: it cannot run anything; take it out of the search path"
    return f"libcuda.so.1 is {path} (by {where}){kind}"


def settings_notes(environ, library):
    """Settings that the library would not honour, in its own words; without it, names that nobody knows."""
    lines = settings.faults(library, environ) if library else None
    if lines is None:
        lines = [f"{name} {phrase}" for name, phrase in settings.unread(environ)]
    return [(True, line) for line in lines]


# Keys of PyTorch's own that this library has, too; those that mean nothing here are in options.json.
PYTORCH_KEYS = {"large_segment_size_mb", "max_split_size_mb", "max_non_split_rounding_mb", "roundup_power2_divisions",
                "garbage_collection_threshold", "per_process_memory_fraction", "expandable_segments", "backend"}


def pytorch_faults(text):
    """What PyTorch would not understand in its list: at its first allocation that is an exception."""
    if not text:
        return []
    known = PYTORCH_KEYS | {row["name"] for row in settings.table("key", "foreign")}
    found = []
    for entry in filter(None, re.split(r",(?![^\[]*\])", "".join(text.split()))):
        key, colon, value = entry.partition(":")
        if not colon or not value:
            found.append(f"'{entry}' is no key:value")
        elif key not in known:
            close = nearest(key, known)
            found.append(f"PyTorch knows no key '{key}'" + (f"; did you mean {close}?" if close else ""))
        elif key == "backend" and value not in ("native", "cudaMallocAsync"):
            found.append(f"PyTorch knows no backend '{value}', only native and cudaMallocAsync")
        elif key in ("max_split_size_mb", "max_non_split_rounding_mb"):
            number = re.match(r"\d+", value)  # what comes after the digits is ignored there
            least = 1 if "large_segment_size_mb:" in text else 20
            if not number or int(number.group()) < least:
                found.append(f"{key}: '{value}' is no number of MB of at least {least}")
    return found


def pytorch_notes(environ):
    """Settings of PyTorch's own allocator: PYTORCH_ALLOC_CONF counts only where the older name is not set at all."""
    older, newer = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"
    taken = "torch" in environ.get("CACHEALLOC_TAKEOVER", "").lower()
    reader = ("PyTorch, and counts where CACHEALLOC_CONF lacks a key" if taken
              else "PyTorch's own cache: cachealloc reads CACHEALLOC_CONF")
    notes = [(False, f"{name}={environ[name]} is for {reader}")
             for name in (older, newer) if environ.get(name) and (name == older or older not in environ)]
    in_force = older if older in environ else newer
    notes += [(True, f"{in_force}: {fault}") for fault in pytorch_faults(environ.get(in_force, ""))]
    if environ.get(newer) and older in environ:
        value = f"to {environ[older]}" if environ[older] else "to nothing"
        notes.append((True, f"{newer}={environ[newer]} is not in force: {older} is set {value}, and PyTorch takes "
                            "that; unset it"))
    return notes


def environment_notes(environ, library=None):
    """[(is it a problem?, phrase)] about the environment that the program would inherit, and the site's settings."""
    notes = settings.site_notes(library) + settings_notes(environ, library) + pytorch_notes(environ)
    if environ.get("CACHEALLOC_DISABLE") not in (None, "", "0", "off", "false"):
        notes.append((True, f"CACHEALLOC_DISABLE={environ['CACHEALLOC_DISABLE']}: every call is passed through"))
    for path in re.split("[: ]+", environ.get("LD_PRELOAD", "")):
        if not path:
            continue
        if os.path.basename(path).startswith(paths.LIBRARY_NAME):
            notes.append((False, f"LD_PRELOAD already names {path}"))
        else:
            gone = "/" in path and not os.path.isfile(path)
            notes.append((gone, f"LD_PRELOAD also names {path}" + (", which does not exist" if gone else "")))
    for name in ("LD_AUDIT", "CUDA_INJECTION64_PATH"):
        if environ.get(name):
            notes.append((False, f"{name}={environ[name]}: another tool may stand between program and driver"))
    return notes
