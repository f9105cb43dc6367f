# SPDX-License-Identifier: MIT
"""Files that are whole or as they were."""

import contextlib
import os
import stat


def is_plain(path):
    """A file, or nothing yet: what can be replaced in one step. (Not /dev/null, nor a pipe.)"""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return True


def is_one_of(path, others):
    """Is it one of these files, under whatever name?"""
    there = [one for one in others if os.path.exists(one)] if os.path.exists(path) else []
    return any(os.path.samefile(path, one) for one in there)


@contextlib.contextmanager
def whole_file(path):
    """A binary file that takes the place of `path` when all of it is written; a device or a pipe is written to as it is.
    Raises OSError, and what is raised inside; `path` is then as it was."""
    if not is_plain(path):
        with open(path, "wb") as file:
            yield file
        return
    path = os.path.realpath(path)
    temporary = f"{path}.{os.getpid()}.part"
    file = open(temporary, "xb", buffering=1 << 20)
    try:
        with file:
            yield file
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
