# SPDX-License-Identifier: MIT
"""`cachealloc replay`: becomes cachealloc-replay, which has its own options and manual page."""

import os
import subprocess

from . import paths, terminal


def help_text():
    try:
        return subprocess.run([paths.replay(), "--help"], check=True, stdout=subprocess.PIPE, text=True).stdout
    except (paths.NotFound, OSError, subprocess.CalledProcessError) as problem:
        return f"cachealloc replay FILE [OPTIONS]: {problem}\n"


def run(argv):
    try:
        program = paths.replay()
        os.execv(program, [program, *argv])
    except (paths.NotFound, OSError) as problem:
        terminal.error(f"replay: {problem}")
        return 125
