# SPDX-License-Identifier: MIT
"""W8: many tiny blocks. 100,000 live of 16 bytes to 4 KiB, each power of two as likely; then 100,000 times a random one
is freed and another allocated; a phase ends after each 10,000. Scale changes both numbers.

W9: a program without a pool: 60 operations in a chain, with fixed shapes of 64 KiB to 64 MiB; each allocates its output
and a scratch block of a quarter, runs, and frees the scratch and its input. 800 passes; a phase ends with each, as the
result goes to the host.
"""

from .trace import KIB, MIB

LIVE = 100000  # at scale 1
PASSES = 800  # at scale 1
OPERATIONS = 60


def w8(trace, chance, scale, synthetic):
    """tiny blocks: 100,000 live of 16 bytes to 4 KiB"""
    number = max(100, round(LIVE * scale))
    live = [trace.take(chance.log_uniform(16, 4 * KIB)) for _ in range(number)]
    trace.phase()
    for count in range(number):
        at = chance.integer(0, number - 1)
        trace.drop(live[at])
        live[at] = trace.take(chance.log_uniform(16, 4 * KIB))
        if count % 10000 == 9999:
            trace.phase()
    trace.drop_all(live)


def w9(trace, chance, scale, synthetic):
    """naive program: allocate, launch, free for each operation"""
    shapes = [chance.log_uniform(64 * KIB, 64 * MIB) for _ in range(OPERATIONS)]
    for size in shapes:
        trace.start(max(512, size // 3))
    for _ in range(max(2, round(PASSES * scale))):
        flowing = trace.take(shapes[-1])
        for size in shapes:
            out = trace.take(size)
            trace.drop(trace.take(max(1, size // 4)))
            trace.drop(flowing)
            flowing = out
        trace.drop(flowing)
        trace.phase()
