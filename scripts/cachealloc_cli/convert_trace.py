# SPDX-License-Identifier: MIT
"""Reads a trace of ours: cachealloc-trace(5) tells the format. What it says of a record is what a Trace gives."""

import bisect
import struct

MAGIC = b"\x89CAtr\r\n\n"
_HEADER = struct.Struct("<8sIHHIIIIQQII")
_RECORD = struct.Struct("<BBHIQQ")
ALLOC, ADOPT, FREE, KEPT, FAILED, TAKEN, RETURNED, REFUSED, FINISHED, STREAM, DEVICE = range(1, 12)
TIME = 13
END, WORK = 15, 16
(POOL, ASYNC_ALLOC, ASYNC_FREE, ASYNC_FAILED, ASYNC_TAKEN, ASYNC_RETURNED, ASYNC_REFUSED, PINNED_ALLOC, PINNED_FREE, PINNED_TAKEN,
 PINNED_RETURNED) = range(18, 29)
NO_STREAM, ANY_STREAM, NO_DEVICE, LEGACY = 0xffff, 0xfffe, 0xff, 2
_BYTES = (1 << 48) - 1
_PROGRAM = 2


class State:
    """What the records so far say is there. Keys are (device, address)."""

    def __init__(self):
        self.live = {}      # (bytes, stream)
        self.segments = {}  # bytes; `_begins` has their addresses of each device, in order
        self._begins = {}
        self.pools = {}     # of stream-ordered segments: the number of their pool
        self.pinned = {}    # live page-locked memory: bytes
        self.streams = {}   # number in the trace -> the one that others use

    def take(self, device, begin, size):
        if (device, begin) not in self.segments:
            bisect.insort(self._begins.setdefault(device, []), begin)
        self.segments[device, begin] = size

    def give_back(self, device, begin, size):
        """What was mapped in pieces may go as one piece, or in others (expandable_segments)."""
        begins, end = self._begins.get(device, []), begin + size
        first = at = max(bisect.bisect_right(begins, begin) - 1, 0)
        rests = []
        while at < len(begins) and begins[at] < end:
            low, high = begins[at], begins[at] + self.segments.pop((device, begins[at]))
            rests += [(low, min(begin, high)), (end, high)]
            at += 1
        del begins[first:at]
        for low, high in rests:
            if low < high:
                self.take(device, low, high - low)

    def stream(self, number):
        """As other tools number them: 0 is the default stream. None: none."""
        if number in (NO_STREAM, ANY_STREAM):
            return None
        return self.streams.get(number, number + 1)


class Trace:
    """Raises ValueError, with a sentence, where the header or a record makes no sense."""

    def __init__(self, data):
        self.data = data
        if len(data) < _HEADER.size:
            raise ValueError("the trace is cut off in its header")
        (_, order, version, _, self.begin, fixed, self.step, self.tick_ns, self.start, self.start_unix_ns, self.pid,
         _) = _HEADER.unpack_from(data)
        if order != 0x01020304:
            raise ValueError("the trace has another byte order")
        if version != 1:
            raise ValueError(f"the trace has version {version} of its format; version 1 is what can be read here")
        if fixed < _HEADER.size or self.begin < fixed or self.step < _RECORD.size or not self.tick_ns:
            raise ValueError("the trace's header makes no sense")
        self.program = self._field(fixed, _PROGRAM)

    def _field(self, at, wanted):
        while at + 8 <= min(self.begin, len(self.data)):
            tag, length = struct.unpack_from("<II", self.data, at)
            if tag == wanted:
                return self.data[at + 8:at + 8 + length].decode("utf-8", "replace")
            at += 8 + (length + 7) // 8 * 8
        return ""

    def is_cut(self):
        """It does not end as a whole trace does."""
        count, rest = divmod(max(len(self.data) - self.begin, 0), self.step)
        return bool(rest) or not count or self.data[self.begin + (count - 1) * self.step] != END

    def ordinals(self):
        """The devices that any record is of."""
        whole = self.begin + max(len(self.data) - self.begin, 0) // self.step * self.step
        return sorted(set(self.data[self.begin + 1:whole:self.step]) - {NO_DEVICE})

    def memory(self, ordinal):
        """The bytes of a device; 0: not known."""
        kinds = self.data[self.begin::self.step]
        at = kinds.find(DEVICE)
        while at >= 0 and self.begin + (at + 1) * self.step <= len(self.data):
            _, device, _, _, size, _ = _RECORD.unpack_from(self.data, self.begin + at * self.step)
            if device == ordinal:
                return size
            at = kinds.find(DEVICE, at + 1)
        return 0

    def _records(self):
        time, data, last = self.start // self.tick_ns, self.data, len(self.data) - self.step
        for at in range(self.begin, last + 1, self.step):
            kind, device, stream, low, a, b = _RECORD.unpack_from(data, at)
            if kind == TIME and a > time:
                time = a
            difference = (low - time) & 0xffffffff
            now = time + difference - (difference >> 31 << 32)
            time = max(time, now)
            yield kind, device, stream, self.start_unix_ns + now * self.tick_ns - self.start, a, b, at

    def events(self, state):
        """((kind, time in ns since 1970, device, thread, address, bytes, stream, road), offset in the file) each time, and
        `state`, a new one, follows."""
        for kind, device, stream, time, a, b, at in self._records():
            meaning = _of_road if kind >= POOL else _meaning
            for name, address, size, number, *road in meaning(state, kind, device, stream, a, b, at):
                yield (name, time, device, b >> 48, address, size, number, *road), at


