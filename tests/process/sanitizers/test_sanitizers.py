# SPDX-License-Identifier: MIT
"""The plain library under programs that were built with a sanitizer: they run as without it, and nothing is reported.

A sanitizer's runtime puts functions of its own under libc's names. Some call through pointers that it fills by dlsym,
which is ours; some look at whether this code, which is not instrumented, wrote what they are given.
"""

import os
import shutil
import subprocess

import pytest

from conftest import LIBRARY, ROOT, SIM, run

pytestmark = pytest.mark.skipif("CACHEALLOC_TEST_PRELOAD_FIRST" in os.environ, reason="the plain library's matter")

QUICK_EVERY = 4  # conftest.py
EMPTY = "int main(void) { return 0; }\n"
# (compiler, options); MSan is clang's alone. A static runtime is the program's own, a shared one comes after ours.
BUILDS = {
    "gcc thread": ("gcc", ["-fsanitize=thread"]),
    "gcc thread static": ("gcc", ["-fsanitize=thread", "-static-libtsan"]),
    "gcc address": ("gcc", ["-fsanitize=address"]),
    "gcc address static": ("gcc", ["-fsanitize=address", "-static-libasan"]),
    "gcc undefined": ("gcc", ["-fsanitize=undefined", "-fno-sanitize-recover=all"]),
    "gcc leak": ("gcc", ["-fsanitize=leak"]),
    "clang thread": ("clang", ["-fsanitize=thread"]),
    "clang memory": ("clang", ["-fsanitize=memory"]),
    "clang memory origins": ("clang", ["-fsanitize=memory", "-fsanitize-memory-track-origins=2"]),
    "clang address": ("clang", ["-fsanitize=address"]),
    "clang address shared": ("clang", ["-fsanitize=address", "-shared-libsan"]),
    "clang undefined": ("clang", ["-fsanitize=undefined", "-fno-sanitize-recover=all"]),
    "clang leak": ("clang", ["-fsanitize=leak"]),
}
OPTIONS = {
    # Natively too, a shared runtime stops at any preload in front of it unless told not to look.
    "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0:exitcode=66",
    "TSAN_OPTIONS": "halt_on_error=0:exitcode=66:second_deadlock_stack=1:atexit_sleep_ms=50",
    "MSAN_OPTIONS": "exitcode=66",
    "LSAN_OPTIONS": "detect_leaks=0",
}


def without_randomisation():
    """Older runtimes do not know the widest address-space randomisation of newer kernels."""
    argv = ["setarch", "-R"]
    return argv if shutil.which("setarch") and not subprocess.run([*argv, "true"], stderr=subprocess.DEVNULL).returncode else []


@pytest.fixture(scope="module", params=BUILDS)
def programs(request, tmp_path_factory):
    """(the empty program, the one with CUDA), built with this sanitizer"""
    compiler, options = BUILDS[request.param]
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler}")
    folder = tmp_path_factory.mktemp("sanitized")
    (folder / "empty.c").write_text(EMPTY)
    sources = {"empty": [folder / "empty.c"],
               "app": [ROOT / "tests/process/sanitizers/app.c", f"-I{ROOT}", "-pthread", SIM / "libcuda.so.1"]}
    for name, arguments in sources.items():
        done = subprocess.run([compiler, "-g", "-O1", *options, "-o", folder / name, *arguments], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode and "cannot find" in done.stdout:
            pytest.skip(f"{compiler} has no runtime of this sanitizer: {done.stdout[:300]}")
        assert done.returncode == 0, done.stdout
    (folder / "kind").write_text(request.param)
    return folder


def environment(folder, **extra):
    env = {**OPTIONS, **extra}
    if "shared" in (folder / "kind").read_text():
        where = subprocess.run(["clang", "-print-runtime-dir"], text=True, stdout=subprocess.PIPE).stdout.strip()
        legacy = subprocess.run(["clang", "-print-resource-dir"], text=True, stdout=subprocess.PIPE).stdout.strip()
        env["LD_LIBRARY_PATH"] = f"{SIM}:{where}:{legacy}/lib/linux"
    return env


def same(folder, name, **extra):
    argv = [*without_randomisation(), folder / name]
    env = environment(folder, **extra)
    plain = run(argv, preload=False, **env)
    assert plain.returncode == 0, (plain.stdout, plain.stderr)
    loaded = run(argv, **env)
    assert (loaded.returncode, loaded.stdout, loaded.stderr[:6000]) == (0, plain.stdout, plain.stderr)


def test_a_program_that_does_nothing(programs):
    same(programs, "empty")


def test_a_program_with_cuda(programs):
    same(programs, "app")


def test_a_program_with_cuda_and_everything_that_writes(programs, tmp_path):
    """File patterns, statistics, logs and traces make the library handle text and signals."""
    same(programs, "app", CACHEALLOC_STATS=tmp_path / "stats-%e-%h-%t-%p.json", CACHEALLOC_LOG="debug",
         CACHEALLOC_LOG_FILE=tmp_path / "log-%e", CACHEALLOC_TRACE=tmp_path / "trace-%p-%n",
         CACHEALLOC_CONF="max_split_size_mb:64,garbage_collection_threshold:0.8")
    assert len(list(tmp_path.glob("stats-app-*"))) == 1 and list(tmp_path.glob("trace-*"))


def test_the_library_is_there(programs):
    """A runtime that ignored the preload would make the other tests mean nothing."""
    done = run([*without_randomisation(), programs / "app"], CACHEALLOC_LOG="info", **environment(programs))
    assert LIBRARY.exists() and "cachealloc" in done.stderr
