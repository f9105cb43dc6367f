#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fails on any include that breaks config <- allocator <- shim: check_includes.py [ROOT]

Also: nothing that is installed includes tests/, quoted includes are paths from the root that exist, no stdio in the
library, and the allocator neither loads libraries nor reads the environment. One line a breach; exit status 1.
"""

import re
import sys
from pathlib import Path

LIBC = {
    "assert.h", "ctype.h", "errno.h", "fcntl.h", "limits.h", "inttypes.h", "poll.h", "pthread.h", "sched.h",
    "signal.h", "stdalign.h", "stdarg.h", "stdatomic.h", "stdbool.h", "stddef.h", "stdint.h", "stdlib.h",
    "stdnoreturn.h", "string.h", "strings.h", "time.h", "unistd.h", "linux/futex.h", "linux/limits.h",
    "sys/auxv.h", "sys/mman.h", "sys/random.h", "sys/resource.h", "sys/stat.h", "sys/statfs.h", "sys/syscall.h", "sys/time.h",
    "sys/types.h", "sys/uio.h", "sys/utsname.h", "sys/wait.h",
}
TOOL = {"getopt.h", "stdio.h"}
LOADER = {"cet.h", "dlfcn.h", "elf.h", "link.h", "sys/prctl.h", "ucontext.h"}

# folder -> (files and folders it may include, system headers it may include, identifiers it may not use)
RULES = {
    "config": (("config/",), LIBC, r"dlopen|dlsym|dlmopen"),
    "allocator": (("config/", "allocator/"), LIBC, r"dlopen|dlsym|dlmopen|getenv|secure_getenv"),
    # a tool over the allocator: what is installed as the library takes nothing from it
    "allocator/replay": (("config/", "allocator/"), LIBC | TOOL, r"dlopen|dlsym|dlmopen|getenv|secure_getenv"),
    "shim": (("config/", "allocator/", "shim/"), LIBC | LOADER, None),
    # the simulator is a piece of its own: it shares nothing with us but the driver's ABI
    "tests/sim": (("tests/sim/", "shim/bind/cuda_abi.h", "shim/bind/cuda_names.def"), None, None),
}

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.M)
NOT_IN_LIBRARY = "allocator/replay/"
NOISE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.S)


def check_file(root, path, rule):
    folders, headers, identifiers = rule
    name = path.relative_to(root).as_posix()
    text = path.read_text(encoding="utf-8")
    uncommented = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), text, flags=re.S)
    for found in INCLUDE.finditer(uncommented):
        quote, target = found.groups()
        line = uncommented.count("\n", 0, found.start(2)) + 1
        if quote == '"':
            inner = target.startswith(NOT_IN_LIBRARY) and not name.startswith(NOT_IN_LIBRARY)
            if inner or not target.startswith(folders):
                yield f"{name}:{line}: may not include \"{target}\" (allowed: {', '.join(folders)})"
            elif not (root / target).is_file():
                yield f"{name}:{line}: no \"{target}\" under the root"
        elif headers is not None and target not in headers:
            yield f"{name}:{line}: may not include <{target}>"
    if identifiers:
        for found in re.finditer(rf"\b(?:{identifiers})\b", NOISE.sub("", text)):
            yield f"{name}: may not use {found.group()}"


def check_tree(root):
    for folder, rule in RULES.items():
        for path in sorted((root / folder).rglob("*")):
            inner = path.relative_to(root).as_posix().startswith(NOT_IN_LIBRARY)
            if inner != (folder + "/" == NOT_IN_LIBRARY):
                continue
            if path.suffix in (".c", ".h", ".def", ".S"):
                yield from check_file(root, path, rule)


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    breaches = list(check_tree(root))
    print("\n".join(breaches) if breaches else "every include keeps to config <- allocator <- shim")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