def _meaning(state, kind, device, stream, a, b, at):
    """(event, address, bytes, stream) for each that the record stands for. Updates `state`."""
    key, size = (device, a), b & _BYTES
    if kind in (ALLOC, ADOPT, KEPT):
        if key in state.live:
            raise ValueError(f"byte {at}: address {a:#x} is allocated while it is live")
        number = state.stream(stream)
        state.live[key] = (size, number)
        yield "alloc", a, size, number
    elif kind == FREE:
        size, number = state.live.pop(key, (0, None))
        if size:
            yield "free", a, size, number
    elif kind == FAILED:
        yield "oom", 0, a, state.stream(stream)
    elif kind == TAKEN:
        state.take(device, a, size)
        yield "segment_alloc", a, size, None
    elif kind == RETURNED:
        state.give_back(device, a, size)
        yield "segment_free", a, size, None
    elif kind == REFUSED:
        yield "segment_refused", 0, a, None
    elif kind == WORK:
        yield "work", 0, 0, state.stream(stream)
    elif kind == FINISHED and not size:
        yield "idle", 0, 0, state.stream(stream)
    elif kind == STREAM:
        state.streams[stream] = 0 if size == LEGACY else stream + 1


def _of_road(state, kind, device, stream, a, b, at):
    """The same, with the road behind, of memory that cudaMalloc has nothing to do with."""
    key, size = (device, a), b & _BYTES
    if kind == ASYNC_ALLOC:
        for found in _meaning(state, ALLOC, device, stream, a, b, at):
            yield (*found, "async")
    elif kind == ASYNC_FREE:
        size, number = state.live.pop(key, (0, None))
        if size:
            freed = state.stream(stream)
            yield "free", a, size, number if freed is None else freed, "async"
    elif kind in (ASYNC_TAKEN, ASYNC_RETURNED, ASYNC_REFUSED, ASYNC_FAILED):
        as_of = {ASYNC_TAKEN: TAKEN, ASYNC_RETURNED: RETURNED, ASYNC_REFUSED: REFUSED, ASYNC_FAILED: FAILED}[kind]
        if kind == ASYNC_TAKEN:
            state.pools[key] = stream
        elif kind == ASYNC_RETURNED:
            state.pools.pop(key, None)
        for found in _meaning(state, as_of, device, stream, a, b, at):
            yield (*found, "async")
    elif kind in (PINNED_TAKEN, PINNED_RETURNED):
        live = state.pinned.pop(key, 0) if kind == PINNED_RETURNED else 0
        if live:  # the driver has freed it
            yield "free", a, live, None, "pinned"
        yield "segment_alloc" if kind == PINNED_TAKEN else "segment_free", a, size, None, "pinned"
    elif kind == PINNED_ALLOC:
        state.pinned[key] = size
        yield "alloc", a, size, None, "pinned"
    elif kind == PINNED_FREE and key in state.pinned:
        yield "free", a, state.pinned.pop(key), None, "pinned"
