# SPDX-License-Identifier: MIT
"""What PyTorch's package says and computes where there is no device; run by test_torch.py.

With an argument, the driver is also asked for memory by ctypes, which needs one that has a device: the simulator.
"""

import ctypes
import sys

import torch


def attempt(what):
    try:
        print(what())
    except (RuntimeError, AssertionError) as problem:
        print(type(problem).__name__, problem)


def take_memory():
    driver, context, address = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
    codes = [driver.cuInit(0), driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), driver.cuCtxSetCurrent(context)]
    for _ in range(10):
        codes += [driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(2 << 20)), driver.cuMemFree_v2(address)]
    print(codes)


print(torch.__version__, torch.version.cuda)
if len(sys.argv) > 1:
    take_memory()
else:
    for question in (torch.cuda.is_available, torch.cuda.device_count, torch.cuda.memory_allocated, torch.cuda.empty_cache,
                     torch.cuda.synchronize, torch.cuda.Stream, lambda: torch.zeros(1, device="cuda")):
        attempt(question)
    print((torch.ones(64, 64) @ torch.ones(64, 64)).sum().item())
    print("backend", torch.cuda.get_allocator_backend())
