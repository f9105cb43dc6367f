# SPDX-License-Identifier: MIT
"""The environment variables of the library, as the command's options and for checking what is set."""

import os

from .args import Option, nearest

PREFIX = "CACHEALLOC_"

# Variables that the command or the tests read; the library does not know them.
OWN = ("CACHEALLOC_BUILD", "CACHEALLOC_TRACES", "CACHEALLOC_VENV")

# One row a variable of the library: the option of `run` that sets it.
VARIABLES = (
    ("CACHEALLOC_CONF", Option("--conf", "value", "Tuning keys; may be repeated.", "K:V,...", repeat=True)),
    ("CACHEALLOC_STATS", Option("--stats", "optional", "Statistics at exit: a table on stderr, or into FILE "
                                "(a name ending in .json: JSON). %p is the pid.", "FILE")),
    ("CACHEALLOC_STATS_INTERVAL", Option("--stats-interval", "value", "Repeat the statistics, for example 10s.",
                                         "TIME")),
    ("CACHEALLOC_LOG", Option("--log", "value", "off, error, warn (default), info or debug.", "LEVEL")),
    ("CACHEALLOC_LOG_FILE", Option("--log-file", "value", "Log lines go to FILE instead of stderr.", "FILE")),
    ("CACHEALLOC_DISABLE", Option("--disable", "optional", "Pass every call through; --disable=count still "
                                  "counts and times them.", "count")),
    ("CACHEALLOC_STRICT", Option("--strict", "flag", "A bad setting is fatal.")),
)

NAMES = tuple(name for name, _ in VARIABLES)


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


def misspelt(environ=None):
    """[(name, nearest known name or None)] for CACHEALLOC_ variables that nobody reads."""
    environ = os.environ if environ is None else environ
    return [(name, nearest(name, NAMES)) for name in sorted(environ)
            if name.startswith(PREFIX) and name not in NAMES and name not in OWN
            and not name.startswith("CACHEALLOC_TEST_")]
