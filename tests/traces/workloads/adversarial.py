# SPDX-License-Identifier: MIT
"""W10: what has broken pools.

W10a: sizes k x 256 + 8, k in 1..65,536 evenly; 300 live, replaced at random (a high-water mark counted without alignment
grew for ever).
W10b: a buffer that grows by 1 MiB with each call, from 4 MiB, freed before the next one is asked for, with 8 small blocks
that live across; starts again after 300 calls.
W10c: sawtooth: blocks of a random size up to 8 MiB pile up to 2 GiB, in the next tooth up to 16, 32, 64 MiB; then all go.
W10d: checkerboard: 512 equal blocks (1 to 8 MiB), every other one freed, then one block as large as all that was freed,
half of that, and a quarter; then all go. The next board has another size.
W10e: a crowd of small and middle blocks (64 KiB to 48 MiB, together 4 GiB) goes, then one request for 95 % of that, which
fits into the same memory only if all that is cached is given back or joined; then the crowd returns.
W10f: streams that come and go: each works with 40 blocks of 1 to 32 MiB and is destroyed while its last frees are
pending; the next has another number. A phase ends with each fourth.
Not to be had as a trace: a request beyond the device's memory that must fail, and a flush during capture.
"""

from .trace import GIB, KIB, MIB

CALLS = {"W10a": 100000, "W10b": 60000, "W10c": 250, "W10d": 120, "W10e": 80, "W10f": 900}  # at scale 1


def many(workload, scale, least):
    return max(least, round(CALLS[workload] * scale))


def w10a(trace, chance, scale, synthetic):
    """adversarial: sizes k x 256 + 8"""
    live = []
    for count in range(many("W10a", scale, 400)):
        if len(live) == 300:
            at = chance.integer(0, 299)
            live[at], live[-1] = live[-1], live[at]
            trace.drop(live.pop())
        live.append(trace.take(256 * chance.integer(1, 65536) + 8))
        if count % 1000 == 999:
            trace.phase()
    trace.drop_all(live)


def w10b(trace, chance, scale, synthetic):
    """adversarial: a buffer that grows with each call"""
    held = []
    for call in range(many("W10b", scale, 320)):
        buffer = trace.take((4 + call % 300) * MIB)
        held.append(trace.take(chance.integer(1, 256) * KIB))
        if len(held) > 8:
            trace.drop(held.pop(0))
        trace.drop(buffer)
        if call % 300 == 299:
            trace.phase()
    trace.drop_all(held)


def w10c(trace, chance, scale, synthetic):
    """adversarial: a sawtooth of growing grain"""
    for tooth in range(many("W10c", scale, 4)):
        blocks, total = [], 0
        while total < 2 * GIB:
            size = chance.integer(1, (8 << tooth % 4) * MIB)
            blocks.append(trace.take(size))
            total += size
        trace.drop_all(blocks)
        trace.phase()


def w10d(trace, chance, scale, synthetic):
    """adversarial: a checkerboard, then large blocks"""
    for _ in range(many("W10d", scale, 3)):
        size = chance.integer(1 * MIB, 8 * MIB)
        board = [trace.take(size) for _ in range(512)]
        trace.drop_all(board[::2])
        large = [trace.take(256 * size // part) for part in (1, 2, 4)]
        trace.drop_all(large)
        trace.drop_all(board[1::2])
        trace.phase()


def w10e(trace, chance, scale, synthetic):
    """adversarial: a crowd, then one block almost as large"""
    for _ in range(many("W10e", scale, 2)):
        crowd, total = [], 0
        while total < 4 * GIB:
            size = chance.log_uniform(64 * KIB, 48 * MIB)
            crowd.append(trace.take(size))
            total += size
        trace.drop_all(crowd)
        trace.drop(trace.take(total // 20 * 19))
        trace.phase()


def w10f(trace, chance, scale, synthetic):
    """adversarial: streams that come and go"""
    for number in range(many("W10f", scale, 8)):
        stream, live = 1 + number, []
        for _ in range(40):
            live.append(trace.take(chance.integer(1 * MIB, 32 * MIB), stream))
            if len(live) > 10:
                trace.drop(live.pop(chance.integer(0, 10)))
        trace.drop_all(live)
        if number % 4 == 3:
            trace.phase()
