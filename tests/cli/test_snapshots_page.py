# SPDX-License-Identifier: MIT
"""docs/snapshots.md: its commands, one after the other as a reader would type them, and what it says of the files."""

import os
import pickle
import re
import shlex
import subprocess

import pytest

from conftest import BUILD, LIBRARY, ROOT, SIM, clean_env
from pages import commands

PAGE = (ROOT / "docs" / "snapshots.md").read_text()
PROGRAM = BUILD / "tests" / "process" / "shim" / "cases_shim"


@pytest.mark.skipif(not LIBRARY.is_file() or "CACHEALLOC_TEST_SANITIZER" in os.environ,
                    reason="no library that Python and a shell can preload")
def test_its_commands_work_as_they_stand(tmp_path):
    (tmp_path / "app").write_text(f"#!/bin/sh\nexec {shlex.quote(str(PROGRAM))} ten\n")
    (tmp_path / "app").chmod(0o755)
    (tmp_path / "build").symlink_to(BUILD)
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    lines = commands(ROOT / "docs" / "snapshots.md")
    assert len(lines) >= 8
    for line in lines:
        done = subprocess.run(["/bin/sh", "-c", line], cwd=tmp_path, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=clean_env(CACHEALLOC_BUILD=BUILD, LD_LIBRARY_PATH=SIM))
        assert done.returncode == 0 and not done.stderr, (line, done.stderr)
    made = {path.name for path in tmp_path.iterdir()} - {"app", "build", "scripts"}
    assert made == {"app.1.pickle", "app.trace", "app.pickle", "app.pftrace", "app.rmm.csv", "app.csv"}
    snapshot = pickle.loads((tmp_path / "app.1.pickle").read_bytes())
    assert snapshot["reason"] == "exit" and snapshot["segments"]
    assert all(f"`{key}`" in PAGE for key in set(snapshot) - {"segments", "device_traces", "allocator_settings",
                                                               "external_annotations"})


def test_what_needs_a_framework_names_actions_that_it_has():
    """Of PyTorch's _memory_viz.py, where it is here."""
    script = ROOT / "build-viewers" / "torch" / "cuda" / "_memory_viz.py"
    if not script.exists():
        pytest.skip("no _memory_viz.py of PyTorch's: build-viewers.log")
    text = subprocess.run(["python3", script, "--help"], stdout=subprocess.PIPE, text=True, check=True, timeout=60,
                          env=clean_env()).stdout
    words = re.findall(r"^python -m torch.cuda._memory_viz (\w+)", PAGE, re.M)
    assert words and all(re.search(rf"\b{word}\b", text) for word in words)
