# SPDX-License-Identifier: MIT
"""With a current context the driver's own checks of what it is given come later than without a device, and behind ours:
each function that the library has is called on the simulated driver, with zeros, and with NULL and addresses of cleared and of
allocated memory.
"""

import os

import pytest

from conftest import BUILD, ROOT
from probing import Probe, differing, ours, symbols

# what calls back later, into cleared memory; waits for a value that nobody writes; answers by the time of day; or is given
# 2^64 - 1 ranges to look at
NOT_CALLED = ("cuStreamAddCallback", "cuLaunchHostFunc", "cuStreamWaitValue", "cuStreamQuery", "cuEventQuery", "cuMemPrefetchBatch",
              "cuMemDiscard")
SIMULATOR = BUILD / "tests" / "sim"
START = """
#include "tests/sim/abi.h"
#define SIM_ENTRY(symbol, body, flavour, when, params, args) CUresult symbol params;
#include "tests/sim/entries.def"
#undef SIM_ENTRY

int start_in_context(long unused);
extern long probe_memory;
long probe_memory;

/* A context that is current, and memory with a segment of its own; 0 where a capture prohibits that. */
int
start_in_context(long unused)
{
	CUdeviceptr block = 0;
	CUcontext context;
	int rc = cuInit(0);

	if (!rc && !(rc = cuDevicePrimaryCtxRetain(&context, 0)) && !(rc = cuCtxSetCurrent(context)))
		rc = cuMemAlloc_v2(&block, 12 << 20);
	probe_memory = (long)block;
	return rc;
}
"""


@pytest.fixture(scope="module")
def probe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("probe")
    (folder / "start.c").write_text(START)
    driver = SIMULATOR / "libcuda.so.1"
    called = sorted(name for name in ours() & set(symbols(driver, "TW")) if not name.startswith(NOT_CALLED))
    assert len(called) > 200
    return Probe(folder, [f"-I{ROOT}", folder / "start.c", driver], "libcuda.so.1", "start_in_context", [*called, "start_in_context"], (), called)


@pytest.mark.parametrize("seed", range(40 if os.environ.get("CACHEALLOC_TEST_LONG") else 6))
def test_calls(probe, seed):
    plain, loaded = probe.calls(seed, [SIMULATOR], set())
    assert sum(" after: 0, " in line for line in plain) > 200
    assert differing(plain, loaded) == []
