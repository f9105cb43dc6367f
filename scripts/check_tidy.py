#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""clang-tidy over every source file of a build: check_tidy.py BUILD [-j N] [--nodes N]

BUILD must have been configured with clang (its compile_commands.json names the flags). Each file is looked at once, as
it is compiled first, however often it is compiled (clang-tidy by itself would look once for each time). Prints what was found; exit status 1 if anything was.

--nodes: the analyzer gives a function up after so many states (clang's own limit: 225,000). 40,000 take a fifth of
the time.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("-j", type=int, default=2)
    parser.add_argument("--nodes", type=int, default=225_000)
    arguments = parser.parse_args()
    limit = [f"--extra-arg={word}" for word in ("-Xclang", "-analyzer-config", "-Xclang", f"max-nodes={arguments.nodes}")]
    commands = json.loads((arguments.build / "compile_commands.json").read_text())
    first = {}
    for command in commands:
        path = (arguments.build / command["file"]).resolve()
        if path.suffix == ".c":
            first.setdefault(path, command)

    def tidy(path):
        done = subprocess.run(["clang-tidy", "-p", folder, "--quiet", "--warnings-as-errors=*", *limit, path],
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300)
        return done.stdout + done.stderr if done.returncode else ""

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "compile_commands.json").write_text(json.dumps(list(first.values())))
        with ThreadPoolExecutor(arguments.j) as pool:
            found = [text for text in pool.map(tidy, sorted(first)) if text]
    print("\n".join(found) if found else f"{len(first)} files are clean")
    return 1 if found or not first else 0


if __name__ == "__main__":
    sys.exit(main())
