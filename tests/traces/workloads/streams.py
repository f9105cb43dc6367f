# SPDX-License-Identifier: MIT
"""W7: several streams. A trace says which stream a block is for, and knows no other property of streams, so blocking and
cudaStreamNonBlocking ones look the same here.

W7a: RMM's multi_stream: in each round 1 to 4 streams, in turn 4 kernels each; a kernel allocates 1 to 64 MiB, and frees
what the same stream's last kernel but one allocated. A phase ends with each round.

W7b: producers on streams 1 and 2 allocate items of 2 to 32 MiB; consumers on streams 3 and 4 take them 1 to 8 items
later, allocate a result of a quarter, and free item and result. With --uses the trace says `U item consumer`, which
recordStream would have told PyTorch. A phase ends with each 64 items.

W7c: training on stream 1, with gradients gathered into buckets of 25 MiB on stream 2, each freed while the next two are
under way; every 50 layers a side stream, 3, copies 1 to 128 MiB. A phase ends with each step.
"""

from collections import deque

from .trace import MIB

ROUNDS, ITEMS, STEPS = 6000, 60000, 400  # at scale 1
KERNELS = 4
BUCKET = 25 * MIB


def w7a(trace, chance, scale, synthetic):
    """streams: RMM's multi_stream on 1 to 4 streams"""
    for number in range(max(4, round(ROUNDS * scale))):
        streams = range(1, 2 + number % 4)
        held = {stream: deque() for stream in streams}
        for _ in range(KERNELS):
            for stream in streams:
                held[stream].append(trace.take(chance.integer(1 * MIB, 64 * MIB), stream))
                if len(held[stream]) > 2:
                    trace.drop(held[stream].popleft())
        for blocks in held.values():
            trace.drop_all(blocks)
        trace.phase()


def w7b(trace, chance, scale, synthetic):
    """streams: producers and consumers"""
    under_way = deque()
    for number in range(max(64, round(ITEMS * scale))):
        under_way.append(trace.take(chance.integer(2 * MIB, 32 * MIB), chance.integer(1, 2)))
        while len(under_way) > chance.integer(1, 8):
            item, consumer = under_way.popleft(), chance.integer(3, 4)
            trace.use(item, consumer)
            result = trace.take(max(1, trace.live[item] // 4), consumer)
            trace.drop(item)
            trace.drop(result)
        if number % 64 == 63:
            trace.phase()
    trace.drop_all(under_way)


def w7c(trace, chance, scale, synthetic):
    """streams: training with communication and copies on streams of their own"""
    layers = [chance.integer(1 * MIB, 24 * MIB) for _ in range(50)]
    for size in layers:
        trace.start(size, 1)
    for _ in range(max(2, round(STEPS * scale))):
        kept = [trace.take(2 * size, 1) for size in layers]
        copied = trace.take(chance.integer(1 * MIB, 128 * MIB), 3)
        buckets, filled = deque(), 0
        for block, size in zip(reversed(kept), reversed(layers)):
            gradient = trace.take(size, 1)
            trace.drop(block)
            filled += size
            while filled >= BUCKET:
                buckets.append(trace.take(BUCKET, 2))
                filled -= BUCKET
                if len(buckets) > 2:
                    trace.drop(buckets.popleft())
            trace.drop(gradient)
        trace.drop_all(buckets)
        trace.drop(copied)
        trace.phase()
