# SPDX-License-Identifier: MIT
"""shim/bind/cuda_abi.h and shim/bind/hooks.def against each cuda.h that is here, and the libcuda of an installed toolkit."""

import re
import subprocess

import pytest

from abi_source import (ABI, GRAPHICS, HOOKS, SUBMIT, graphics_source, hook_rows, prototypes_source, values_source,
                        write_standins)
from toolkit import Toolkit, find_toolkit, roots, version_of

ALL = roots()


def loaded(root):
    if not root:
        pytest.skip("no CUDA headers (build-headers of scripts/setup.sh, $CUDA_HOME, nvcc on PATH, /usr/local/cuda)")
    return Toolkit(root)


@pytest.fixture(scope="module")
def toolkit():
    """The newest."""
    return loaded(ALL[-1] if ALL else None)


@pytest.fixture(scope="module", params=ALL or [None], ids=[str(version_of(root / "include")) for root in ALL] or ["none"])
def each(request):
    return loaded(request.param)


def supported(toolkit, rows):
    return [row for row in rows if row[3] <= toolkit.version]


def test_types_and_values(each):
    """Older headers lack names, but what they have is the same."""
    words = None if each.root == ALL[-1] else {*re.findall(r"\w+", (each.include / "cuda.h").read_text(errors="replace"))}
    assert each.errors(values_source(words=words)) == ""


def test_prototypes(each, tmp_path):
    """Of the rows up to this version; some types came to the headers later than their number says."""
    text = "".join(path.read_text(errors="replace") for path in each.include.glob("cuda*Typedefs.h"))
    rows = [row for row in supported(each, hook_rows()) if re.search(rf"\bPFN_{row[2]}_v{row[3]}\w*\)", text)]
    assert len(rows) >= 200, "hooks.def or submit.def was not read"
    write_standins(tmp_path)
    assert each.errors(prototypes_source(rows), tmp_path) == ""


def test_graphics_types(toolkit, tmp_path):
    write_standins(tmp_path)
    assert toolkit.errors(graphics_source(), tmp_path) == ""


def test_a_wrong_frame_is_found(toolkit, tmp_path):
    write_standins(tmp_path)
    text = GRAPHICS.read_text()
    planted = tmp_path / "graphics_abi.h"
    planted.write_text(text.replace("pArray[3]", "pArray[2]").replace("pPitch[3]", "pPitch[2]"))
    assert "size: CUeglFrame" in toolkit.errors(graphics_source(planted), tmp_path)


def test_every_row_is_known_to_the_newest(toolkit):
    newer = [row[1] for row in hook_rows() if row[3] > toolkit.version]
    if newer:
        pytest.skip(f"toolkit {toolkit.version} is older than {', '.join(newer)}")


def test_symbols_exist_in_libcuda():
    root = find_toolkit()
    stubs = sorted(root.glob("**/stubs/libcuda.so")) if root else []
    if not stubs:
        pytest.skip("no installed toolkit with a stub libcuda.so")
    toolkit = Toolkit(root)
    names = subprocess.run(["nm", "-D", "--defined-only", stubs[0]], text=True, check=True,
                           stdout=subprocess.PIPE).stdout
    exported = set(re.findall(r" T (\w+)", names))
    # the stub leaves the graphics entry points out; the driver has them
    missing = [row[1] for row in supported(toolkit, hook_rows())
               if row[1] not in exported and not re.match("cu(GL|EGL|VDPAU)", row[1])]
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
PLANTED_SUBMITS = [
    ("(dst, src, ByteCount), NULL, RANGES", "(dst, src, ByteCount), NULL, RANGE", None),  # not the prototype's matter
    ("CA_SUBMIT_TWINS(cuMemcpy, _ptds, cuMemcpy, 4000, 7000", "CA_SUBMIT_TWINS(cuMemcpy, _ptds, cuMemcpy, 4000, 7010",
     "PFN_cuMemcpy_v7010_ptds"),
    ("CA_SUBMIT_TWINS(cuMemcpy, _ptds,", "CA_SUBMIT_TWINS(cuMemcpy, _ptsz,", "PFN_cuMemcpy_v7000_ptsz"),
    ("(CUstream hStream, CUhostFn fn, void *userData)", "(CUstream hStream, CUhostFn fn, int userData)",
     "prototype: cuLaunchHostFunc_ptsz"),
    ("(CUeglStreamConnection *conn, CUeglFrame eglframe,", "(CUeglStreamConnection *conn, CUeglFrame *eglframe,",
     "prototype: cuEGLStreamProducerPresentFrame"),
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
    write_standins(tmp_path)
    assert named in toolkit.errors(prototypes_source(supported(toolkit, hook_rows(planted))), tmp_path)


@pytest.mark.parametrize("before, after, named", PLANTED_SUBMITS)
def test_a_wrong_row_of_the_submitting_is_found(toolkit, tmp_path, before, after, named):
    text = SUBMIT.read_text()
    assert text.count(before) == 1
    planted = tmp_path / "submit.def"
    planted.write_text(text.replace(before, after))
    write_standins(tmp_path)
    errors = toolkit.errors(prototypes_source(supported(toolkit, hook_rows(submit=planted))), tmp_path)
    assert errors == "" if named is None else named in errors
