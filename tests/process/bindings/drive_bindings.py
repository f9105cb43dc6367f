# SPDX-License-Identifier: MIT
"""Ours, not NVIDIA's: drives their package cuda-bindings (which is not changed) through allocation, copy and free.

usage: drive_bindings.py ROUNDS; prints the rounds done and how many distinct addresses were seen.
"""

import sys

from cuda.bindings import driver

SIZES = (512, 4096, 100_000, 1 << 20, 3 << 20)


def must(result):
    """The values of a call, or the error as an exception."""
    error, *values = result
    if error != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"{error!r}")
    return values[0] if len(values) == 1 else values


def one_round(number):
    """Several blocks live at once, each with contents of its own, read back before they go."""
    addresses = []
    for place, size in enumerate(SIZES):
        address = must(driver.cuMemAlloc(size))
        must(driver.cuMemcpyHtoD(address, bytes([number % 251, place]) * (size // 2), size))
        addresses.append(address)
    for place, (address, size) in enumerate(zip(addresses, SIZES)):
        back = bytearray(size)
        must(driver.cuMemcpyDtoH(back, address, size))
        assert back == bytes([number % 251, place]) * (size // 2), f"round {number}: contents of {size} bytes"
        base, length = must(driver.cuMemGetAddressRange(address))
        assert int(base) == int(address) and length >= size
    for address in addresses:
        must(driver.cuMemFree(address))
    return [int(address) for address in addresses]


def main():
    rounds = int(sys.argv[1])
    must(driver.cuInit(0))
    device = must(driver.cuDeviceGet(0))
    must(driver.cuCtxSetCurrent(must(driver.cuDevicePrimaryCtxRetain(device))))
    seen = {address for number in range(rounds) for address in one_round(number)}
    error, = driver.cuMemFree(0)
    assert error == driver.CUresult.CUDA_SUCCESS, "free of NULL"
    must(driver.cuDevicePrimaryCtxRelease(device))
    print(rounds * len(SIZES), len(seen))


if __name__ == "__main__":
    main()
