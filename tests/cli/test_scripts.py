# SPDX-License-Identifier: MIT
"""What the two first commands of the README say when they are called wrongly; nothing is installed or built then."""

import subprocess

import pytest
from conftest import ROOT


def called(script, *words):
    return subprocess.run([ROOT / "scripts" / script, *words], text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)


@pytest.mark.parametrize("script", ["demo.sh", "test.sh"])
@pytest.mark.parametrize("word", ["-h", "--help"])
def test_help(script, word):
    done = called(script, word)
    assert done.returncode == 0 and not done.stderr and f"Usage: scripts/{script}" in done.stdout


@pytest.mark.parametrize("script, words", [
    ("demo.sh", ["--pairs"]), ("demo.sh", ["0"]), ("demo.sh", ["many"]), ("demo.sh", ["3", "4"]),
    ("test.sh", ["--fast"]), ("test.sh", ["gcc", "-x"]),
])
def test_wrong_usage(script, words):
    done = called(script, *words)
    assert done.returncode == 2 and not done.stdout and f"Usage: scripts/{script}" in done.stderr
