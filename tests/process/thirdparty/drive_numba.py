#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A program of ours on unmodified numba-cuda with its own memory manager: arrays go out of scope while work on them is under
way, from several threads and streams.

Prints one JSON line of what it saw, in which nothing depends on time. The kernels are the simulator's: those that numba
compiles cannot be run there.
"""

import ctypes
import gc
import json
import random
import sys
import threading
from importlib import metadata

import numpy as np
from cuda.core import LaunchConfig, ObjectCode, launch
from numba import cuda

ONE = LaunchConfig(grid=1, block=32)
seen, lock = {"numba-cuda": metadata.version("numba-cuda"), "arrays": 0}, threading.Lock()


def count(n):
    with lock:
        seen["arrays"] += n


class Kernels:
    """The simulator's, as functions of numba's context."""

    def __init__(self):
        module = cuda.current_context().create_module_image(ObjectCode.from_cubin(b"simcuda\0"))
        self.module, self.functions = module, {n: module.get_function(f"sim_{n}") for n in ("fill", "copy")}

    def run(self, name, stream, *arguments):
        launch(stream, ONE, self.functions[name].kernel,
               *(ctypes.c_uint64(a if isinstance(a, int) else a.__cuda_array_interface__["data"][0]) for a in arguments))


def one_array(kernels, chance, number):
    """Up, filled anew in part on another stream, copied, down: by then the first two arrays are gone."""
    size = chance.choice([1, 100, 1000, 65_537, 300_000])
    here, there = cuda.stream(), cuda.stream()
    source = cuda.pinned_array(size, dtype=np.int32)
    source[:] = np.arange(size, dtype=np.int32) + number
    target = cuda.pinned_array(size, dtype=np.int32)
    wanted = source.copy()
    wanted[: size // 2] = number
    up = cuda.to_device(source, stream=here)
    done = cuda.event(timing=False)
    done.record(stream=here)
    done.wait(stream=there)
    if size // 2:
        kernels.run("fill", there, up, size // 2, number, 20)
    copy = cuda.device_array_like(up)
    copy.copy_to_device(up, stream=there)
    del up
    copy.copy_to_host(target, stream=there)
    del copy
    beside = cuda.to_device(np.full(size, -1, dtype=np.int32), stream=here)  # must not be what `there` still reads
    there.synchronize()
    if not (target == wanted).all() or not (beside.copy_to_host() == -1).all():
        raise SystemExit("contents differ")
    count(5)


def work(seed, rounds):
    try:
        kernels, chance = Kernels(), random.Random(seed)
        for number in range(rounds):
            one_array(kernels, chance, 1000 * seed + number)
            if not number % 8:
                gc.collect()
    except BaseException as problem:
        with lock:
            seen.setdefault("problems", []).append(repr(problem))


def other_memory():
    """Managed, mapped and registered memory, views, and pitched arrays by rows."""
    mapped, managed = cuda.mapped_array(1000, dtype=np.int32), cuda.managed_array(1000, dtype=np.int32)
    mapped[:], managed[:] = 1, 2
    plain = np.arange(6000, dtype=np.int32).reshape(60, 100)
    with cuda.pinned(plain):
        stream = cuda.stream()
        device = cuda.to_device(plain, stream=stream)
        rows = device[10:20]
        back = rows.copy_to_host(stream=stream)
        stream.synchronize()
    seen["views"] = bool((back == plain[10:20]).all())
    seen["sums"] = [int(mapped.sum()), int(managed.sum())]


def compiled():
    try:
        @cuda.jit
        def kernel(array):
            array[cuda.grid(1)] = 1

        kernel[1, 10](cuda.device_array(10, dtype=np.int32))
        return "ran"
    except Exception as problem:
        return type(problem).__name__


def main():
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    seen["manager"] = type(cuda.current_context().memory_manager).__name__
    workers = [threading.Thread(target=work, args=(seed + n, 12)) for n in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    other_memory()
    if "--compile" in sys.argv:
        seen["compiled kernel"] = compiled()
    gc.collect()
    cuda.synchronize()
    print(json.dumps(seen))


main()
