# SPDX-License-Identifier: MIT
"""shim/cuda_abi.h and shim/hooks.def against the cuda.h and libcuda of an installed toolkit."""

import re
import subprocess

import pytest

from abi_source import ABI, HOOKS, hook_rows, prototypes_source, values_source
from toolkit import Toolkit, find_toolkit


@pytest.fixture(scope="module")
def toolkit():
    root = find_toolkit()
    if not root:
        pytest.skip("no CUDA toolkit (looked at $CUDA_HOME, nvcc on PATH, /usr/local/cuda)")
    return Toolkit(root)


def supported(toolkit, rows):
    return [row for row in rows if row[3] <= toolkit.version]


def test_types_and_values(toolkit):
    assert toolkit.errors(values_source()) == ""


def test_prototypes(toolkit):
    rows = supported(toolkit, hook_rows())
    assert len(rows) >= 40, "hooks.def was not read"
    assert toolkit.errors(prototypes_source(rows)) == ""


def test_every_row_is_known_to_this_toolkit(toolkit):
    newer = [row[1] for row in hook_rows() if row[3] > toolkit.version]
    if newer:
        pytest.skip(f"toolkit {toolkit.version} is older than {', '.join(newer)}")


def test_symbols_exist_in_libcuda(toolkit):
    stubs = sorted(toolkit.root.glob("**/stubs/libcuda.so"))
    if not stubs:
        pytest.skip(f"no stub libcuda.so under {toolkit.root}")
    names = subprocess.run(["nm", "-D", "--defined-only", stubs[0]], text=True, check=True,
                           stdout=subprocess.PIPE).stdout
    exported = set(re.findall(r" T (\w+)", names))
    missing = [row[1] for row in supported(toolkit, hook_rows()) if row[1] not in exported]
    assert missing == []


# The checks themselves, seen to fail: (file's text before, after, what the compiler must name)
PLANTED_VALUES = [
    ("CUDA_ERROR_OUT_OF_MEMORY = 2,", "CUDA_ERROR_OUT_OF_MEMORY = 3,", "value: CUDA_ERROR_OUT_OF_MEMORY"),
    ("typedef unsigned long long CUdeviceptr;", "typedef unsigned int CUdeviceptr;", "type: CUdeviceptr"),
    ("CU_IPC_HANDLE_SIZE = 64", "CU_IPC_HANDLE_SIZE = 32", "size: CUipcMemHandle"),
    ("((CUstream)0x2)", "((CUstream)0x3)", "value: CU_STREAM_PER_THREAD"),
    ("typedef struct CUevent_st *CUevent;", "typedef struct CUstream_st *CUevent;", "type: CUevent"),
]
PLANTED_ROWS = [
    ("(CUdeviceptr *dptr, size_t bytesize)", "(CUdeviceptr *dptr, unsigned bytesize)", "prototype: cuMemAlloc_v2"),
    ("CA_HOOK(cuMemFree_v2, cuMemFree, 3020", "CA_HOOK(cuMemFree_v2, cuMemFree, 4020", "PFN_cuMemFree_v4020"),
    ("CA_NEED(cuCtxGetDevice, cuCtxGetDevice,", "CA_NEED(cuCtxGetDevice, cuCtxDevice,", "PFN_cuCtxDevice"),
]


@pytest.mark.parametrize("before, after, named", PLANTED_VALUES)
def test_a_wrong_value_is_found(toolkit, tmp_path, before, after, named):
    text = ABI.read_text()
    assert text.count(before) == 1
    planted = tmp_path / "cuda_abi.h"
    planted.write_text(text.replace(before, after))
    assert named in toolkit.errors(values_source(planted))


@pytest.mark.parametrize("before, after, named", PLANTED_ROWS)
def test_a_wrong_prototype_is_found(toolkit, tmp_path, before, after, named):
    text = HOOKS.read_text()
    assert text.count(before) == 1
    planted = tmp_path / "hooks.def"
    planted.write_text(text.replace(before, after))
    assert named in toolkit.errors(prototypes_source(supported(toolkit, hook_rows(planted))))
