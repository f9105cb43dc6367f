# SPDX-License-Identifier: MIT
"""Drives NVIDIA's cuda-bindings package (a program of ours; the package is theirs): initialise, allocate, copy, free.

A copy from pageable memory may still be on its way when it returns, so the context is synchronised before another
stream reads what it brought: without that, the race oracle objects, and rightly.
"""

import ctypes

from cuda.bindings import driver


def done(result):
    code, *values = result
    assert code == driver.CUresult.CUDA_SUCCESS, (code, values)
    return values[0] if len(values) == 1 else values


def context_of(device):
    try:
        return done(driver.cuCtxCreate(None, 0, device))  # the form of 13.x
    except TypeError:
        return done(driver.cuCtxCreate(0, device))


def main():
    done(driver.cuInit(0))
    assert done(driver.cuDriverGetVersion()) == 13000 and done(driver.cuDeviceGetCount()) == 1
    device = done(driver.cuDeviceGet(0))
    assert done(driver.cuDeviceGetName(64, device)).rstrip(b"\0 ") == b"simcuda device 0"
    context = context_of(device)
    n_bytes = 1 << 20
    source, target = bytes(range(256)) * (n_bytes // 256), bytearray(n_bytes)
    one, two = done(driver.cuMemAlloc(n_bytes)), done(driver.cuMemAlloc(n_bytes))
    stream = done(driver.cuStreamCreate(0))
    done(driver.cuMemcpyHtoD(one, source, n_bytes))
    done(driver.cuCtxSynchronize())
    done(driver.cuMemcpyDtoDAsync(two, one, n_bytes, stream))
    event = done(driver.cuEventCreate(0))
    done(driver.cuEventRecord(event, stream))
    done(driver.cuEventSynchronize(event))
    done(driver.cuMemcpyDtoH(target, two, n_bytes))
    assert target == source

    module = done(driver.cuModuleLoadData(b"simcuda\0"))
    fill = done(driver.cuModuleGetFunction(module, b"sim_fill"))
    args = ((int(one), n_bytes // 4, 7, 0), (ctypes.c_uint64,) * 4)
    done(driver.cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, stream, args, 0))
    done(driver.cuStreamSynchronize(stream))
    done(driver.cuMemcpyDtoH(target, one, n_bytes))
    assert target == b"\7\0\0\0" * (n_bytes // 4)

    ordinal = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    assert done(driver.cuPointerGetAttribute(ordinal, one)) == 0
    done(driver.cuMemFree(one))
    assert driver.cuMemFree(one)[0] == driver.CUresult.CUDA_ERROR_INVALID_VALUE
    done(driver.cuMemFree(two))
    done(driver.cuMemFreeAsync(done(driver.cuMemAllocAsync(4096, stream)), stream))
    done(driver.cuStreamSynchronize(stream))
    free, total = done(driver.cuMemGetInfo())
    assert free == total
    done(driver.cuStreamDestroy(stream))
    done(driver.cuCtxDestroy(context))
    print("done")


main()
