#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A program of ours on NVIDIA's unmodified Python bindings: allocates, copies both ways, checks, frees.

Prints one JSON line: how often it allocated and freed, and of which version the bindings are.
"""

import ctypes
import json
import random
import sys
from importlib import metadata

from cuda.bindings import driver

counts = {"allocs": 0, "frees": 0, "checked_bytes": 0}


def call(name, *arguments):
    """Calls the binding and returns its results; a code other than success ends the program."""
    code, *results = getattr(driver, name)(*arguments)
    if code != driver.CUresult.CUDA_SUCCESS:
        sys.exit(f"{name}: {code}")
    return results[0] if len(results) == 1 else results


def pattern(seed, size):
    return random.Random(seed).randbytes(size)


def allocate(size):
    counts["allocs"] += 1
    return call("cuMemAlloc", size)


def release(block):
    call("cuMemFree", block)
    counts["frees"] += 1


def upload(block, data):
    call("cuMemcpyHtoD", block, data, len(data))


def check(block, data):
    host = ctypes.create_string_buffer(len(data))
    call("cuMemcpyDtoH", ctypes.addressof(host), block, len(data))
    if host.raw != data:
        sys.exit("contents differ")
    counts["checked_bytes"] += len(data)


def rounds(number, sizes):
    """Each round holds all sizes at once, so that a block handed out twice shows."""
    for index in range(number):
        blocks = [(allocate(size), pattern(index * 1_000_003 + size, min(size, 65536))) for size in sizes]
        if len({int(block) for block, _ in blocks}) != len(blocks):
            sys.exit("one address given out twice")
        for block, data in blocks:
            upload(block, data)
        for block, data in blocks:
            check(block, data)
        for block, _ in blocks:
            release(block)


def asynchronous(context_stream):
    """Copies on a stream of our own, freed before anybody has waited for them."""
    source, target = pattern(1, 4096), ctypes.create_string_buffer(4096)
    block = allocate(4096)
    call("cuMemcpyHtoDAsync", block, source, 4096, context_stream)
    call("cuMemcpyDtoHAsync", ctypes.addressof(target), block, 4096, context_stream)
    release(block)
    call("cuStreamSynchronize", context_stream)
    if target.raw != source:
        sys.exit("asynchronous contents differ")
    counts["checked_bytes"] += 4096


def main():
    call("cuInit", 0)
    device = call("cuDeviceGet", 0)
    call("cuCtxSetCurrent", call("cuDevicePrimaryCtxRetain", device))
    rounds(20, [1, 512, 513, 4096, 100_000, 1 << 20, (1 << 20) + 1, 5 << 20, 20 << 20])
    stream = call("cuStreamCreate", 0)
    for _ in range(10):
        asynchronous(stream)
    block = allocate(1000)
    base, size = call("cuMemGetAddressRange", block)
    if int(base) != int(block) or size != 1000:
        sys.exit(f"address range is {int(base):#x} + {size}, not {int(block):#x} + 1000")
    release(block)
    free, total = call("cuMemGetInfo")
    if not 0 < free <= total:
        sys.exit(f"memory info {free} of {total}")
    call("cuStreamDestroy", stream)
    call("cuDevicePrimaryCtxRelease", device)
    print(json.dumps({**counts, "bindings": metadata.version("cuda-bindings")}))


main()
