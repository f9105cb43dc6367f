# SPDX-License-Identifier: MIT
"""--to csv and --to rmm: one row an event."""

import datetime

#: the columns of --to csv: name, what it has
COLUMNS = (("time_ns", "since 1970, in nanoseconds"), ("device", "its ordinal"), ("thread", "a number; 0 where it is not known"),
           ("event", "live (there when the recording began), alloc, free, oom (refused), segment_alloc, segment_free, "
                     "segment_refused (by the driver), work (the stream was given some), idle (it has finished)"),
           ("address", "of the block or segment, hexadecimal"), ("bytes", "of the request or segment"),
           ("stream", "0: the default stream; empty: none"),
           ("allocated_bytes", "what the program has on the device after the event; of page-locked memory: of that"),
           ("reserved_bytes", "what was taken from the driver, likewise"),
           ("road", "sync (cudaMalloc), async (from a pool, cudaMallocAsync) or pinned (page-locked host memory)"))


class Totals:
    """Bytes by device: what is allocated and what is reserved, as events go by. Page-locked memory is on none."""

    def __init__(self):
        self.allocated, self.reserved = {}, {}

    def add(self, event):
        kind, device = event.kind, (event.device, event.road == "pinned")
        if kind in ("alloc", "live", "free"):
            self.allocated[device] = self.allocated.get(device, 0) + (-event.bytes if kind == "free" else event.bytes)
        elif kind in ("segment_alloc", "segment_free"):
            self.reserved[device] = self.reserved.get(device, 0) + (-event.bytes if kind == "segment_free" else event.bytes)
        return self.allocated.get(device, 0), self.reserved.get(device, 0)


def csv(recording, out, progress=None):
    totals = Totals()
    out(",".join(name for name, _ in COLUMNS).encode() + b"\n")
    for event in recording.events(progress):
        allocated, reserved = totals.add(event)
        address = f"{event.address:#x}" if event.address else ""
        stream = "" if event.stream is None else event.stream
        out(f"{event.time_ns},{event.device},{event.thread},{event.kind},{address},{event.bytes},{stream},{allocated},"
            f"{reserved},{event.road}\n".encode())


def rmm(recording, out, progress=None):
    """The log of RMM's logging_resource_adaptor, which is of one device; times are UTC."""
    actions = {"alloc": "allocate", "live": "allocate", "free": "free", "oom": "allocate failure"}
    out(b"Thread,Time,Action,Pointer,Size,Stream\n")
    for event in recording.events(progress):
        if event.kind in actions and event.road != "pinned":  # which is not the device's
            seconds, rest = divmod(event.time_ns, 10**9)
            clock = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
            out(f"{event.thread},{clock:%H:%M:%S}.{rest // 1000:06d},{actions[event.kind]},{event.address:#x},{event.bytes},"
                f"{event.stream or 0:#x}\n".encode())
