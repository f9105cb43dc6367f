# SPDX-License-Identifier: MIT
"""The commands that README, the pages in docs and --help show do what is said of them: each is run as it stands, with ./app and the files
it names in place, on the simulated driver."""

import lzma
import os
import re
import shlex
import subprocess

import pytest

from conftest import BUILD, LIBRARY, ROOT, SIM, clean_env
from command import COMMAND

QUICK_EVERY = 4  # conftest.py

pytestmark = pytest.mark.skipif(not LIBRARY.is_file() or "CACHEALLOC_TEST_SANITIZER" in os.environ,
                                reason="no library that Python and a shell can preload")

PROGRAM = BUILD / "tests" / "process" / "shim" / "cases_shim"
#: the pages with a test of their own are test_packaging.py's and test_snapshots_page.py's
PAGES = [ROOT / "README.md", *sorted(page for page in (ROOT / "docs").glob("*.md") if page.stem not in ("install", "snapshots"))]
#: what a build or a whole test run would be, and what needs the reader's own file
NOT_RUN = re.compile(r"^(scripts/(demo|test|gpu_check)\.sh|meson |LD_LIBRARY_PATH=build/tests/sim .*your\.so)")


def fenced():
    """The lines of the pages' shell blocks that are commands, without their comments."""
    blocks = [block for page in PAGES for block in re.findall(r"^```sh\n(.*?)^```$", page.read_text(), re.S | re.M)]
    lines = [re.sub(r"\s+#.*", "", line) for block in blocks for line in block.splitlines()]
    return [line for line in lines if line and not NOT_RUN.match(line)]


def shown(*words):
    """The examples of a --help: what stands before two spaces."""
    text = subprocess.run([COMMAND, *words, "--help"], stdout=subprocess.PIPE, text=True, check=True, timeout=60,
                          env=clean_env(CACHEALLOC_BUILD=BUILD)).stdout
    lines = text[text.index("Examples:"):].splitlines()[1:]
    lines = lines[:lines.index("")]
    return [re.split(r"  +", line.strip())[0] for line in lines]


HELP = [line for words in ([], ["run"], ["compare"], ["doctor"], ["tune"], ["explain"], ["version"], ["report"], ["convert"]) for line in shown(*words)] \
    if LIBRARY.is_file() else []


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with ./app, and recordings of it under the names that the examples use."""
    path = tmp_path_factory.mktemp("examples")
    (path / "app").write_text(f"#!/bin/sh\nexec {shlex.quote(str(PROGRAM))} ten\n")
    (path / "app").chmod(0o755)
    (path / "train.py").write_text("import subprocess\nsubprocess.run(['./app'], check=True)\nprint('tok/s 12.5')\n")
    for name in ("before.json", "after.json"):
        subprocess.run([PROGRAM, "ten"], check=True, timeout=60, cwd=path, env=clean_env(LD_PRELOAD=LIBRARY, CACHEALLOC_STATS=name))
    (path / "build").symlink_to(BUILD)
    (path / "scripts").symlink_to(ROOT / "scripts")
    subprocess.run([PROGRAM, "ten"], check=True, timeout=60, cwd=path,
                   env=clean_env(LD_PRELOAD=LIBRARY, CACHEALLOC_TRACE="app.7841.trace"))
    trace = (path / "app.7841.trace").read_bytes()
    (path / "docs").symlink_to(ROOT / "docs")
    for name in ("step.pickle", "snapshot.pickle", "rank0.trace", "rank1.trace", "run.trace", "oom.pickle", "oom.trace"):
        (path / name).write_bytes(trace)
    for name in ("step.trc.xz", "step.trace.xz"):
        (path / name).write_bytes(lzma.compress(trace))
    (path / "train.log").write_text("CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 23.69 GiB total capacity; 19.51 GiB "
                                    "already allocated; 1.20 GiB free; 21.00 GiB reserved in total by PyTorch)\n")
    (path / "tests").symlink_to(ROOT / "tests")
    return path


def test_there_are_examples():
    assert len(fenced()) >= 10 and len(HELP) >= 10


@pytest.mark.parametrize("line", [*fenced(), *HELP])
def test_an_example_works_as_it_stands(folder, line):
    for made in ("run.html", "app.html", "step.html", "memory.svg", "map.svg"):  # by an example of the same output
        (folder / made).unlink(missing_ok=True)
    env = clean_env(PATH=f"{ROOT / 'scripts'}:{os.environ['PATH']}", CACHEALLOC_BUILD=BUILD, LD_LIBRARY_PATH=SIM)
    done = subprocess.run(["/bin/sh", "-c", line], cwd=folder, env=env, text=True, timeout=120, check=False,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    expected = (0, 2) if " doctor " in line else (0,)  # ./app is a shell script, which may do anything
    assert done.returncode in expected, (done.returncode, done.stdout, done.stderr)
    assert "error" not in done.stderr, done.stderr
