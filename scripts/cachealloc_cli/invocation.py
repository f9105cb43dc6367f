# SPDX-License-Identifier: MIT
"""How this command is started where its user is, for lines that are to be copied."""

import os
import shlex
import shutil
import sys


def words():
    """Its name where PATH finds it, else as it was started."""
    given = sys.argv[0]
    found = shutil.which("cachealloc")
    if found and os.path.realpath(found) == os.path.realpath(given):
        return "cachealloc"
    if os.path.basename(given) == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m cachealloc"
    return shlex.quote(given)
