# SPDX-License-Identifier: MIT
"""Running the command, with a stand-in library where the real one does not matter.

Not a conftest.py: there is one in the folder above, and modules of one name cannot both be imported.
"""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
COMMAND = ROOT / "scripts" / "cachealloc"
sys.path.insert(0, str(ROOT / "scripts"))
sys.path.insert(0, str(HERE))

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # a shell's background job, whose programs would ignore it, too
    signal.signal(signal.SIGINT, signal.default_int_handler)

OURS = ("CACHEALLOC_", "SIMCUDA_", "STUB_", "LD_", "COMPARE_", "NO_COLOR", "FORCE_COLOR")


def environment(**extra):
    env = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    env.update({name: str(value) for name, value in extra.items()})
    return env


def left(folder):
    """Files of counts of processes that had statistics in the folder."""
    found = []
    for path in Path("/dev/shm").glob("cachealloc-*.counts"):
        try:
            found += [path] if bytes(folder) in path.read_bytes()[:8192] else []
        except OSError:  # gone by now
            pass
    return found


@pytest.fixture(scope="session")
def compiler():
    found = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if not found:
        pytest.skip("no C compiler")
    return found


@pytest.fixture(scope="session")
def stub_build(tmp_path_factory, compiler):
    """A build folder whose library is stub_library.c."""
    folder = tmp_path_factory.mktemp("build")
    (folder / "shim").mkdir()
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "shim" / "libcachealloc.so",
                    HERE / "stub_library.c"], check=True)
    return folder


@pytest.fixture
def cli(stub_build):
    """cli(words..., env...) -> CompletedProcess with text."""
    def call(*words, timeout=60, stdin=subprocess.DEVNULL, cwd=None, **env):
        env.setdefault("CACHEALLOC_BUILD", stub_build)
        return subprocess.run([sys.executable, COMMAND, *map(str, words)], env=environment(**env), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=stdin, timeout=timeout, cwd=cwd)
    return call


@pytest.fixture
def script(tmp_path):
    """script(text) -> path of an executable shell script."""
    def make(text, name="program.sh"):
        path = tmp_path / name
        path.write_text("#!/bin/sh\n" + text + "\n")
        path.chmod(0o755)
        return path
    return make
