# SPDX-License-Identifier: MIT
"""docs/compare.md: it has every option, and its sessions are what the command prints (the words; figures vary)."""

import os
import re
import subprocess

import pytest
from command import ROOT
from conftest import BUILD, LIBRARY, SIM, clean_env

PAGE = (ROOT / "docs" / "compare.md").read_text()
SESSIONS = re.findall(r"^```\n\$ (.*?)\n(.*?)^```$", PAGE, re.S | re.M)


def test_the_page_has_every_option_and_no_other():
    from cachealloc_cli.compare import OPTIONS
    table = PAGE.split("## All options")[1]
    assert sorted(re.findall(r"(?<![\w-])(--?[a-z][a-z-]*)(?= |`)", "\n".join(re.findall(r"^\| (`-.*?) \|", table, re.M)))) == sorted(
        name for option in OPTIONS for name in option.names)


def test_the_readme_leads_here():
    assert "(docs/compare.md)" in (ROOT / "README.md").read_text()


def shape(text):
    """The words of a session without its figures. What is no longer than chance (a verdict that may go either way, a
    warning about this machine) is left out."""
    lines = [line for line in text.splitlines() if not re.match(r"cachealloc: |(?:finished|slack0) is|no difference", line)]
    return [" ".join(re.sub(r"[0-9][0-9. ]*[0-9]|[0-9]", "#", re.sub(r"(?<=[0-9] )(?:s|ms|us)\b", "T", line)).split()) for line in lines]


@pytest.mark.skipif(not os.environ.get("CACHEALLOC_TEST_LONG"), reason="a minute each: CACHEALLOC_TEST_LONG=1")
@pytest.mark.parametrize("command, output", SESSIONS, ids=["example", "memory", "arms"])
def test_a_session_prints_what_the_page_shows(command, output, tmp_path):
    if not LIBRARY.is_file() or not (SIM / "libcuda.so.1").is_file() or "CACHEALLOC_TEST_SANITIZER" in os.environ:
        pytest.skip("no library and simulator that a shell can preload")
    subprocess.run(["python3", ROOT / "tests" / "traces" / "workload.py", "med128", tmp_path / "step.trc"], check=True)
    (tmp_path / "app").write_text(f"#!/bin/sh\nexec {BUILD}/tests/traces/trace_program step.trc\n")
    (tmp_path / "app").chmod(0o755)
    env = clean_env(PATH=f"{ROOT / 'scripts'}:{os.environ['PATH']}", CACHEALLOC_BUILD=BUILD)
    done = subprocess.run(["/bin/sh", "-c", command], cwd=tmp_path, env=env, text=True, stdout=subprocess.PIPE, timeout=600, check=True)
    assert shape(done.stdout) == shape(output)
