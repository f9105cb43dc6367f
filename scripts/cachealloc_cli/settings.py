# SPDX-License-Identifier: MIT
"""The environment variables of the library, as the command's options and for checking what is set.

options.json, generated from config/options.def, tells which variables and keys there are; VARIABLES says how an
option of `run` sets each (a test compares the two).
"""

import json
import os
import subprocess
import sys

from . import paths
from .args import Option, UsageError, nearest

PREFIX = "CACHEALLOC_"

# Variables that the command or the tests read; the library does not know them.
OWN = ("CACHEALLOC_BUILD",)

# One row a variable of the library: the option of `run` that sets it.
VARIABLES = (
    ("CACHEALLOC_CONF", Option("--conf", "value", "Tuning keys; may be repeated.", "K:V,...", repeat=True)),
    ("CACHEALLOC_LIMIT", Option("--limit", "value", "Cap on the device memory of the program: 8G, or 90%.", "SIZE")),
    ("CACHEALLOC_STATS", Option("--stats", "optional", "Statistics at exit: a table on stderr, or into FILE "
                                "(a name ending in .json: JSON). %p is the pid.", "FILE")),
    ("CACHEALLOC_STATS_INTERVAL", Option("--stats-interval", "value", "Repeat the statistics, for example 10s; implies "
                                         "--stats.", "TIME")),
    ("CACHEALLOC_TRACE", Option("--trace", "value", "Record every allocation and free into FILE, for replay. %p is the "
                                "pid.", "FILE")),
    ("CACHEALLOC_SNAPSHOT", Option("--snapshot", "value", "Write all segments and blocks into FILE, for PyTorch's memory viewers. "
                                   "%p is the pid, %n counts.", "FILE")),
    ("CACHEALLOC_SNAPSHOT_ON", Option("--snapshot-on", "value", "When: a list of exit, oom, peak, usr1, usr2; exit,oom unless "
                                      "said.", "LIST")),
    ("CACHEALLOC_TAKEOVER", Option("--take-over", "value", "Put frameworks on stream-ordered memory: a list of torch, jax, "
                                   "tensorflow, cudf.", "LIST")),
    ("CACHEALLOC_LOG", Option("--log", "value", "off, error, warn (default), info or debug.", "LEVEL")),
    ("CACHEALLOC_LOG_FILE", Option("--log-file", "value", "Log lines go to FILE instead of stderr.", "FILE")),
    ("CACHEALLOC_DISABLE", Option("--disable", "optional", "Pass every call through; --disable=count still "
                                  "counts and times them.", "count")),
    ("CACHEALLOC_STRICT", Option("--strict", "flag", "A bad setting is fatal.")),
)


def table(kind, status):
    """Rows of options.json ("variable" or "key"; "built", "later" or "foreign"); none where it is missing."""
    try:
        with open(paths.options(), encoding="utf-8") as file:
            rows = json.load(file)["options"]
        return [row for row in rows if row["kind"] == kind and row["status"] == status]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def names(status):
    """Variables of that status; the built ones are known without the table."""
    return [row["name"] for row in table("variable", status)] or (
        [name for name, _ in VARIABLES] if status == "built" else [])


def default_text(row):
    """The default as a person reads it: a unit behind numbers only."""
    return f"{row['default']} {row['unit']}".rstrip() if row["default"].isdigit() else row["default"] or "unset"


def keys_text():
    """The keys of CACHEALLOC_CONF for --help."""
    lines = [f"  {row['name']:<27} default {default_text(row)}"
             for row in table("key", "built")]
    return "\nKeys (cachealloc(7) tells what they do):\n" + "\n".join(lines) + "\n" if lines else ""


def from_options(values):
    """The variables that the given options of `run` set."""
    env = {}
    for name, option in VARIABLES:
        value = values[option.key]
        if value is True:
            env[name] = "1"
        elif option.repeat and value:
            env[name] = ",".join(value)
        elif value is not None and not option.repeat:
            env[name] = value
    return env


class BadSettings(UsageError):
    """The lines of the library about settings that it would not honour."""

    def __init__(self, lines):
        super().__init__("; ".join(lines))
        self.lines = lines


# In a process of its own, preloaded: the library cannot be loaded later, and one for another machine, or one that wants
# another loaded first, ends only that process.
_ASK = """
import ctypes, sys
check = ctypes.CDLL(None)[sys.argv[1]]
check.restype, check.argtypes = ctypes.c_size_t, (ctypes.c_char_p, ctypes.c_size_t)
text = ctypes.create_string_buffer(1 << 17)
check(text, len(text))
sys.stdout.buffer.write(text.value)
"""


def faults(library, environ):
    """What the library would say of the CACHEALLOC_ variables in `environ`, line by line: there is one parser, and it
    is asked. None where it cannot be (a library of another machine, or an older one)."""
    return ask(library, "cachealloc_check_settings", environ)


def site_notes(library):
    """[(is it a problem?, phrase)] about the file of the site's settings, of which the library was built with the path."""
    lines = ask(library, "cachealloc_site_conf", {}) if library else None
    return [(not line.endswith(" is read before the environment"), line) for line in lines or ()]


def ask(library, function, environ):
    """The lines that a function of the library writes, with the CACHEALLOC_ variables of `environ`, or None."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    env["LD_PRELOAD"] = library
    env.update((name, value) for name, value in environ.items() if name.startswith(PREFIX))
    try:
        done = subprocess.run([sys.executable, "-I", "-S", "-c", _ASK, function], env=env, timeout=20, check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace").splitlines() if done.returncode == 0 else None


# Variables of frameworks that a take-over sets.
TAKEN = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING", "XLA_PYTHON_CLIENT_ALLOCATOR",
         "XLA_PYTHON_CLIENT_PREALLOCATE", "TF_GPU_ALLOCATOR", "CUDF_PANDAS_RMM_MODE")


def taken_over(library, environ):
    """`environ` as a program under the library finds it: CACHEALLOC_TAKEOVER may change variables of frameworks. The
    library is asked; where it cannot be, nothing is changed."""
    if not library or not environ.get("CACHEALLOC_TAKEOVER"):
        return environ
    env = {name: value for name, value in environ.items() if name.startswith(PREFIX) or name in TAKEN}
    code = f"import json, os; print(json.dumps({{n: os.environ[n] for n in {TAKEN!r} if n in os.environ}}))"
    try:
        done = subprocess.run([sys.executable, "-I", "-S", "-c", code], timeout=20, check=False, stdin=subprocess.DEVNULL,
                              env={**{n: v for n, v in os.environ.items() if not n.startswith(PREFIX) and n not in TAKEN},
                                   **env, "LD_PRELOAD": library},
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return {**environ, **json.loads(done.stdout)}
    except (OSError, ValueError, subprocess.SubprocessError):
        return environ


def refuse(library, changes):
    """Raises BadSettings if the library would not honour what options have set."""
    if any(name.startswith(PREFIX) for name in changes):
        lines = faults(library, {**changes, "CACHEALLOC_STRICT": "1"})
        if lines:
            raise BadSettings(lines)


def unread(environ):
    """[(name, phrase)] for CACHEALLOC_ variables that are set and have no effect."""
    known, later = names("built"), names("later")
    found = []
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in known or name in OWN or name.startswith("CACHEALLOC_TEST_"):
            continue
        close = nearest(name, known)
        if name in later:
            found.append((name, "is not in this version"))
        else:
            found.append((name, "is set, but no such variable is known" + (f"; did you mean {close}?" if close else "")))
    return found
