# SPDX-License-Identifier: MIT
"""NVIDIA's own runtime, shared and static, as nvcc links it: is our cuMemAlloc what it gets?

Without a GPU the real runtime gives up: on the toolkit's stub because every call fails, on the simulator because
that one does not imitate what is private between runtime and driver. Before it gives up it looks its driver up.
"""

import os
import re
import shutil
from pathlib import Path

import pytest

from conftest import SIM, run

SOURCE = r"""
#include <stdio.h>
#include <cuda_runtime_api.h>
int main(void)
{
	void *p = 0;
	cudaError_t e = cudaMalloc(&p, 1 << 20);

	printf("%d %s\n", (int)e, cudaGetErrorName(e));
	return 0;
}
"""


def toolkit():
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not Path(nvcc).exists():
        pytest.skip("no CUDA toolkit here (nvcc): the real runtime is not tested")
    return Path(nvcc).resolve()


@pytest.fixture(scope="module", params=["shared", "static"])
def program(request, tmp_path_factory):
    if "CACHEALLOC_TEST_PRELOAD_FIRST" in os.environ:
        pytest.skip("nvcc does not run below a sanitizer's preload")
    if "CACHEALLOC_TEST_EMULATOR" in os.environ:
        pytest.skip("the toolkit is this machine's, the library is not")
    nvcc = toolkit()
    folder = tmp_path_factory.mktemp("cudart")
    (folder / "program.cu").write_text(SOURCE)
    run([nvcc, "-cudart", request.param, "-o", folder / "program", folder / "program.cu"], preload=False,
        timeout=300, check=0)
    return folder / "program"


def driver(kind, tmp_path):
    """A folder with a libcuda.so.1."""
    if kind == "simulator":
        if not (SIM / "libcuda.so.1").exists():
            pytest.skip("the simulator is not built")
        return SIM
    stub = next(toolkit().parent.parent.glob("**/stubs/libcuda.so"), None)
    if not stub:
        pytest.skip("this toolkit has no stub of libcuda")
    shutil.copy(stub, tmp_path / "libcuda.so.1")
    return tmp_path


def run_on(program, folder, **kwargs):
    toolkit_lib = toolkit().parent.parent / "lib64"
    # the toolkit first: beside the simulator lies the stand-in runtime of the same name
    return run([program], LD_LIBRARY_PATH=f"{toolkit_lib}:{folder}", timeout=120, **kwargs)


@pytest.mark.parametrize("kind", ["stub", "simulator"])
def test_the_runtime_gets_ours(program, kind, tmp_path):
    folder = driver(kind, tmp_path)
    plain = run_on(program, folder, preload=False)
    quiet = run_on(program, folder)
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (plain.returncode, plain.stdout, plain.stderr)

    done = run_on(program, folder, CACHEALLOC_LOG="debug")
    assert (done.returncode, done.stdout) == (plain.returncode, plain.stdout)
    asked = dict(re.findall(r"debug: asked for (\w+) by (?:dlsym|cuGetProcAddress): (.*)", done.stderr))
    for name in ("cuMemAlloc", "cuMemFree", "cuMemGetInfo"):
        assert asked.get(name, asked.get(name + "_v2")) == "ours", sorted(asked)
    # a runtime of the table's own time knows nothing that the table does not
    assert "counted" not in asked.values()
