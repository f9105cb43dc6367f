#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compiles each header alone, and once more included twice: check_headers.py [--cc CC] [ROOT]

One line a header that does not stand by itself; exit status 1. 77 with the reason when the compiler is missing.
"""

import argparse
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FOLDERS = ("config", "allocator", "shim", "tests")
FLAGS = ("-std=gnu11", "-D_GNU_SOURCE", '-DCA_VERSION="0"', "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror",
         "-fsyntax-only", "-xc", "-")


def compile_alone(cc, root, header):
    """The compiler's messages; empty when the header stands alone."""
    done = subprocess.run([cc, f"-I{root}", *FLAGS], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, input=f'#include "{header}"\n#include "{header}"\n')
    return f"{header} ({cc}): {done.stdout.strip()}" if done.returncode else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cc", action="append", help="compiler; may be repeated (default: gcc)")
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parent.parent)
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    headers = [p.relative_to(root).as_posix() for f in FOLDERS for p in sorted((root / f).rglob("*.h"))]
    if not headers:
        print(f"no header under {root}")
        return 1
    failures = []
    for cc in arguments.cc or ["gcc"]:
        if not shutil.which(cc):
            print(f"{cc} is not installed")
            return 77
        with ThreadPoolExecutor(2) as pool:
            failures += filter(None, pool.map(lambda header, cc=cc: compile_alone(cc, root, header), headers))
    print("\n".join(failures) if failures else f"{len(headers)} headers compile alone")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
