# SPDX-License-Identifier: MIT
"""Virtual environments with others' packages, as the package index has them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import BUILD, LIBRARY, ROOT, SIM

FOLDER = Path(os.environ.get("CACHEALLOC_TEST_VENV") or BUILD / "venv")
#: what scripts/setup.sh installs, too
PACKAGES = ["cuda-bindings", "cuda-core", "tinygrad"]


def install(folder, packages, modules):
    """A Python with the packages, or a phrase why there is none."""
    python = folder / "bin" / "python3"
    found = [python, "-c", f"import {', '.join(modules)}"]
    try:
        if python.exists() and subprocess.run(found, stderr=subprocess.DEVNULL, check=False).returncode == 0:
            return python, None
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, capture_output=True, timeout=120)
        subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--retries", "1",
                        "--timeout", "15", *packages], check=True, capture_output=True, timeout=300, text=True)
        subprocess.run(found, check=True, capture_output=True, timeout=120)
    except subprocess.TimeoutExpired as problem:
        return None, f"{packages[-1]}: timed out after {problem.timeout:.0f} s"
    except subprocess.CalledProcessError as problem:
        words = (problem.stderr or b"").splitlines()
        last = words[-1] if words else ""
        return None, f"{packages[-1]} cannot be installed: {last if isinstance(last, str) else last.decode()}"
    return python, None


def python_with(*modules, folder=FOLDER, packages=tuple(PACKAGES)):
    """That Python; where there is none, or nothing is built, the test is skipped."""
    for needed in (LIBRARY, SIM / "libcuda.so.1"):
        if not needed.exists():
            pytest.skip(f"not built: {needed.name}")
    found, problem = install(folder, packages, modules)
    if problem:
        pytest.skip(problem)
    return found


def words_of(key):
    """The words that a setting accepts in this version."""
    options = json.loads((ROOT / "scripts" / "options.json").read_text())["options"]
    accepted = next(option["accepted"] for option in options if option["name"] == key)
    return accepted.replace(" or ", ", ").split(", ")
