# SPDX-License-Identifier: MIT
"""Road: Python's ctypes. road_ctypes.py N [SIZE...]; as road.h says."""

import ctypes
import sys

LIVE = 4
MIX = [512, 4096, 1 << 20, 3 << 20, 1, 100000]


def main():
    n = int(sys.argv[1])
    sizes = [int(a) for a in sys.argv[2:]] or MIX
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    ring = [None] * LIVE

    def call(name, *args):
        code = getattr(cuda, name)(*args)
        if code:
            sys.exit(f"{name}: {code}")

    def empty(slot):
        if ring[slot]:
            call("cuMemFree_v2", ring[slot])
        ring[slot] = None

    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    for i in range(n):
        empty(i % LIVE)
        ring[i % LIVE] = ctypes.c_ulonglong()
        call("cuMemAlloc_v2", ctypes.byref(ring[i % LIVE]), ctypes.c_size_t(sizes[i % len(sizes)]))
        if ring[i % LIVE].value % 256:
            sys.exit(f"misaligned pointer {ring[i % LIVE].value:#x}")
    for slot in range(LIVE):
        empty(slot)


main()
