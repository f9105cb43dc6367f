# SPDX-License-Identifier: MIT
"""Traces in our own format, as seeds."""

import struct

NONE = 0xffff
USERS = (1 << 48) - 1  # none


def header(record_bytes=24, more=0, minor=0):
    fields = struct.pack("<II8s", 2, 7, b"program")
    return struct.pack("<8sIHHIIIIQQII", b"\x89CAtr\r\n\n", 0x01020304, 1, minor, 56 + more + len(fields), 56 + more, record_bytes,
                       1, 1000, 1, 2, 3) + bytes(more) + fields


def records(extra=b""):
    rows = [(11, 0, NONE, 1000, 1 << 30, 0), (12, 0, 0, 1000, 0x6665646362, 0), (10, 0, 0, 1000, 0, 2),
            (6, 0, NONE, 1001, 0x200000, 2 << 20), (1, 0, 0, 1002, 0x200000, 100), (1, 0, 1, 1003, 0x200200, 700),
            (3, 0, 1, 1004, 0x200000, USERS), (1, 0, 1, 1005, 0x200000, 100), (9, 0, 1, 1006, 0, 0),
            (3, 0, NONE, 1007, 0x200200, USERS), (4, 0, NONE, 1008, 0x200200, 700), (5, 0, NONE, 1009, 1 << 40, 2),
            (8, 0, NONE, 1009, 1 << 40, 2), (2, 1, NONE, 1010, 0x900000, 30000), (14, 255, NONE, 1011, 0, 0),
            (13, 255, NONE, 5, 1 << 33, 0), (7, 0, NONE, 6, 0x200000, 2 << 20), (15, 255, NONE, 7, 0, 0)]
    return b"".join(struct.pack("<BBHIQQ", *row) + extra for row in rows)


def roads():
    """Stream-ordered memory of two pools, one of which is destroyed; the program's order; page-locked memory."""
    rows = [(18, 0, 0, 7, 1), (10, 0, 1, 0, 1), (10, 0, 2, 0, 1), (16, 0, 1, 0, 0), (22, 0, 0, 0x10000000, 4 << 20),
            (19, 0, 1, 0x10000000, 3 << 20), (20, 0, 1, 0x10000000, 5), (30, 0, 1, 0xe0, 0), (16, 0, 2, 0, 0), (31, 0, 2, 0xe0, 0),
            (19, 0, 2, 0x10000000, 1 << 20), (9, 0, 1, 2, 1 | 7 << 1), (20, 0, 0xffff, 0x10000000, 0), (18, 0, 1, 15, 1),
            (24, 0, 1, 8 << 20, 2), (22, 0, 1, 0x20000000, 2 << 20), (19, 0, 1, 0x20000000, 2 << 20), (18, 0, 1, 15, 0),
            (20, 0, 0xfffe, 0x20000000, 0), (29, 0, 0, 1 << 20, 0), (23, 0, 0, 0x10000000, 4 << 20), (21, 0, 1, 1 << 40, 2),
            (27, 0, 0xffff, 0x30000000, 9 << 10), (25, 0, 0xffff, 0x30000000, 8200), (26, 0, 0xffff, 0x30000000, 0),
            (25, 0, 0xffff, 0x30000000, 9000), (28, 0, 0xffff, 0x30000000, 9 << 10), (9, 0, 2, 0, 0), (15, 255, 0xffff, 0, 0)]
    return b"".join(struct.pack("<BBHIQQ", kind, device, stream, 1000 * at, a, b)
                    for at, (kind, device, stream, a, b) in enumerate(rows, 1))


def told():
    """What was submitted, and when the allocator saw it finished: with two streams, users that are not listed excepted."""
    rows = [(10, 0, 0, 1000, 0, 1), (10, 0, 1, 1000, 0, 1), (6, 0, NONE, 1001, 0x200000, 2 << 20),
            (1, 0, NONE, 1002, 0x200000, 100), (16, 0, 0, 1003, 0, 0), (1, 0, 0, 1004, 0x200200, 700),
            (3, 0, 0, 1005, 0x200200, USERS), (16, 0, 1, 1006, 0, 0), (9, 0, 1, 1007, 1, 0), (17, 0, NONE, 1008, 0, 0),
            (9, 0, 0, 2000, 0, 1), (9, 0, 0, 90000, 0, 0), (6, 0, NONE, 90001, 0x40000000, 20 << 20),
            (1, 0, 0, 90002, 0x40000000, 20 << 20), (3, 0, NONE, 90003, 0x40000000, USERS), (9, 0, 0, 90004, 0, 0),
            (17, 0, NONE, 90005, 0, 0), (5, 0, NONE, 90006, 1 << 40, 2)]
    return b"".join(struct.pack("<BBHIQQ", *row) for row in rows)


def seeds():
    """Yields (name, bytes)."""
    yield "whole", header() + records()
    yield "cut", (header() + records())[:-30]
    yield "told", header(minor=1) + told()
    yield "roads", header(minor=2) + roads()
    yield "unlisted", header(minor=1) + told() + struct.pack("<BBHIQQ", 3, 0, 0xfffe, 90007, 0x200000, USERS)
    yield "later", header(40, 16) + records(bytes(16))
