# SPDX-License-Identifier: MIT
"""W1, W2: training steps of a transformer, recorded or made here with the shape of the recorded ones.

A made step, tokens t = batch x sequence s, hidden h, feed-forward f, heads a, float32 master weights with bfloat16
casts: per layer the forward pass keeps activations for {norm, q k v, attention s^2, projection, norm, mlp} and frees
casts and scratch at once; the backward pass frees them in reverse order between gradients of the same sizes, and makes
a gradient for each weight, which lives until the next step begins; the optimizer replaces both moments of each weight.
One stream; a phase ends with each step.
"""

from dataclasses import dataclass

from .trace import recorded

STEPS = {"W1": 20, "W2a": 24, "W2b": 40}  # at scale 1
RECORDED = {1024: "med1024", 128: "med128"}  # by sequence length
STAND_IN_LENGTHS = (128, 256, 512, 1024)  # W2a without the recorded traces
LENGTH = {"median": 700, "sigma": 0.8, "low": 128, "high": 4096, "multiple": 8}  # W2b, W3: lognormal


@dataclass(frozen=True)
class Model:
    """The recorded one: 24 layers, 1024 wide."""

    layers: int = 24
    hidden: int = 1024
    feed: int = 4096
    heads: int = 16
    vocabulary: int = 10000
    batch: int = 4

    def weights(self):
        """Elements of each weight of a layer: q k v o, up gate down, two norms."""
        h, f = self.hidden, self.feed
        return [h * h] * 4 + [h * f] * 3 + [h] * 2

    def forward(self, s):
        """(kept, scratch) of each operation of a layer, in bytes."""
        t, h, f, scores = self.batch * s, self.hidden, self.feed, self.batch * self.heads * s * s
        norm = ([4 * t, 4 * t * h], [4 * t * h])
        return [
            norm,
            ([2 * t * h], [2 * h * h]), ([2 * t * h], [2 * h * h]), ([2 * t * h], [2 * h * h]),  # q k v
            ([2 * t * h], [2 * t * h]), ([2 * t * h], [2 * t * h]),  # positions
            ([4 * scores, 2 * t * h], [s * s, 4 * scores]),  # attention
            ([4 * t * h], [2 * h * h]),  # projection and residual
            norm,
            ([2 * t * f], [2 * h * f]), ([2 * t * f], [2 * h * f]), ([2 * t * f], [2 * t * f]),  # gate, up, product
            ([4 * t * h], [2 * h * f, 2 * t * h]),  # down and residual
        ]


def length(chance):
    step = LENGTH["multiple"]
    size = chance.lognormal(LENGTH["median"], LENGTH["sigma"], LENGTH["low"], LENGTH["high"])
    return size // step * step


