# SPDX-License-Identifier: MIT
"""A large PyTorch snapshot, instruction by instruction as Python's pickler writes it, without building it in memory."""

import random
import struct

KEYS = ("action", "addr", "size", "stream", "time_us", "compile_context", "user_metadata", "frames")
BASE, SLOT, SLOTS, FRAMES, BATCH = 0x7F0000000000, 2 << 20, 4096, 3000, 1000


def text(word):
    data = word.encode()
    return b"\x8c" + bytes([len(data)]) + data + b"\x94"  # SHORT_BINUNICODE, MEMOIZE


def integer(number):
    if number < 1 << 16:
        return b"M" + struct.pack("<H", number)
    data = number.to_bytes(number.bit_length() // 8 + 1, "little")
    return b"\x8a" + bytes([len(data)]) + data  # LONG1


def get(index):
    return b"h" + bytes([index]) if index < 256 else b"j" + struct.pack("<I", index)


def write(path, size, seed=1):
    """At least `size` bytes. Returns the number of events."""
    rnd = random.Random(seed)
    with open(path, "wb") as file:
        # what is referred to later comes first, in a list that nobody reads: words 0 to 7 of the memo, then actions, then
        # frames, each of which takes three numbers: itself, its name, its file
        file.write(b"\x80\x04}(" + text("external_annotations") + b"](" + b"".join(map(text, KEYS)))
        file.write(b"".join(map(text, ("alloc", "free_requested", "free_completed", "N/A", "", "name", "filename", "line"))))
        for i in range(FRAMES):
            file.write(b"}\x94(" + get(14) + text(f"at::native::function_{i}(at::Tensor const&, long)") + get(15)
                       + text(f"file_{i % 40}.cpp") + get(16) + integer(i) + b"u")
        file.write(b"e" + text("device_traces") + b"](](")
        return events(file, size, rnd)


def events(file, size, rnd):
    stacks = [[get(17 + 3 * rnd.randrange(FRAMES)) for _ in range(60)] for _ in range(400)]
    free, live, made, time = list(range(SLOTS)), [], 0, 1783874422287973
    while True:
        time += rnd.randrange(1, 40)
        if free and (not live or rnd.random() < .5):
            live.append((free.pop(), rnd.randrange(1, 4096) * 512))
            slot, actions = live[-1], (9,)
        else:
            slot, actions = live.pop(rnd.randrange(len(live))), (10, 11)
            free.append(slot[0])
        for action in actions:
            values = (get(action), integer(BASE + slot[0] * SLOT), integer(slot[1]), b"K\x00", integer(time), get(12), get(13),
                      b"]\x94(" + b"".join(rnd.choice(stacks)[:rnd.randrange(2, 58)]) + b"e")
            file.write(b"}\x94(" + b"".join(get(1 + i) + value for i, value in enumerate(values)) + b"u")
            made += 1
            if made % BATCH == 0:
                if file.tell() >= size:
                    file.write(b"ee" + text("segments") + b"]u.")
                    return made
                file.write(b"e(")
