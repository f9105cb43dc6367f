# SPDX-License-Identifier: MIT
"""shim/bind/cuda_names.def and the simulated driver's prototypes and layouts against the newest headers that they follow."""

import re
import subprocess
import sys

import pytest

from abi_source import ROOT, write_standins
from toolkit import roots, version_of

TABLE = 13050  # cuda_names.def and the simulator are of this version of cuda.h
GENERATOR = ROOT / "tests" / "abi" / "gen_cuda_names.py"

LAYOUTS = {
    "CUlaunchConfig": ["gridDimX", "sharedMemBytes", "hStream", "attrs", "numAttrs"],
    "CUlaunchAttribute": ["id", "value"],
    "CUDA_GRAPH_INSTANTIATE_PARAMS": ["flags", "hUploadStream", "hErrNode_out", "result_out"],
    "CUstreamBatchMemOpParams": ["operation", "waitValue.address", "waitValue.value64", "waitValue.flags",
                                 "writeValue.value", "writeValue.flags", "memoryBarrier.flags"],
    "CUDA_KERNEL_NODE_PARAMS": ["func", "gridDimX", "sharedMemBytes", "kernelParams", "extra", "kern", "ctx"],
    "CUDA_MEMSET_NODE_PARAMS": ["dst", "pitch", "value", "elementSize", "width", "height"],
    "CUDA_HOST_NODE_PARAMS": ["fn", "userData"],
    "CUDA_MEMCPY3D": ["srcMemoryType", "srcHost", "srcDevice", "dstXInBytes", "dstMemoryType", "dstHost", "dstDevice",
                      "WidthInBytes", "Height", "Depth"],
    "CUDA_MEMCPY2D": ["srcMemoryType", "srcHost", "srcDevice", "srcArray", "srcPitch", "dstXInBytes", "dstMemoryType",
                      "dstHost", "dstDevice", "dstArray", "dstPitch", "WidthInBytes", "Height"],
    "CUDA_MEMCPY3D_PEER": ["srcMemoryType", "srcArray", "srcContext", "srcPitch", "dstMemoryType", "dstArray",
                           "dstContext", "dstPitch", "WidthInBytes", "Depth"],
    "CUmemcpyAttributes": ["srcAccessOrder", "srcLocHint", "dstLocHint", "flags"],
    "CUDA_MEMCPY3D_BATCH_OP": ["src.type", "src.op.ptr.ptr", "src.op.ptr.rowLength", "src.op.ptr.layerHeight",
                               "src.op.array.array", "src.op.array.offset.z", "dst", "extent.depth", "srcAccessOrder",
                               "flags"],
    "CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC": ["type", "handle.fd", "flags"],
    "CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS": ["params.fence.value", "flags"],
    "CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS": ["params.fence.value", "flags"],
    "CUgraphExecUpdateResultInfo": ["result", "errorNode", "errorFromNode"],
    "CUuuid": ["bytes"],
    "CUmemPoolProps": ["allocType", "handleTypes", "location", "maxSize", "usage", "gpuDirectRDMACapable", "reserved"],
    "CUmemAccessDesc": ["location", "flags"],
    "CUmemAllocationProp": ["type", "requestedHandleTypes", "location", "win32HandleMetaData", "allocFlags"],
    "CUmemPoolPtrExportData": ["reserved"],
    "CUDA_MEM_ALLOC_NODE_PARAMS": ["poolProps", "accessDescs", "accessDescCount", "bytesize", "dptr"],
    "CUipcMemHandle": ["reserved"],
}


@pytest.fixture(scope="module")
def cuda():
    for root in roots():
        if version_of(root / "include") == TABLE:
            return root
    pytest.skip(f"no headers of {TABLE} (scripts/setup.sh fetches them into build-headers)")
    return None


def compile_errors(cuda, source, standins):
    write_standins(standins)
    done = subprocess.run(["cc", "-std=gnu11", "-w", "-fsyntax-only", "-x", "c", f"-I{ROOT}", f"-I{standins}",
                           f"-I{cuda / 'include'}", "-"], input=source, text=True, stderr=subprocess.PIPE)
    return "\n".join(line for line in done.stderr.splitlines() if "error" in line)


