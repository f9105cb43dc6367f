# SPDX-License-Identifier: MIT
"""NVIDIA's own runtime, shared and static, of three generations, on NVIDIA's own driver: it gets our functions, and fails
as without the library.
"""

import pytest

from conftest import ROOT
from probing import Probe, asked_for, differing, drivers, name_of, symbols, version_of

QUICK_EVERY = 4  # conftest.py
RUNTIMES = sorted((ROOT / "build-headers").glob("[0-9]*/lib/libcudart*"))
FOUND = drivers()
RETURN_NO_CODE = {"cudaGetErrorName", "cudaGetErrorString", "cudaCreateChannelDesc"}
TOO_OLD = "35"  # cudaErrorInsufficientDriver


def version_and_kind(file):
    return file.parent.parent.name + (" static" if file.suffix == ".a" else "")


@pytest.fixture(scope="module", params=RUNTIMES or [None], ids=[*map(version_and_kind, RUNTIMES)] or ["none"])
def runtime(request):
    if not request.param:
        pytest.skip("no runtime of NVIDIA's (build-headers of scripts/setup.sh, see build-headers.log)")
    return request.param


@pytest.fixture(params=FOUND or [None], ids=[*map(name_of, FOUND)] or ["none"])
def driver(request):
    if not request.param:
        pytest.skip("no driver library of NVIDIA's (build-drivers of scripts/setup.sh, see build-drivers.log)")
    return request.param


@pytest.fixture(scope="module")
def probe(runtime, tmp_path_factory):
    shared = next(runtime.parent.glob("libcudart.so.*"))
    file = shared.name if runtime == shared else None
    exported = sorted(name for name in symbols(shared, "T") if name.startswith("cuda"))
    assert len(exported) > 150
    return Probe(tmp_path_factory.mktemp("probe"), [runtime], file, "cudaFree", exported, ["cudaFree"], exported)


def test_our_functions_are_bound(probe, runtime, driver):
    folders = [runtime.parent, driver.parent]
    plain, quiet = (probe.run(["start"], folders, preload) for preload in (False, True))
    assert (quiet.stdout, quiet.stderr) == (plain.stdout, plain.stderr)
    told = probe.run(["start"], folders, True, CACHEALLOC_LOG="debug")
    assert told.stdout == plain.stdout
    asked = asked_for(told.stderr)
    if version_of(driver) < (465,):  # no cuGetProcAddress; it asks by dlsym, before there is a call that reads CACHEALLOC_LOG
        return
    if not asked:  # the runtime asks a driver of the generation before for nothing
        assert plain.stdout.strip() == TOO_OLD and version_of(driver) < (525,) and not runtime.parent.parent.name.startswith("11")
        return
    for name in ("cuMemAlloc", "cuMemFree", "cuMemGetInfo", "cuMemAllocAsync", "cuLaunchKernel", "cuStreamCreate"):
        assert asked.get(name, asked.get(name + "_v2")) == "ours", sorted(asked)
    assert set(asked.values()) == {"ours"}


@pytest.mark.parametrize("driver", [*FOUND[:1], *FOUND[1:][-1:]] or [None], ids=["oldest", "newest"][:len(FOUND)] or ["none"],
                         indirect=True)
@pytest.mark.parametrize("seed", range(2))
def test_calls(probe, runtime, driver, seed):
    """Of every function of the runtime: the same codes, and the same ends."""
    plain, loaded = probe.calls(seed, [runtime.parent, driver.parent], RETURN_NO_CODE)
    assert len(plain) > 300
    assert not differing(plain, loaded)
