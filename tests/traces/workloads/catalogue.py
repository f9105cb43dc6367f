# SPDX-License-Identifier: MIT
"""The workloads by name."""

import re

from . import adversarial, finetuning, serving, small, static, streams, tables, training, vision
from .chance import Chance
from .trace import Trace

ALL = {
    "W1a": training.w1a, "W1b": training.w1b, "W2a": training.w2a, "W2b": training.w2b,
    "W3a": finetuning.w3a, "W3b": finetuning.w3b,
    "W4a": serving.w4a, "W4b": serving.w4b, "W4c": serving.w4c,
    **{f"W5a-{count}-{size}": tables.w5a(count, size) for count in tables.COUNTS for size in tables.SIZES},
    "W5b": tables.w5b,
    "W6": vision.w6,
    "W7a": streams.w7a, "W7b": streams.w7b, "W7c": streams.w7c,
    "W8": small.w8, "W9": small.w9,
    "W10a": adversarial.w10a, "W10b": adversarial.w10b, "W10c": adversarial.w10c, "W10d": adversarial.w10d,
    "W10e": adversarial.w10e, "W10f": adversarial.w10f,
    "static": static.static,
}
PLAIN = {"W1": "W1a", "W2": "W2b", "W3": "W3b", "W4": "W4b", "W5": "W5a-100k-64", "W5a": "W5a-100k-64", "W7": "W7a",
         "W10": "W10d"}


def full_name(name):
    """Raises KeyError for what is no workload."""
    name = PLAIN.get(name, name)
    if name not in ALL:
        raise KeyError(name)
    return name


def group(name):
    """W5 of W5a-1k-4; static."""
    return re.match(r"W\d+|\w+", name).group()


def make(name, seed, scale, synthetic=False, uses=False):
    """The trace's text. Raises KeyError for an unknown name, ValueError for a scale that is not above 0."""
    name = full_name(name)
    if not 0 < scale <= 1000:
        raise ValueError("the scale must be above 0, and at most 1000")
    trace = Trace(uses)
    ALL[name](trace, Chance(seed, name), scale, synthetic)
    return trace.text()
