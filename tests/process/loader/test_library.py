# SPDX-License-Identifier: MIT
"""The library as a file: what it exports, what it needs, what it may not contain.

Each check has a history: a NEEDED libcuda makes every child of a preloaded shell fail to start; a versioned dlsym
interposes nothing; an export that nobody asked for shadows somebody else's; a constructor runs in every process.
"""

import os
import re
import subprocess

import pytest

from conftest import LIBRARY, ROOT

pytestmark = pytest.mark.loader

plain_only = pytest.mark.skipif("CACHEALLOC_TEST_PRELOAD_FIRST" in os.environ, reason="a sanitizer adds its own")


def readelf(*options):
    return subprocess.run(["readelf", "-W", *options, str(LIBRARY)], check=True, stdout=subprocess.PIPE,
                          text=True, env={**os.environ, "LC_ALL": "C"}).stdout


def hooked():
    rows = "".join((ROOT / "shim" / "bind" / name).read_text() for name in ("hooks.def", "submit.def"))
    names = set(re.findall(r"^CA_(?!NEED)\w+\((\w+),", rows, re.M))
    return names | {"".join(twin) for twin in re.findall(r"^CA_\w+_TWINS\((\w+), (\w+),", rows, re.M)}


def symbols():
    """(name with version, defined) of every dynamic symbol that is not local."""
    for line in readelf("--dyn-syms").splitlines():
        columns = line.split()
        if len(columns) >= 8 and columns[4] in ("GLOBAL", "WEAK"):
            yield columns[7], columns[6] != "UND"


def test_exports_are_the_table():
    exports = {name for name, defined in symbols() if defined}
    assert len(hooked()) > 30
    ours = {name for name in exports if name.startswith("cachealloc_")}
    assert exports - ours == hooked() | {"dlsym", "dlvsym"}


def test_exports_have_no_version():
    assert "Version definition" not in readelf("--version-info")


@plain_only
def test_needs_libc_alone():
    dynamic = readelf("--dynamic")
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
    # the dynamic linker itself is in every process
    assert {n for n in needed if not n.startswith("ld-linux-")} == {"libc.so.6"}
    assert re.search(r"\(SONAME\).*\[libcachealloc\.so\.0\]", dynamic)
    assert re.search(r"FLAGS_1\).*\bNOW\b.*\bNODELETE\b", dynamic)
    assert not re.search(r"\(TEXTREL\)|\(RPATH\)|\(RUNPATH\)", dynamic)


@plain_only
def test_no_glibc_newer_than_2_28():
    newer = [name for name, defined in symbols() if not defined
             for v in re.findall(r"@GLIBC_2\.(\d+)", name) if int(v) > 28]
    assert newer == []


# What libc.so.6 itself had of libpthread and libdl before they became one with it (glibc 2.34).
THREADS_IN_OLD_LIBC = set("""
pthread_attr_destroy pthread_attr_init pthread_cond_broadcast pthread_cond_destroy pthread_cond_init
pthread_cond_signal pthread_cond_timedwait pthread_cond_wait pthread_condattr_destroy pthread_condattr_init
pthread_equal pthread_exit pthread_getschedparam pthread_mutex_destroy pthread_mutex_init pthread_mutex_lock
pthread_mutex_unlock pthread_self pthread_setcancelstate pthread_setcanceltype pthread_setschedparam
""".split())


@plain_only
def test_nothing_that_old_libc_has_elsewhere():
    names = {name.split("@")[0] for name, defined in symbols() if not defined}
    elsewhere = {n for n in names if n.startswith(("pthread_", "sem_", "dl")) and n != "dl_iterate_phdr"}
    assert elsewhere - THREADS_IN_OLD_LIBC == set()


@plain_only
def test_two_constructors():
    # beside the compiler's own frame_dummy: shim/framework/take_over.c, which looks for one variable, and
    # shim/bind/variables.c, which looks at the program's references
    sizes = re.findall(r"\(INIT_ARRAYSZ\)\s+(\d+)", readelf("--dynamic"))
    assert sizes in (["16"], ["24"])


def test_own_calls_stay_ours():
    """No relocation names an export: another preload cannot get between two functions of ours."""
    named = set(re.findall(r"\b(cu[A-Z]\w*|dlv?sym|cachealloc_\w+)(?:@\S+)? \+ ", readelf("--relocs")))
    assert named == set()


def test_stack_and_relocations():
    headers = readelf("--program-headers")
    assert re.search(r"GNU_STACK.* RW ", headers) and "GNU_RELRO" in headers
    assert not re.search(r"LOAD.* RWE ", headers)
