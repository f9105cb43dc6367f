# SPDX-License-Identifier: MIT
"""Processes whose loader has only a small reserve of thread-local memory for us: with an auditor, and opened late."""

import subprocess

import pytest

from conftest import BUILD, LIBRARY, run
from loader_fixtures import CC, EMULATED

pytestmark = pytest.mark.skipif(EMULATED, reason="the emulator takes LD_AUDIT for itself")

AUDITOR = "unsigned la_version(unsigned version) { return version; }\n"
# What the loader keeps for libraries that it did not count (glibc 2.28 to 2.41) is 1664 bytes, libc's own share included
LATE = """
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
static void *work(void *library)
{
	const char *(*version)(void) = (const char *(*)(void))dlsym(library, "cachealloc_version");
	unsigned long long (*alloc)(void **, unsigned long) = 0;
	*(void **)&alloc = dlsym(library, "cuMemAlloc_v2");
	if (!version || !alloc)
		return 0;
	return (void *)version();
}
int main(int argc, char **argv)
{
	pthread_t thread;
	void *answer, *library = dlopen(argv[1], RTLD_NOW);
	if (!library)
		return puts(dlerror()), 1;
	if (pthread_create(&thread, 0, work, library) || pthread_join(thread, &answer) || !answer)
		return 2;
	puts((const char *)answer);
	return 0;
}
"""


def compiled(folder, name, text, *options):
    (folder / f"{name}.c").write_text(text)
    subprocess.run([CC, "-fPIC", "-w", "-o", folder / name, folder / f"{name}.c", *options, "-ldl", "-pthread"], check=True)
    return folder / name


@pytest.fixture(scope="module")
def auditor(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("auditor"), "audit.so", AUDITOR, "-shared")


@pytest.mark.parametrize("argv", [["/bin/true"], ["/bin/sh", "-c", "echo $0"],
                                  ["/usr/bin/python3", "-c", "import ctypes, ssl, sqlite3; print(1)"]],
                         ids=["true", "sh", "python"])
def test_a_program_under_an_auditor(auditor, argv):
    plain, loaded = (run(argv, preload=preload, LD_AUDIT=auditor) for preload in (False, True))
    assert (loaded.returncode, loaded.stdout, loaded.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    assert plain.returncode == 0


@pytest.mark.parametrize("road", ["road_direct", "road_dlsym", "road_proc_v2", "road_runtime_shared"])
def test_a_program_with_cuda_under_an_auditor(build, auditor, road):
    argv = [BUILD / "tests/process/programs" / f"{road}-O2", 200]
    plain = run(argv, preload=False, LD_AUDIT=auditor, check=0)
    loaded = run(argv, LD_AUDIT=auditor, CACHEALLOC_STATS="1", check=0)
    assert loaded.stdout == plain.stdout and "cache" in loaded.stderr


def test_opened_late(tmp_path):
    done = run([compiled(tmp_path, "late", LATE), LIBRARY], preload=False)
    assert done.returncode == 0 and done.stdout.strip(), (done.stdout, done.stderr)
