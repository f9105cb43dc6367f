# SPDX-License-Identifier: MIT
"""A newcomer's way through README and the pages in docs: with CACHEALLOC_TEST_LONG=1 every command that needs nothing special runs
as it stands, from top to bottom, in a fresh clone in a fresh Debian system. docs/install.md has a system of its own: test_packaging.py. In the ordinary run test_examples.py does the same without
that system, and runs what is tagged with stand-ins."""

import os

import pytest

from clean_root import succeed, system  # noqa: F401
from conftest import ROOT
from pages import PAGES, README, commands, stand_ins

#: this suite itself
NOT_RUN = ("scripts/test.sh",)
FOLDER = "/src/cachealloc"
#: made by the README's first commands; ./app is one of the tests' programs
PROGRAM = f"{FOLDER}/build/tests/process/shim/cases_shim"
VARIABLES = f"export PATH={FOLDER}/scripts:$PATH LD_LIBRARY_PATH={FOLDER}/build/tests/sim"


def test_the_readme_begins_with_two_commands_and_a_build():
    assert [line.split()[0] for line in commands(README)[:4]] == ["scripts/demo.sh", "scripts/test.sh", "meson", "LD_PRELOAD=$PWD/build/shim/libcachealloc.so"]


def test_the_demo_needs_no_library_of_the_tests(tmp_path):
    """scripts/demo.sh installs a compiler and Meson (PACKAGES_DEMO), not what only tests are built with."""
    hidden = tmp_path / "hidden.ini"
    hidden.write_text("[binaries]\ncmake = '/bin/false'\n")
    build = tmp_path / "build"
    said = succeed(["meson", "setup", "--native-file", ROOT / "scripts" / "build-dev.ini", "--native-file", hidden, ROOT, build],
                   PKG_CONFIG_LIBDIR=tmp_path)
    assert "cmocka found: NO" in said
    succeed(["ninja", "-C", build, "-n", "demo"])


@pytest.mark.skipif("CACHEALLOC_TEST_LONG" not in os.environ, reason="a system is fetched, and the tree built: CACHEALLOC_TEST_LONG=1")
def test_every_command_works_in_a_fresh_system(system):  # noqa: F811
    run, root = system
    folder = root / FOLDER[1:]
    succeed(["git", "clone", "-q", ROOT, folder])

    def record(**variables):
        words = " ".join(f"{name}={value}" for name, value in variables.items())
        run(f"{VARIABLES}; LD_PRELOAD={FOLDER}/build/shim/libcachealloc.so {words} ./app", FOLDER)

    ready = False
    for page in PAGES:
        if page.stem == "install":
            continue
        for line in commands(page):
            if line in NOT_RUN:
                continue
            if not ready and "./app" in line:
                stand_ins(folder, PROGRAM, record)
                (folder / "your.so").symlink_to(f"{FOLDER}/build/shim/libcachealloc.so")
                ready = True
            print(page.stem, line, flush=True)
            if "--watch" in line:  # it goes on until it is interrupted
                line = f"timeout 3 {line} || test $? = 124"
            said = run(f"{VARIABLES}; {line}" if ready else line, FOLDER)
            assert "cannot be preloaded" not in said, said  # which the loader says, and goes on
            if line == "scripts/demo.sh":
                assert " times faster than A " in said, said
    assert ready