def generator(cuda, mode):
    done = subprocess.run([sys.executable, GENERATOR, mode, "--cuda", cuda], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def test_names_are_those_of_the_toolkit(cuda):
    assert generator(cuda, "--check") == (0, "shim/bind/cuda_names.def is up to date\n")


def test_symbols_have_the_types_of_their_versions(cuda):
    rc, text = generator(cuda, "--verify")
    assert rc == 0, text
    assert int(text.split()[0]) > 500


def prototypes_source():
    """Each row of entries.def against the headers' declaration of the same symbol."""
    rows = re.sub(r"/\*.*?\*/", "", (ROOT / "tests" / "sim" / "entries.def").read_text(), flags=re.S)
    return ("#define __CUDA_API_VERSION_INTERNAL 1\n#include <cuda.h>\n#include <cudaGL.h>\n"
            "#define SIM_ENTRY(symbol, body, flavour, when, params, args) _Static_assert("
            "__builtin_types_compatible_p(__typeof__(symbol), CUresult params), \"entry: \" #symbol);\n" + rows)


def test_prototypes(cuda, tmp_path):
    assert compile_errors(cuda, prototypes_source(), tmp_path) == ""


def test_a_wrong_prototype_is_noticed(cuda, tmp_path):
    source = prototypes_source().replace("(CUdeviceptr *dptr, size_t bytesize)", "(CUdeviceptr *dptr, unsigned bytesize)")
    assert "entry: cuMemAlloc_v2" in compile_errors(cuda, source, tmp_path)


def constants(include):
    """The numbers that a program sees when it includes one of the two headers."""
    source = f"#include <stdio.h>\n#include <stddef.h>\n#include {include}\nint main(void) {{\n"
    for struct, fields in LAYOUTS.items():
        source += f'printf("{struct} %zu\\n", sizeof({struct}));\n'
        source += "".join(f'printf("{struct}.{f} %zu\\n", offsetof({struct}, {f}));\n' for f in fields)
    abi = (ROOT / "tests" / "sim" / "abi.h").read_text()
    source += "".join(f'printf("{n} %lld\\n", (long long){n});\n' for n in re.findall(r"\b(CU\w+) =", abi))
    return source + "return 0; }\n"


def test_layouts_and_values(cuda, tmp_path):
    seen = []
    for name, include in (("ours", '"tests/sim/abi.h"'), ("theirs", "<cuda.h>")):
        source, program = tmp_path / f"{name}.c", tmp_path / name
        source.write_text(constants(include))
        subprocess.run(["cc", "-w", f"-I{ROOT}", f"-I{cuda / 'include'}", "-o", program, source], check=True)
        seen.append(subprocess.run([program], check=True, text=True, stdout=subprocess.PIPE).stdout.splitlines())
    assert seen[0] == seen[1] and len(seen[0]) > 40


def test_errors_and_attributes(cuda):
    """Every code and device attribute of cuda.h, and no other."""
    text = re.sub(r"/\*.*?\*/", "", (cuda / "include" / "cuda.h").read_text(), flags=re.S)
    sim = ROOT / "tests" / "sim"
    codes = re.search(r"enum cudaError_enum \{(.*?)\}", text, re.S)[1]
    ours = re.findall(r"SIM_ERROR\((\w+), (\d+),", (sim / "errors.def").read_text())
    assert ours == re.findall(r"(CUDA_\w+)\s*=\s*(\d+)", codes)
    numbers = re.search(r"enum CUdevice_attribute_enum \{(.*?)\}", text, re.S)[1]
    theirs = {int(n) for n in re.findall(r"CU_DEVICE_ATTRIBUTE_\w+\s*=\s*(\d+)", numbers)} - {33}
    assert {int(n) for n in re.findall(r"SIM_ATTRIBUTE\((\d+),", (sim / "attributes.def").read_text())} == theirs
