#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""PyTorch with its own cache on: what the process holds at its peak, what comes back after empty_cache(), and the
largest tensor that fits. One JSON line; sizes in bytes. With the preload and nothing else set all three must be as
without it (tests/gpu/check.py, part `framework`)."""

import json

import torch

MIB = 1 << 20


def used():
    free, total = torch.cuda.mem_get_info()
    return total - free


def churn(seed):
    """Tensors of mixed sizes come and go; the peak of what the device has in use, as the driver says."""
    generator = torch.Generator().manual_seed(seed)
    held, peak = [], 0
    for step in range(300):
        size = int(torch.randint(1, 96, (1,), generator=generator)) * MIB // 2
        held.append(torch.full((size,), step % 100, dtype=torch.uint8, device="cuda"))
        if len(held) > 24:
            at = int(torch.randint(0, len(held), (1,), generator=generator))
            value = held.pop(at)
            assert int(value[0]) == int(value[-1])
        peak = max(peak, used())
    return peak


def largest():
    """The largest tensor that fits, to 16 MiB."""
    low, high = 0, torch.cuda.mem_get_info()[1] // (16 * MIB)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            torch.empty(middle * 16 * MIB, dtype=torch.uint8, device="cuda")
            low = middle
        except torch.cuda.OutOfMemoryError:
            high = middle
        torch.cuda.empty_cache()
    return low * 16 * MIB


def main():
    torch.zeros(1, device="cuda")
    torch.cuda.empty_cache()
    before = used()
    peak = churn(1)
    reserved = torch.cuda.max_memory_reserved()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    after = used()
    print(json.dumps({"before_bytes": before, "peak_used_bytes": peak, "after_empty_cache_bytes": after,
                      "torch_peak_reserved_bytes": reserved, "largest_tensor_bytes": largest(),
                      "torch": torch.__version__, "device": torch.cuda.get_device_name()}))


main()