class Layers:
    """The passes over a model's layers, which W3 varies."""

    def __init__(self, trace, model):
        self.trace, self.model = trace, model

    def forward(self, s):
        """One layer; what it keeps, as (block, bytes)."""
        trace, kept = self.trace, []
        for keeps, scratch in self.model.forward(s):
            blocks = [trace.take(size) for size in scratch]
            kept += [(trace.take(size), size) for size in keeps]
            trace.drop_all(blocks)
        return kept

    def backward(self, kept, gradients=()):
        """Frees what a layer kept; the gradients' sizes are allocated on the way and returned as blocks."""
        trace, made, flowing = self.trace, [], None
        gradients = list(gradients)
        share = -(-len(gradients) // len(kept))
        for block, size in reversed(kept):
            arriving = trace.take(size)
            scratch = trace.take(size)
            for wanted in gradients[:share]:
                cast = trace.take(wanted // 2)
                made.append(trace.take(wanted))
                trace.drop(cast)
            del gradients[:share]
            trace.drop(scratch)
            trace.drop(block)
            if flowing is not None:
                trace.drop(flowing)
            flowing = arriving
        trace.drop(flowing)
        return made


class Training(Layers):
    """A model with its weights, moments and gradients."""

    def __init__(self, trace, model):
        super().__init__(trace, model)
        ends = [model.vocabulary * model.hidden] * 2  # embedding and head
        self.sizes = [4 * n for n in ends + model.weights() * model.layers]
        self.gradients = []
        for size in self.sizes:
            trace.start(size)
        self.moments = [[trace.start(size), trace.start(size)] for size in self.sizes]

    def loss(self, s):
        t, h, words = self.model.batch * s, self.model.hidden, self.model.vocabulary
        trace = self.trace
        logits = [trace.take(2 * t * words), trace.take(4 * t * words)]
        softmax = trace.take(4 * t * words)
        trace.drop(trace.take(4 * t))
        trace.drop_all(logits)
        gradient = trace.take(4 * t * words)
        trace.drop(softmax)
        head = trace.take(4 * words * h)
        trace.drop(gradient)
        return head

    def optimize(self):
        trace = self.trace
        for size, moments in zip(self.sizes, self.moments):
            for i in range(2):
                scratch = trace.take(size)
                renewed = trace.take(size)
                trace.drop(scratch)
                trace.drop(moments[i])
                moments[i] = renewed
            scratch = [trace.take(size), trace.take(size)]
            trace.drop_all(scratch)

    def step(self, s):
        self.trace.drop_all(self.gradients)  # set_to_none
        inputs = [self.trace.take(8 * self.model.batch * s) for _ in range(2)]
        kept = [self.forward(s) for _ in range(self.model.layers)]
        self.gradients = [self.loss(s)]
        for layer in reversed(kept):
            self.gradients += self.backward(layer, [4 * n for n in self.model.weights()])
        self.gradients.append(self.trace.take(self.sizes[0]))
        self.optimize()
        self.trace.drop_all(inputs)
        self.trace.phase()


# ------------------------------------------------------------------------------------------ recorded steps ---


class Step:
    """A recorded step: what was live before it, and what happened."""

    def __init__(self, lines):
        self.before = [(words[1], int(words[2])) for words in lines if words[0] == "I"]
        self.events = [words for words in lines if words[0] in "AF"]
        freed = {words[1] for words in self.events if words[0] == "F"}
        self.kept = [(name, size) for name, size in self.before if name not in freed]
        self.freed = [(name, size) for name, size in self.before if name in freed]


class Glued:
    """Recorded steps one after the other. What was live before a step is found by size among what is live: what the
    step keeps among the oldest (weights), what it frees among the youngest (moments). What nobody finds, the
    gradients, is freed where the next step begins, as zero_grad does."""

    def __init__(self, trace):
        self.trace = trace
        self.live = {}  # size -> blocks, oldest first

    def find(self, size, youngest):
        blocks = self.live.get(size)
        if blocks:
            return blocks.pop(-1 if youngest else 0)
        return None if self.trace.started else self.trace.start(size)

    def play(self, step):
        trace = self.trace
        named = {name: self.find(size, False) for name, size in step.kept}
        named.update({name: self.find(size, True) for name, size in reversed(step.freed)})
        for blocks in self.live.values():
            trace.drop_all(blocks)
        for name, size in step.before:
            named[name] = named[name] or trace.take(size)
        for words in step.events:
            if words[0] == "A":
                named[words[1]] = trace.take(int(words[2]))
            else:
                trace.drop(named.pop(words[1]))
        self.live = {}
        for block in sorted(named.values()):
            self.live.setdefault(trace.live[block], []).append(block)
        trace.phase()


def steps_of(lengths):
    """{length: Step} of recorded lengths."""
    return {s: Step(recorded(RECORDED[s])) for s in lengths}


def many(workload, scale):
    return max(2, round(STEPS[workload] * scale))


def fixed(trace, scale, s, synthetic):
    steps = None if synthetic else steps_of([s])
    glued, made = (Glued(trace), None) if steps else (None, Training(trace, Model()))
    for _ in range(many("W1", scale)):
        if glued:
            glued.play(steps[s])
        else:
            made.step(s)


def w1a(trace, chance, scale, synthetic):
    """fixed-shape training: med1024 again and again (or a made step of length 1024)"""
    fixed(trace, scale, 1024, synthetic)


def w1b(trace, chance, scale, synthetic):
    """fixed-shape training: med128 again and again (or a made step of length 128)"""
    fixed(trace, scale, 128, synthetic)


def w2a(trace, chance, scale, synthetic):
    """variable length: med128 and med1024 mixed at random (or made steps of 128, 256, 512 and 1024)"""
    steps = None if synthetic else steps_of(list(RECORDED))
    glued, made = (Glued(trace), None) if steps else (None, Training(trace, Model()))
    for _ in range(many("W2a", scale)):
        if glued:
            glued.play(steps[chance.pick(sorted(steps))])
        else:
            made.step(chance.pick(STAND_IN_LENGTHS))


def w2b(trace, chance, scale, synthetic):
    """variable length: made steps, 12 layers, batch 2, length lognormal (median 700, sigma 0.8) in 128..4096"""
    made = Training(trace, Model(layers=12, batch=2))
    for _ in range(many("W2b", scale)):
        made.step(length(chance))
