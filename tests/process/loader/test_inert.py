# SPDX-License-Identifier: MIT
"""Programs that know nothing of CUDA: the preload is inherited by every child, and nobody may notice."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from conftest import LIBRARY, clean_env, run

PROGRAMS = {
    "true": ["true"],
    "bash": ["bash", "-c", "echo out; echo err >&2; (exit 4) | cat; exit 3"],
    "python": [sys.executable, "-c", "pass"],
    "ctypes": [sys.executable, "-c", "import ctypes; print(ctypes.CDLL(None).getpid() > 0)"],
    "git": ["git", "--version"],
    "gcc": ["gcc", "-xc", "-fsyntax-only", os.devnull],
    "failing gcc": ["gcc", "-no-such-option"],
    "missing": ["ls", "/no/such/file"],
}


def available(argv):
    if not shutil.which(argv[0]):
        pytest.skip(f"no {argv[0]} here")
    return argv


def same(argv, **kwargs):
    plain, loaded = run(argv, preload=False, **kwargs), run(argv, **kwargs)
    assert (loaded.returncode, loaded.stdout, loaded.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    return loaded


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_output_and_status(name):
    same(available(PROGRAMS[name]))


def test_compiles(tmp_path):
    (tmp_path / "hello.c").write_text('#include <stdio.h>\nint main(void) { puts("hello"); return 7; }\n')
    same(available(["gcc", "-o", tmp_path / "hello", tmp_path / "hello.c"]))
    assert same([tmp_path / "hello"]).returncode == 7


def test_signal_status():
    assert same(available(["bash", "-c", "kill -TERM $$"])).returncode == -15


def compiled(tmp_path, *options):
    source = tmp_path / "id.c"
    source.write_text('#include <stdio.h>\n#include <unistd.h>\n'
                      'int main(void) { printf("%d %d\\n", (int)getuid(), (int)geteuid()); return 5; }\n')
    subprocess.run(available(["gcc", "-o", str(tmp_path / "id"), str(source), *options]), check=True)
    return tmp_path / "id"


def test_static_program(tmp_path):
    assert same([compiled(tmp_path, "-static")]).returncode == 5


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a set-uid program for another user to run")
def test_set_uid_program():
    available(["setpriv"])
    # The library must be where the other user can read it, or its being ignored would prove nothing: neither below
    # root's home nor below pytest's own folder, which any pytest that starts closes to others.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        program, library = compiled(folder), Path(shutil.copy(LIBRARY, folder))
        program.chmod(0o4755)
        library.chmod(0o755)
        argv = ["setpriv", "--reuid=65534", "--clear-groups", "sh", "-c", f"exec {program}"]
        plain, loaded = run(argv, preload=False), run(argv, preload=False, LD_PRELOAD=library)
    if plain.stdout != "65534 0\n":
        pytest.skip(f"set-uid bits have no effect here: {plain.stdout!r}")
    assert (loaded.returncode, loaded.stdout, loaded.stderr) == (5, plain.stdout, "")


def traced(argv, tmp_path, preload):
    """Files opened and threads or processes made, by every process of argv."""
    log = tmp_path / "strace"
    options = ["-E", f"LD_PRELOAD={LIBRARY}"] if preload else []
    done = subprocess.run(["strace", "-f", "-qq", "-o", str(log), "-e", "trace=open,openat,clone,clone3,fork,vfork",
                           "-e", "signal=none", *options, *argv], env=clean_env(), stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True, timeout=60)
    if "ptrace" in done.stderr:
        pytest.skip("strace may not trace here: " + done.stderr.splitlines()[0])
    text = log.read_text()
    opened = re.findall(r'open(?:at)?\((?:AT_FDCWD, )?"([^"]*)"', text)
    made = re.findall(r"\b(clone3?|v?fork)\(", text)
    return opened, len(made), len(re.findall(r"CLONE_THREAD", text))


@pytest.mark.skipif("CACHEALLOC_TEST_PRELOAD_FIRST" in os.environ, reason="a sanitizer opens files of its own")
@pytest.mark.parametrize("name", ["true", "bash", "python", "git"])
def test_opens_nothing_and_starts_nothing(name, tmp_path):
    available(["strace"])
    argv = available(PROGRAMS[name])
    opened, made, threads = traced(argv, tmp_path, preload=False)
    opened_with, made_with, threads_with = traced(argv, tmp_path, preload=True)
    assert str(LIBRARY) in opened_with
    rest = [path for path in opened_with if path != str(LIBRARY)]
    assert sorted(rest) == sorted(opened)
    assert (made_with, threads_with) == (made, threads)
