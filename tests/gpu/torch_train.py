#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A small transformer trained on batches of changing length; one JSON line with losses, time and memory.

Losses are exact (hexadecimal) and the algorithms deterministic, so that two runs can be compared bit by bit.
`torch_train.py [STEPS]`.
"""

import json
import random
import sys
import time

import torch
from torch import nn

WARMUP, WIDTH, LAYERS, VOCABULARY = 10, 512, 6, 5000


def model():
    layer = nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), nn.TransformerEncoder(layer, LAYERS),
                         nn.Linear(WIDTH, VOCABULARY)).cuda()


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    lengths = random.Random(1)
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    losses, times, used = [], [], 0
    generator = torch.Generator().manual_seed(1)
    for step in range(steps):
        shape = (8, lengths.choice([128, 192, 256, 384, 512]))
        tokens = torch.randint(VOCABULARY, shape, generator=generator).cuda()
        torch.cuda.synchronize()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(net(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
        torch.cuda.synchronize()
        if step >= WARMUP:
            times.append(1000 * (time.perf_counter() - start))
        free, total = torch.cuda.mem_get_info()
        used = max(used, total - free)
    times.sort()
    print(json.dumps({"losses": losses, "step_ms": {"p50": times[len(times) // 2], "min": times[0], "max": times[-1]},
                      "used_peak_bytes": used, "torch_peak_reserved_bytes": torch.cuda.max_memory_reserved(),
                      "torch": torch.__version__, "device": torch.cuda.get_device_name()}))


main()
