# SPDX-License-Identifier: MIT
"""first.py END KIND DEVICE ...: one allocation of each (`device` or `pinned`), in that order; then it exits, or is killed."""

import ctypes
import os
import signal
import sys

CUDA = ctypes.CDLL("libcuda.so.1")


def call(name, *args):
    if getattr(CUDA, name)(*args):
        raise SystemExit(name)


def main():
    end, words = sys.argv[1], sys.argv[2:]
    context, address = ctypes.c_void_p(), ctypes.c_ulonglong()
    call("cuInit", 0)
    for kind, device in zip(words[::2], words[1::2]):
        call("cuDevicePrimaryCtxRetain", ctypes.byref(context), int(device))
        call("cuCtxSetCurrent", context)
        if kind == "device":
            call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(4096))
        else:
            call("cuMemHostAlloc", ctypes.byref(address), ctypes.c_size_t(4096), 0)
    if end == "kill":
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
