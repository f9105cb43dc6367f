#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The unit tests of a build whose programs may start a thread: tests_with_threads.py BUILD

One name a line, as `meson test` takes it. ThreadSanitizer has nothing to find in a program that neither names
pthread_create nor loads the simulated driver, which starts threads; those took half of its time.
"""

import argparse
import json
import subprocess
from pathlib import Path

SIGNS = [b"pthread_create", b"libcuda.so"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    tests = json.loads(subprocess.run(["meson", "introspect", "--tests", parser.parse_args().build], check=True,
                                      stdout=subprocess.PIPE).stdout)
    for test in tests:
        if "cachealloc:unit" in test["suite"]:
            program = Path(test["cmd"][0]).read_bytes()
            if any(sign in program for sign in SIGNS):
                print(test["name"])


if __name__ == "__main__":
    main()
