# SPDX-License-Identifier: MIT
"""W4: serving a language model with a cache of keys and values.

Requests arrive as a Poisson process, 0.25 a step; prompts are lognormal with median 300 tokens, sigma 1.0, in 16..2048;
outputs with median 150, sigma 0.8, in 1..2048; at most 64 run at a time, the others queue. 16 layers, each 4 KiB of
cache a token and request. A step first runs the prompts that begin, then one token of every request; both allocate
workspaces that are freed when the step ends (4096 wide, 32,000 words, 2 bytes a number). One stream; a phase ends with
each step, since the tokens go to the host.
"""

from collections import deque

from .trace import KIB

STEPS = 2000  # at scale 1
ARRIVALS = 0.25  # a step
PROMPT = (300, 1.0, 16, 2048)
OUTPUT = (150, 0.8, 1, 2048)
RUNNING = 64
LAYERS = 16
TOKEN = 4 * KIB  # a layer
MAX_TOKENS = 4096
PAGE_TOKENS = 16
HIDDEN, WORDS = 4096, 32000


class Contiguous:
    """(a) room for the longest request at once, one buffer a layer"""

    def __init__(self, trace, tokens):
        self.trace = trace
        self.blocks = [trace.take(TOKEN * MAX_TOKENS) for _ in range(LAYERS)]

    def grow(self, tokens):
        pass

    def end(self):
        self.trace.drop_all(self.blocks)


class Doubling(Contiguous):
    """(b) a buffer a layer that doubles: the new one is allocated, copied to, and the old one freed"""

    def __init__(self, trace, tokens):
        self.trace, self.room = trace, tokens
        self.blocks = [trace.take(TOKEN * tokens) for _ in range(LAYERS)]

    def grow(self, tokens):
        if tokens <= self.room:
            return
        self.room *= 2
        for layer, old in enumerate(self.blocks):
            self.blocks[layer] = self.trace.take(TOKEN * self.room)
            self.trace.drop(old)


class Pages(Contiguous):
    """(c) pages of 16 tokens, each for all layers"""

    def __init__(self, trace, tokens):
        self.trace, self.blocks = trace, []
        self.grow(tokens)

    def grow(self, tokens):
        while len(self.blocks) * PAGE_TOKENS < tokens:
            self.blocks.append(self.trace.take(TOKEN * LAYERS * PAGE_TOKENS))


def workspaces(trace, tokens, requests):
    """The blocks of one pass over `tokens`, of which `requests` are asked for words."""
    hidden = 2 * HIDDEN * tokens
    blocks = [trace.take(hidden), trace.take(hidden)]
    for _ in range(4):  # some layers stand for all
        scratch = [trace.take(3 * hidden), trace.take(hidden), trace.take(4 * hidden)]
        trace.drop_all(scratch)
    return blocks + [trace.take(2 * WORDS * requests), trace.take(4 * WORDS * requests)]


def serve(trace, chance, scale, cache):
    for _ in range(LAYERS):
        for elements in (HIDDEN * HIDDEN * 4, HIDDEN * HIDDEN * 8, HIDDEN):
            trace.start(2 * elements)
    queue, running, clock = deque(), [], chance.exponential(1 / ARRIVALS)
    for step in range(max(20, round(STEPS * scale))):
        while clock <= step:
            queue.append((chance.lognormal(*PROMPT), chance.lognormal(*OUTPUT)))
            clock += chance.exponential(1 / ARRIVALS)
        while queue and len(running) < RUNNING:
            prompt, output = queue.popleft()
            running.append([cache(trace, prompt), prompt, prompt + output])
            trace.drop_all(workspaces(trace, prompt, 1))
        if running:
            blocks = workspaces(trace, len(running), len(running))
            for request in running:
                request[1] += 1
                request[0].grow(request[1])
            trace.drop_all(blocks)
        for request in [each for each in running if each[1] >= each[2]]:
            request[0].end()
            running.remove(request)
        trace.phase()
    for request in running:
        request[0].end()


def w4a(trace, chance, scale, synthetic):
    """serving: the cache of a request contiguous, for 4096 tokens at once"""
    serve(trace, chance, scale, Contiguous)


def w4b(trace, chance, scale, synthetic):
    """serving: the cache of a request doubles by allocate, copy, free"""
    serve(trace, chance, scale, Doubling)


def w4c(trace, chance, scale, synthetic):
    """serving: the cache in pages of 16 tokens"""
    serve(trace, chance, scale, Pages)
