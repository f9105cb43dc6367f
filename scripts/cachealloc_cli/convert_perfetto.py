# SPDX-License-Identifier: MIT
"""--to perfetto: a Trace of Perfetto's protocol buffers (protos/perfetto/trace), written by hand.

A process with a track a device; under it two counters, allocated and reserved, the allocations and frees as instants, and
the driver's segments as instants; and a track for each stream of which the recording tells when it had work, with a
slice as long as that.
"""

from .convert_tables import Totals

# Field numbers.
PACKET = 1  # of Trace
TIMESTAMP, SEQUENCE, EVENT, DESCRIPTOR = 8, 10, 11, 60  # of TracePacket
UUID, NAME, PROCESS, PARENT, COUNTER = 1, 2, 3, 5, 8  # of TrackDescriptor
PROCESS_PID, PROCESS_NAME = 1, 6  # of ProcessDescriptor
COUNTER_UNIT, UNIT_BYTES = 3, 3  # of CounterDescriptor
ANNOTATION, TYPE, TRACK, EVENT_NAME, VALUE = 4, 9, 11, 23, 30  # of TrackEvent
NOTE_UINT, NOTE_POINTER, NOTE_NAME = 3, 7, 10  # of DebugAnnotation
BEGIN, END, INSTANT, COUNT = 1, 2, 3, 4  # of TrackEvent.Type


def _long(number):
    data = bytearray()
    number &= (1 << 64) - 1
    while number > 127:
        data.append(number & 127 | 128)
        number >>= 7
    data.append(number)
    return bytes(data)


_SHORT = [_long(i) for i in range(1 << 10)]  # most numbers, and all tags


def _varint(value):
    return _SHORT[value] if 0 <= value < 1 << 10 else _long(value)


def number(field, value):
    return _SHORT[field << 3] + _varint(value)


def text(field, value):
    data = value if isinstance(value, bytes) else value.encode("utf-8", "replace")
    return _SHORT[field << 3 | 2] + _varint(len(data)) + data


class _Writer:
    def __init__(self, out):
        self.out = out
        self.tracks = {}

    def packet(self, body):
        self.out(text(PACKET, number(SEQUENCE, 1) + body))

    def track(self, key, name, parent=None, more=b""):
        """The track's number; described when it is first asked for."""
        found = self.tracks.get(key)
        if found is None:
            found = self.tracks[key] = len(self.tracks) + 1
            above = number(PARENT, parent) if parent else b""
            self.packet(text(DESCRIPTOR, number(UUID, found) + text(NAME, name) + above + more))
        return found

    def event(self, time, body):
        self.packet(number(TIMESTAMP, time) + text(EVENT, body))

    def counter(self, time, track, value):
        self.event(time, number(TYPE, COUNT) + number(TRACK, track) + number(VALUE, value))

    def instant(self, time, track, name, notes):
        body = number(TYPE, INSTANT) + number(TRACK, track) + text(EVENT_NAME, name)
        self.event(time, body + b"".join(text(ANNOTATION, text(NOTE_NAME, key) + number(kind, value))
                                         for key, kind, value in notes))


class _Device:
    """The tracks of one, and what has been drawn on them."""

    def __init__(self, writer, process, ordinal):
        self.writer, self.ordinal = writer, ordinal
        self.own = writer.track((ordinal,), f"device {ordinal}", process)
        self.drawn = {}
        self.busy = set()

    def count(self, event, values):
        size = text(COUNTER, number(COUNTER_UNIT, UNIT_BYTES))
        for name, value in zip(("allocated", "reserved"), values):
            name = f"pinned {name}" if event.road == "pinned" else name
            if value != self.drawn.get(name):
                track = self.writer.track((self.ordinal, name), f"device {self.ordinal} {name}", self.own, size)
                self.writer.counter(event.time_ns, track, value)
                self.drawn[name] = value

    def mark(self, event):
        name = "segments" if event.kind.startswith("segment") else "blocks"
        name = name if event.road == "sync" else f"{event.road} {name}"
        track = self.own if event.kind == "oom" else self.writer.track((self.ordinal, name), name, self.own)
        notes = [("address", NOTE_POINTER, event.address)] if event.address else []
        notes.append(("bytes", NOTE_UINT, event.bytes))
        if event.stream is not None:
            notes.append(("stream", NOTE_UINT, event.stream))
        self.writer.instant(event.time_ns, track, "out of memory" if event.kind == "oom" else event.kind, notes)

    def work(self, event):
        begins = event.kind == "work"
        if begins == (event.stream in self.busy):
            return
        track = self.writer.track((self.ordinal, "stream", event.stream), f"stream {event.stream}", self.own)
        name = text(EVENT_NAME, "work") if begins else b""
        self.writer.event(event.time_ns, number(TYPE, BEGIN if begins else END) + number(TRACK, track) + name)
        (self.busy.add if begins else self.busy.remove)(event.stream)


def write(recording, out, progress=None):
    """Writes to out(bytes)."""
    writer, totals, devices = _Writer(out), Totals(), {}
    pid = text(PROCESS, number(PROCESS_PID, recording.pid or 1) + text(PROCESS_NAME, recording.program or "program"))
    process = writer.track((), recording.program or "program", None, pid)
    for event in recording.events(progress):
        device = devices.get(event.device)
        if device is None:
            device = devices[event.device] = _Device(writer, process, event.device)
        if event.kind in ("work", "idle"):
            device.work(event)
            continue
        device.mark(event)
        device.count(event, totals.add(event))
