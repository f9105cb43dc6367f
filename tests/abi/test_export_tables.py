# SPDX-License-Identifier: MIT
"""The private driver tables that shim/hooks/hook_peer.c takes for the runtime's own, against the runtime of a toolkit."""

import re

import pytest

from abi_source import runtime_tables
from toolkit import FETCHED, find_toolkit


def runtimes():
    """An installed toolkit's, and those that set-up fetched."""
    places = [root / "lib64" for root in [find_toolkit()] if root] + sorted(FETCHED.glob("[0-9]*/lib"))
    found = [path for place in places for path in sorted(place.glob("libcudart*"))
             if re.search(r"\.so\.[0-9.]+$|_static\.a$", path.name)]
    if not found:
        pytest.skip("no CUDA runtime (looked at $CUDA_HOME, nvcc on PATH, /usr/local/cuda, build-headers)")
    return found


def test_ids_are_whole_and_different():
    tables = runtime_tables()
    assert len(tables) == len(set(tables)) == 7
    assert {len(table) for table in tables} == {16}


def test_the_runtime_holds_each_of_them():
    """An id that no runtime asks for would let somebody else's unseen work pass. The last two came with CUDA 12.x."""
    holds = {path: [table in path.read_bytes() for table in runtime_tables()] for path in runtimes()}
    assert all(all(held[:5]) for held in holds.values()), holds
    assert all(map(any, zip(*holds.values()))), holds
