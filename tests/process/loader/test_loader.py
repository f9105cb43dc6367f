# SPDX-License-Identifier: MIT
"""How a program finds us: dlsym, cuGetProcAddress, direct links, and everybody else who uses them."""

import os

import pytest

from conftest import LIBRARY, run
from loader_fixtures import fixtures  # noqa: F401 (a pytest fixture)

pytestmark = pytest.mark.loader

CASES = ["explicit_handle", "scopes", "chains", "own_dlsym", "getproc", "unknown", "threads", "reopen", "dlerror_kept"]


def probe(fixtures, case, program="probe", path=(), **env):
    if case == "scopes" and "CACHEALLOC_TEST_PRELOAD_FIRST" in os.environ:
        pytest.skip("the sanitizer's own dlopen loses its caller, and with it RUNPATH")
    folders = [fixtures, fixtures / "driver", *path]
    env.setdefault("CACHEALLOC_DISABLE", 1)  # what the hooks do is others' business
    done = run([fixtures / program, case], LD_LIBRARY_PATH=":".join(map(str, folders)), **env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return done


@pytest.mark.parametrize("case", CASES)
def test_opened(fixtures, case):
    probe(fixtures, case)


@pytest.mark.parametrize("case", ["direct", "explicit_handle", "getproc", "unknown", "threads", "chains"])
def test_linked(fixtures, case):
    probe(fixtures, case, program="probe_direct")


def test_names_that_begin_alike(fixtures):
    probe(fixtures, "other_names", path=[fixtures / "siblings"])


def test_no_driver(fixtures):
    probe(fixtures, "no_driver")


@pytest.mark.parametrize("case", ["getproc", "unknown", "threads"])
def test_other_addresses(fixtures, case):
    """cuGetProcAddress answers with addresses that dlsym never gives."""
    probe(fixtures, case, LOADER_ALIAS=1)


@pytest.mark.parametrize("case", ["explicit_handle", "getproc", "threads"])
@pytest.mark.parametrize("program", ["probe", "probe_direct"])
def test_driver_that_looks_up(fixtures, case, program):
    """The driver calls dlsym on itself while it starts and while it is asked."""
    if program == "probe_direct" and os.environ.get("CACHEALLOC_TEST_SANITIZER") == "thread":
        pytest.skip("a linked driver's constructor runs before this sanitizer's runtime is up")
    probe(fixtures, case, program=program, LOADER_REENTER=1)


@pytest.mark.parametrize("case,first", [
    # their dlsym in C loses the caller, with us or without: nothing of scopes is asked behind it
    ("other_preload", "theirs"), ("dlerror_kept", "theirs"),
    ("other_preload", "ours"), ("chains", "ours"), ("scopes", "ours"), ("explicit_handle", "ours"),
    ("getproc", "ours"), ("unknown", "ours"), ("threads", "ours")])
def test_second_preload(fixtures, case, first):
    theirs = fixtures / "libother.so"
    order = [theirs, LIBRARY] if first == "theirs" else [LIBRARY, theirs]
    sanitizer = os.environ.get("CACHEALLOC_TEST_PRELOAD_FIRST")
    probe(fixtures, case, preload=False,
          LD_PRELOAD=":".join(map(str, [sanitizer] * bool(sanitizer) + order)))


@pytest.mark.parametrize("case", ["scopes", "chains", "other_names"])
def test_without_preload(fixtures, case):
    """The cases that say nothing of us hold without us: they test what they should."""
    probe(fixtures, case, preload=False, path=[fixtures / "siblings"])
