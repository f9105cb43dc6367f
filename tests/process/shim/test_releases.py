# SPDX-License-Identifier: MIT
"""A usage of a context that is given back while another one is left waits for no other thread."""

import pytest

from conftest import BUILD, run

PROGRAM = BUILD / "tests" / "process" / "shim" / "release_beside_wait"


@pytest.mark.parametrize("preload", [False, True], ids=["natively", "library"])
@pytest.mark.parametrize("road", ["release", "detach"])
def test_it_ends(road, preload):
    done = run([PROGRAM, road], preload=preload, timeout=20, SIMCUDA_MEM="1G")
    assert (done.returncode, done.stderr) == (0, ""), (done.returncode, done.stdout, done.stderr)
