# SPDX-License-Identifier: MIT
"""Reads a trace as its documentation (cachealloc-trace(5), allocator/trace/format.h) says, apart from
the code under test."""

import bisect
import struct
from typing import NamedTuple

HEADER = struct.Struct("<8sIHHIIIIQQII")
RECORD = struct.Struct("<BBHIQQ")
MAGIC = b"\x89CAtr\r\n\n"
FIELDS = {1: "library", 2: "program", 3: "settings"}
KINDS = {1: "alloc", 2: "adopt", 3: "free", 4: "kept", 5: "failed", 6: "taken", 7: "returned", 8: "refused",
         9: "finished", 10: "stream", 11: "device", 12: "name", 13: "time", 14: "fork", 15: "end", 16: "work", 17: "look",
         18: "pool", 19: "async_alloc", 20: "async_free", 21: "async_failed", 22: "async_taken", 23: "async_returned",
         24: "async_refused", 25: "pinned_alloc", 26: "pinned_free", 27: "pinned_taken", 28: "pinned_returned", 29: "async_trim",
         30: "event", 31: "wait"}
NO_STREAM, ANY_STREAM = 0xffff, 0xfffe


class Record(NamedTuple):
    kind: str
    device: int
    stream: int
    ns: int  # since the header was written
    a: int
    b: int

    @property
    def bytes(self):
        return self.b & (1 << 48) - 1

    @property
    def thread(self):
        return self.b >> 48

    @property
    def users(self):
        """Of a free: the numbers of the streams that may still use the block."""
        numbers = [self.stream, self.b & 0xffff, self.b >> 16 & 0xffff, self.b >> 32 & 0xffff]
        return [n for n in numbers if n != NO_STREAM]


class Trace:
    def __init__(self, data):
        (magic, order, self.version, self.minor, self.header_bytes, fixed, self.record_bytes, self.tick_ns, self.start_ns,
         self.start_unix_ns, self.pid, self.parent_pid) = HEADER.unpack_from(data)
        assert magic == MAGIC and order == 0x01020304
        assert self.version == 1 and self.record_bytes == 24 and self.tick_ns == 1
        self.fields = {}
        at = fixed
        while at < self.header_bytes:
            tag, length = struct.unpack_from("<II", data, at)
            self.fields[FIELDS[tag]] = data[at + 8:at + 8 + length].decode()
            at += 8 + (length + 7) // 8 * 8
        assert at == self.header_bytes
        self.torn = (len(data) - self.header_bytes) % self.record_bytes
        self.records = list(self._records(data))

    def _records(self, data):
        time = self.start_ns
        for at in range(self.header_bytes, len(data) - self.torn, self.record_bytes):
            kind, device, stream, low, a, b = RECORD.unpack_from(data, at)
            if KINDS[kind] == "time":
                time = max(time, a)
            difference = (low - time) & 0xffffffff
            now = time + difference - (difference >> 31 << 32)
            time = max(time, now)
            yield Record(KINDS[kind], device, stream, now - self.start_ns, a, b)

    def of(self, *kinds):
        return [r for r in self.records if r.kind in kinds]

    @property
    def whole(self):
        return not self.torn and [r.kind for r in self.records[-1:]] == ["end"]

    def device_name(self, device):
        pieces = sorted((r.stream, struct.pack("<QQ", r.a, r.b)) for r in self.of("name") if r.device == device)
        return b"".join(piece for _, piece in pieces).rstrip(b"\0").decode()

    def live_at_the_end(self):
        """{(device, address): record}. Asserts that what is allocated overlaps nothing that is live, and the like."""
        live, starts = {}, []  # starts: (device, address), sorted
        for r in self.records:
            where = (r.device, r.a)
            if r.kind in ("alloc", "adopt", "kept"):
                at = bisect.bisect_left(starts, where)
                for other in starts[max(at - 1, 0):at + 1]:
                    end = other[1] + live[other].bytes
                    assert other[0] != r.device or end <= r.a or r.a + r.bytes <= other[1], f"{r} overlaps {live[other]}"
                starts.insert(at, where)
                live[where] = r
            elif r.kind == "free":
                assert where in live, f"{r}: not live"
                del live[where], starts[bisect.bisect_left(starts, where)]
        return live


def read(path):
    return Trace(path.read_bytes())
