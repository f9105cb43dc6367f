# SPDX-License-Identifier: MIT
"""A pickle written piece by piece, so that a trace of any length needs no memory: only instructions that MemoryViz.js, the
page that draws PyTorch's snapshots, knows (protocol 4 without its 64-bit lengths; a list takes its items one by one)."""

import struct

MARK, DICT, SET, LIST, APPEND, STOP = b"(", b"}", b"u", b"]", b"a", b"."
START = b"\x80\x04"


def integer(number):
    if 0 <= number < 256:
        return b"K" + bytes([number])
    if -(1 << 63) <= number < 1 << 63:
        return b"\x8a\x08" + struct.pack("<q", number)
    data = number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def string(text):
    data = text.encode("utf-8", "replace")
    return (b"\x8c" + bytes([len(data)]) if len(data) < 256 else b"X" + struct.pack("<I", len(data))) + data


class Words:
    """Texts, and the empty list, that come again and again: the first is written out and remembered, the others refer to it."""

    def __init__(self):
        self.known = {}

    def __call__(self, text):
        return self._once(text, string(text))

    def empty_list(self):
        return self._once(None, LIST)

    def _once(self, key, instructions):
        found = self.known.get(key)
        if found is None:
            number = len(self.known)
            if number == 256:
                return instructions
            self.known[key] = b"h" + bytes([number])
            return instructions + b"q" + bytes([number])
        return found


def value(thing, word):
    """A number, a truth, a text, or a dictionary, tuple or list of such, as instructions."""
    if thing is True or thing is False:
        return b"\x88" if thing else b"\x89"
    if isinstance(thing, int):
        return integer(thing)
    if isinstance(thing, str):
        return word(thing) if len(thing) < 40 else string(thing)
    if isinstance(thing, dict):
        return DICT + MARK + b"".join(word(name) + value(item, word) for name, item in thing.items()) + SET
    if isinstance(thing, tuple):
        return MARK + b"".join(value(item, word) for item in thing) + b"t"
    if not thing:
        return word.empty_list()
    return LIST + b"".join(value(item, word) + APPEND for item in thing)
