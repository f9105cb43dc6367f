# SPDX-License-Identifier: MIT
"""Where CUDA's headers are, if anywhere, and whether C text compiles against them."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

FETCHED = Path(__file__).resolve().parent.parent.parent / "build-headers"  # by scripts/setup.sh


def find_toolkit():
    """The folder with include/cuda.h, from $CUDA_HOME, nvcc on PATH or /usr/local/cuda; None without toolkit."""
    nvcc = shutil.which("nvcc")
    for place in (os.environ.get("CUDA_HOME"), nvcc and Path(nvcc).resolve().parent.parent, "/usr/local/cuda"):
        if place and (Path(place) / "include" / "cuda.h").is_file():
            return Path(place)
    return None


def version_of(include):
    return int(re.search(r"^#define CUDA_VERSION (\d+)", (include / "cuda.h").read_text(errors="replace"), re.M).group(1))


def roots():
    """Every folder with include/cuda.h, one for each version, oldest first: those that set-up fetched, installed ones,
    wheels of this Python's, $CACHEALLOC_TEST_TOOLKITS."""
    places = [find_toolkit(), *Path("/usr/local").glob("cuda-*"), Path("/usr")]
    places += [root for path in sys.path if path for root in Path(path).glob("nvidia/c*")]
    places += [Path(path) for path in os.environ.get("CACHEALLOC_TEST_TOOLKITS", "").split(":") if path]
    places += FETCHED.glob("[0-9]*")
    found = {version_of(root / "include"): root for root in places if root and (root / "include" / "cudaTypedefs.h").is_file()}
    return [root for _, root in sorted(found.items())]


class Toolkit:
    def __init__(self, root):
        self.root = root
        self.include = root / "include"
        self.version = version_of(self.include)

    def errors(self, source, *folders):
        """Compiles C text against the toolkit's headers; the compiler's errors, empty if there are none."""
        found = [f"-I{folder}" for folder in (*folders, self.include)]
        done = subprocess.run(["gcc", "-std=gnu11", *found, "-fsyntax-only", "-xc", "-"], input=source,
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
        return done.stdout if done.returncode else ""
