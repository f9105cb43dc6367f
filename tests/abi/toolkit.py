# SPDX-License-Identifier: MIT
"""Where the CUDA toolkit is, if anywhere, and whether C text compiles against it."""

import os
import re
import shutil
import subprocess
from pathlib import Path


def find_toolkit():
    """The folder with include/cuda.h, from $CUDA_HOME, nvcc on PATH or /usr/local/cuda; None without toolkit."""
    nvcc = shutil.which("nvcc")
    for place in (os.environ.get("CUDA_HOME"), nvcc and Path(nvcc).resolve().parent.parent, "/usr/local/cuda"):
        if place and (Path(place) / "include" / "cuda.h").is_file():
            return Path(place)
    return None


class Toolkit:
    def __init__(self, root):
        self.root = root
        self.include = root / "include"
        text = (self.include / "cuda.h").read_text(errors="replace")
        self.version = int(re.search(r"^#define CUDA_VERSION (\d+)", text, re.M).group(1))

    def errors(self, source, *folders):
        """Compiles C text against the toolkit's headers; the compiler's errors, empty if there are none."""
        found = [f"-I{folder}" for folder in (*folders, self.include)]
        done = subprocess.run(["gcc", "-std=gnu11", *found, "-fsyntax-only", "-xc", "-"], input=source,
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
        return done.stdout if done.returncode else ""
