# SPDX-License-Identifier: MIT
"""A child of fork looks a name up (forked_lookups.c): nothing of ours waits for a lock that another thread of the parent had."""

import os

import pytest

from conftest import SIM, run
from loader_fixtures import compile_c


@pytest.mark.skipif("CACHEALLOC_TEST_SANITIZER" in os.environ, reason="a child has the sanitizer's locks as other threads held them")
@pytest.mark.parametrize("words", [[], ["driver"]], ids=["plain", "driver"])
@pytest.mark.parametrize("preload", [False, True], ids=["native", "library"])
def test_dlsym_returns_in_a_forked_child(tmp_path, preload, words):
    program = tmp_path / "forked_lookups"
    compile_c(program, "forked_lookups.c", "-pthread")
    done = run([program, *words], preload=preload, timeout=100, LD_LIBRARY_PATH=SIM)
    assert done.returncode == 0, done.stdout + done.stderr
