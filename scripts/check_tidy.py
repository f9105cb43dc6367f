#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""clang-tidy over every source file of a build: check_tidy.py BUILD [-j N]

BUILD must have been configured with clang (its compile_commands.json names the flags). Each file is looked at once,
however often it is compiled. Prints what was found; exit status 1 if anything was.
"""

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("-j", type=int, default=2)
    arguments = parser.parse_args()
    commands = json.loads((arguments.build / "compile_commands.json").read_text())
    files = sorted({(arguments.build / c["file"]).resolve() for c in commands if c["file"].endswith(".c")})

    def tidy(path):
        done = subprocess.run(["clang-tidy", "-p", arguments.build, "--quiet", "--warnings-as-errors=*", path],
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300)
        return done.stdout + done.stderr if done.returncode else ""

    with ThreadPoolExecutor(arguments.j) as pool:
        found = [text for text in pool.map(tidy, files) if text]
    print("\n".join(found) if found else f"{len(files)} files are clean")
    return 1 if found or not files else 0


if __name__ == "__main__":
    sys.exit(main())
