# SPDX-License-Identifier: MIT
"""W5: data frames.

W5a-COUNT-MAX: RMM's random_allocations: COUNT allocations (1k, 10k, 100k) of 1 byte to MAX MiB (1, 4, 64, 256, 1024,
4096), evenly distributed; an operation allocates with probability 0.73, else frees a random block; never more than
16,000 MiB live. One stream. Plain W5a is W5a-100k-64.

W5b: joins and group-bys on 4 to 8 threads (by the seed), each with its own stream. An operator allocates a burst of 5
to 60 blocks of 4 KiB times a Zipf rank (exponent 1, up to 65,536: 256 MiB), frees them as a stack with further pushes
between, and leaves a table of 1 to 8 equal columns; a thread keeps its last 4 tables. The threads take turns at random.
A query is 40 operators a thread; then all tables are freed and a phase ends.
"""

from .chance import Zipf
from .trace import KIB, MIB

COUNTS = {"1k": 1000, "10k": 10000, "100k": 100000}
SIZES = (1, 4, 64, 256, 1024, 4096)  # MiB
ALLOCATE = 0.73
LIVE_MAX = 16000 * MIB
QUERIES = 12  # at scale 1
OPERATORS = 40  # a thread and query
RANKS = 65536
UNIT = 4 * KIB
TABLES = 4


def random_allocations(trace, chance, scale, count, size_max):
    live, live_bytes, left = [], 0, max(10, round(count * scale))
    while left:
        size = chance.integer(1, size_max)
        if not live or (chance.chance(ALLOCATE) and live_bytes + size <= LIVE_MAX):
            live.append(trace.take(size))
            live_bytes += size
            left -= 1
        else:
            at = chance.integer(0, len(live) - 1)
            live[at], live[-1] = live[-1], live[at]
            live_bytes -= trace.live[live[-1]]
            trace.drop(live.pop())
    trace.phase()
    trace.drop_all(live)


def w5a(count, size):
    def make(trace, chance, scale, synthetic):
        random_allocations(trace, chance, scale, COUNTS[count], size * MIB)
    make.__doc__ = f"data frames: RMM's random_allocations, {count} of up to {size} MiB"
    return make


def thread(trace, chance, zipf, stream):
    """One thread's query; yields between its calls, so that threads take turns."""
    tables = []
    for _ in range(OPERATORS):
        stack = []
        for _ in range(chance.integer(5, 60)):
            stack.append(trace.take(UNIT * zipf.rank(chance), stream))
            yield
            while len(stack) > 1 and chance.chance(0.35):
                trace.drop(stack.pop())
                yield
        size = UNIT * zipf.rank(chance)
        tables.append([trace.take(size, stream) for _ in range(chance.integer(1, 8))])
        yield
        while stack:
            trace.drop(stack.pop())
            yield
        if len(tables) > TABLES:
            trace.drop_all(tables.pop(0))
    for table in tables:
        trace.drop_all(table)


def w5b(trace, chance, scale, synthetic):
    """data frames: bursts of joins and group-bys on 4 to 8 threads"""
    zipf, threads = Zipf(RANKS), chance.integer(4, 8)
    for _ in range(max(1, round(QUERIES * scale))):
        running = [thread(trace, chance, zipf, stream) for stream in range(1, threads + 1)]
        while running:
            at = chance.integer(0, len(running) - 1)
            try:
                next(running[at])
            except StopIteration:
                running.pop(at)
        trace.phase()
