# SPDX-License-Identifier: MIT
"""worker.py METHOD N: N workers of multiprocessing allocate; each prints its pid. The last is killed at its end."""

import ctypes
import multiprocessing
import os
import signal
import sys


def work(number, count, ended):
    cuda = ctypes.CDLL("libcuda.so.1")
    context, ring = ctypes.c_void_p(), []
    for name, *args in (("cuInit", 0), ("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0), ("cuCtxSetCurrent", context)):
        if getattr(cuda, name)(*args):
            raise SystemExit(name)
    for i in range(100):
        address = ctypes.c_ulonglong()
        if cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4096 * (1 + i % 3))):
            raise SystemExit("cuMemAlloc_v2")
        ring.append(address)
        if len(ring) > 4 and cuda.cuMemFree_v2(ring.pop(0)):
            raise SystemExit("cuMemFree_v2")
    os.write(1, f"{os.getpid()}\n".encode())
    ended.release()
    if number == count - 1:
        os.kill(os.getpid(), signal.SIGKILL)


def main():
    method, count = sys.argv[1], int(sys.argv[2])
    context = multiprocessing.get_context(method)
    ended = context.Semaphore(0)
    workers = [context.Process(target=work, args=(i, count, ended)) for i in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    main()
