# SPDX-License-Identifier: MIT
"""The private driver tables that shim/hook_peer.c takes for the runtime's own, against the runtime of a toolkit."""

import re
from pathlib import Path

import pytest

from toolkit import find_toolkit

ROOT = Path(__file__).resolve().parent.parent.parent


def known_tables():
    text = (ROOT / "shim" / "hook_peer.c").read_text()
    rows = re.search(r"runtime_tables\[\]\[16\] = \{(.*?)\n\};", text, re.S).group(1)
    return [bytes(int(byte, 16) for byte in re.findall("0x([0-9a-f]{2})", row)) for row in re.findall(r"\{(.*?)\}", rows, re.S)]


def runtimes():
    root = find_toolkit()
    if not root:
        pytest.skip("no CUDA toolkit (looked at $CUDA_HOME, nvcc on PATH, /usr/local/cuda)")
    found = [path for name in ("libcudart.so.13", "libcudart.so.12", "libcudart_static.a")
             for path in [root / "lib64" / name] if path.is_file()]
    if not found:
        pytest.skip(f"no libcudart below {root}")
    return found


def test_ids_are_whole_and_different():
    tables = known_tables()
    assert len(tables) == len(set(tables)) == 7
    assert {len(table) for table in tables} == {16}


def test_the_runtime_holds_each_of_them():
    """An id that no runtime asks for would let somebody else's unseen work pass."""
    for runtime in runtimes():
        data = runtime.read_bytes()
        for table in known_tables():
            assert table in data, (runtime, table.hex())
