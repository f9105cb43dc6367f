#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prepares a trace for trace_program: `workload.py NAME OUT.trc`.

NAME is a recorded trace (med128, med1024, inf1024, medvar; recorded/README.md), or `generated[:LAYERS[:SEQUENCE[:SEED]]]`: a training step of a
transformer, made here, with the shape of the recorded ones: a few hundred parameters live from the start; per layer about a dozen activations
allocated in the forward pass and kept, some temporaries freed at once; the backward pass frees the activations in
reverse order between short-lived gradients of the same sizes; parameter gradients stay until the step's end.
With the defaults: 2586 allocations, 71 % of them above 1 MiB, of 8 sizes (recorded: 6500-7600, 82 %, 9-25).
"""

import lzma
import random
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "recorded"
RECORDED = ("med128", "med1024", "inf1024", "medvar")


def recorded(name):
    """The text of a recorded trace."""
    with lzma.open(FOLDER / f"{name}.trc.xz", "rt", encoding="ascii") as file:
        return file.read()


class Step:
    """Writes events, giving out ids and knowing what is live."""

    def __init__(self):
        self.lines = []
        self.next = 0

    def take(self, size, kind="A"):
        self.next += 1
        self.lines.append(f"{kind} {self.next} {max(512, size)} 0")
        return self.next

    def drop(self, block):
        self.lines.append(f"F {block}")


def generated(layers=24, sequence=256, seed=1, width=1024, batch=3):
    """The text of a generated training step. The same arguments give the same text."""
    rng = random.Random(seed)
    step = Step()
    hidden = 4 * batch * sequence * width
    weights = [4 * width * width] * 4 + [16 * width * width] * 2 + [4 * width] * 4
    vocabulary = 4 * 10000 * width
    for size in [vocabulary] * 3:
        step.take(size, "I")
    for _ in range(layers):
        for size in weights * 3:  # parameters and two optimizer moments
            step.take(size, "I")
    shapes = [hidden] * 6 + [4 * hidden] * 2 + [4 * batch * 16 * sequence * sequence] * 2 + [4 * batch * sequence] * 4
    kept, gradients = [], []
    for _ in range(layers):
        layer = []
        for size in shapes:
            temporaries = [step.take(rng.choice(shapes)) for _ in range(rng.randint(1, 3))]
            layer.append(step.take(size))
            for block in temporaries:
                step.drop(block)
        kept.append(layer)
    logits = [step.take(4 * batch * sequence * 10000) for _ in range(3)]
    for block in logits:
        step.drop(block)
    for layer in reversed(kept):
        for block, size in zip(reversed(layer), reversed(shapes)):
            temporaries = [step.take(size)] + [step.take(rng.choice(shapes)) for _ in range(rng.randint(1, 5))]
            step.drop(block)
            for gradient in temporaries:
                step.drop(gradient)
        gradients += [step.take(size) for size in weights]
    gradients.append(step.take(vocabulary))
    for block in gradients:
        step.drop(block)
    step.lines.append("P")
    return "\n".join(step.lines) + "\n"


def text(name):
    if name in RECORDED:
        return recorded(name)
    kind, *numbers = name.split(":")
    if kind != "generated" or len(numbers) > 3:
        raise ValueError(f"unknown trace {name}")
    return generated(**dict(zip(("layers", "sequence", "seed"), map(int, numbers))))


def prepare(name, where):
    """Writes NAME.trc into a folder and returns its path."""
    path = Path(where) / (name.replace(":", "-") + ".trc")
    path.write_text(text(name), encoding="ascii")
    return path


def main(argv):
    if len(argv) != 2:
        sys.stderr.write("usage: workload.py NAME OUT.trc\n")
        return 2
    try:
        Path(argv[1]).write_text(text(argv[0]), encoding="ascii")
    except (OSError, ValueError) as problem:
        sys.stderr.write(f"workload.py: {problem}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
