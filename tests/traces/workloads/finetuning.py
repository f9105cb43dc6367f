# SPDX-License-Identifier: MIT
"""W3: fine-tuning with low-rank adapters, recomputation, sharding and offload, over the layers of W2.

Knobs: a checkpoint every 2 layers (what lies between is allocated again in the backward pass); adapters of rank 16 on
the four attention weights, 0.5 % of the weights, allocated between them, their moments in the first optimizer step;
W3b: weights sharded over 8 devices, each layer's weights gathered before its passes, one layer ahead, and freed after
it (ZeRO-3); checkpoints offloaded (allocate, copy, free in the forward pass; the same before their use), and so the
optimizer's state of each layer.
"""

from .training import Layers, Model, length

STEPS = 24  # at scale 1
CHECKPOINT_EVERY = 2
RANK = 16
SHARDS = 8
MODEL = Model(layers=24, hidden=2048, feed=8192, heads=16, vocabulary=32000, batch=2)


class FineTuning(Layers):
    def __init__(self, trace, sharded):
        super().__init__(trace, MODEL)
        self.sharded = sharded
        self.adapters, self.moments, self.gathered = [], [], {}
        share = SHARDS if sharded else 1
        for size in [2 * MODEL.vocabulary * MODEL.hidden] * 2:
            trace.start(size // share)
        for _ in range(MODEL.layers):
            for n, elements in enumerate(MODEL.weights()):
                trace.start(max(2, 2 * elements // share))
                if n < 4:
                    pair = [4 * MODEL.hidden * RANK] * 2
                    self.adapters.append(pair)
                    for size in pair:
                        trace.start(size)

    # ------------------------------------------------------------------------------------ ZeRO-3 ---
    def gather(self, layer):
        if self.sharded and 0 <= layer < MODEL.layers and layer not in self.gathered:
            self.gathered[layer] = [self.trace.take(2 * elements) for elements in MODEL.weights()]

    def let_go(self, layer):
        self.trace.drop_all(self.gathered.pop(layer, ()))

    def forward_layer(self, layer, ahead, s):
        """As forward(), with the low-rank products."""
        t = MODEL.batch * s
        self.gather(layer)
        self.gather(layer + ahead)
        kept = self.forward(s)
        for _ in range(4):
            kept.append((self.trace.take(2 * t * RANK), 2 * t * RANK))
            self.trace.drop(self.trace.take(2 * t * MODEL.hidden))
        return kept

    # -------------------------------------------------------------------------------- checkpoints ---
    def checkpoint(self, s):
        """What the group's recomputation starts from: a block, or None where it is offloaded."""
        block = self.trace.take(2 * MODEL.batch * s * MODEL.hidden)
        if self.sharded:
            self.trace.drop(block)
            return None
        return block

    def backward_group(self, first, checkpoint, s):
        trace, kept, gradients = self.trace, [], []
        if checkpoint is None:
            checkpoint = trace.take(2 * MODEL.batch * s * MODEL.hidden)
        layers = range(first, min(first + CHECKPOINT_EVERY, MODEL.layers))
        for layer in layers:
            kept.append(self.forward_layer(layer, 1 if layer + 1 in layers else 0, s))
        for layer in reversed(layers):
            self.gather(layer - 1)
            made = [size for pair in self.adapters[4 * layer:4 * layer + 4] for size in pair]
            gradients += self.backward(kept.pop(), made)
            self.let_go(layer)
        trace.drop(checkpoint)
        return gradients

    # ---------------------------------------------------------------------------------- optimizer ---
    def optimize(self, gradients):
        trace, sizes = self.trace, [size for pair in self.adapters for size in pair]
        if not self.moments and not self.sharded:
            self.moments = [(trace.take(size), trace.take(size)) for size in sizes]
        for size in sizes:
            state = [trace.take(size), trace.take(size)] if self.sharded else []
            trace.drop(trace.take(size))
            trace.drop_all(state)
        trace.drop_all(gradients)

    def loss(self, s):
        t, words = MODEL.batch * s, MODEL.vocabulary
        logits = self.trace.take(2 * t * words)
        softmax = self.trace.take(4 * t * words)
        self.trace.drop(logits)
        self.trace.drop(softmax)

    def step(self, s):
        checkpoints, gradients = [], []
        for layer in range(MODEL.layers):
            if layer % CHECKPOINT_EVERY == 0:
                checkpoints.append((layer, self.checkpoint(s)))
            self.trace.drop_all(block for block, _ in self.forward_layer(layer, 1, s))
            self.let_go(layer)
        self.loss(s)
        for first, checkpoint in reversed(checkpoints):
            gradients += self.backward_group(first, checkpoint, s)
        for layer in list(self.gathered):
            self.let_go(layer)
        self.optimize(gradients)
        self.trace.phase()


def fine_tune(trace, chance, scale, sharded):
    made = FineTuning(trace, sharded)
    for _ in range(max(2, round(STEPS * scale))):
        made.step(length(chance))


def w3a(trace, chance, scale, synthetic):
    """fine-tuning: adapters and recomputation, lengths as W2b"""
    fine_tune(trace, chance, scale, False)


def w3b(trace, chance, scale, synthetic):
    """fine-tuning: adapters, recomputation, ZeRO-3 gathers and offload, lengths as W2b"""
    fine_tune(trace, chance, scale, True)
