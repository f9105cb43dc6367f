# SPDX-License-Identifier: MIT
"""What `convert` reads: a trace of ours (cachealloc-trace(5)), or a PyTorch snapshot (ours are such), as one kind of object.

A recording has ordinals(), the devices' numbers, and events(), which gives an Event each time something happened, in order,
and may be called again. A snapshot is plain data: nothing that a pickle could name or call is let through.
"""

import base64
import collections
import io
import json
import pickle

from .convert_snapshot import normalised
from .convert_trace import MAGIC, State, Trace

#: road: sync (cudaMalloc), async (from a pool, cudaMallocAsync) or pinned (page-locked host memory)
Event = collections.namedtuple("Event", "kind time_ns device thread address bytes stream road", defaults=("sync",))

#: the key under which memory_viz carries the whole trace along: base64, in pieces
CARRIED = "cachealloc_trace"


class Unreadable(Exception):
    """One sentence: what is wrong with the file."""


class _Plain(pickle.Unpickler):
    def find_class(self, module, name):
        raise Unreadable(f"the pickle names {module}.{name}: refused, a snapshot is plain data")

    def persistent_load(self, pid):
        raise Unreadable("the pickle refers to something outside: refused, a snapshot is plain data")


def _unpickled(data):
    try:
        return _Plain(io.BytesIO(data)).load()
    except Unreadable:
        raise
    except Exception as problem:  # pylint: disable=broad-except  (what a broken pickle raises is not to be foreseen)
        raise Unreadable(f"a broken pickle: {problem or type(problem).__name__}") from None


def _parsed(data):
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as problem:
        raise Unreadable(f"broken JSON: {problem}") from None


class FromTrace:
    """`raw` is the whole trace, for forms that carry it along; `end` is what was there when events() came to its end."""

    def __init__(self, data):
        self.raw = data
        self.trace = Trace(data)
        self.program, self.pid = self.trace.program, self.trace.pid
        self.is_cut = self.trace.is_cut()
        self.ordinals, self.memory = self.trace.ordinals, self.trace.memory
        self.end = State()

    def events(self, progress=None):
        self.end = State()
        total = max(len(self.raw), 1)
        for count, (fields, at) in enumerate(self.trace.events(self.end)):
            if progress and not count % 4096:
                progress(at / total)
            yield Event(*fields)


class FromSnapshot:
    """`snapshot` is in the form of current versions of PyTorch."""

    raw = None

    def __init__(self, found):
        try:
            self.snapshot = normalised(found)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as problem:
            raise Unreadable(f"not a snapshot of PyTorch's: {type(problem).__name__}: {problem}") from None
        self.program, self.pid = "", 0
        self.is_cut = False

    def ordinals(self):
        found = {segment["device"] for segment in self.snapshot["segments"]}
        return sorted(found | {i for i, trace in enumerate(self.snapshot["device_traces"]) if trace})

    def _start(self, device, begin):
        """Segments and blocks that were there before the first event."""
        seen, before = set(), []
        for event in self.snapshot["device_traces"][device]:
            key = ("segment" if event["action"].startswith("segment") else "block", event.get("addr"))
            if key not in seen and event["action"] in ("free", "free_requested", "free_completed", "segment_free"):
                before.append(("segment_alloc" if key[0] == "segment" else "live", event["addr"], event["size"], event["stream"]))
            seen.add(key)
        for segment in self.snapshot["segments"]:
            if segment["device"] != device:
                continue
            if ("segment", segment["address"]) not in seen:
                before.append(("segment_alloc", segment["address"], segment["total_size"], segment["stream"]))
            for block in segment["blocks"]:
                if block["state"] == "active_allocated" and ("block", block["address"]) not in seen:
                    before.append(("live", block["address"], block["requested_size"], segment["stream"]))
        for kind in ("segment_alloc", "live"):
            for found, address, size, stream in before:
                if found == kind:
                    yield Event(kind, begin, device, 0, address, size, stream)

    def events(self, progress=None):
        traces = self.snapshot["device_traces"]
        total, count = max(sum(map(len, traces)), 1), 0
        for device, trace in enumerate(traces):
            begin = trace[0].get("time_us", 0) * 1000 if trace else 0
            yield from self._start(device, begin)
            requested = set()
            for event in trace:
                count += 1
                if progress and not count % 4096:
                    progress(count / total)
                found = _event(event, device, requested)
                if found:
                    yield found


_KINDS = {"alloc": "alloc", "free": "free", "free_requested": "free", "segment_alloc": "segment_alloc",
          "segment_free": "segment_free", "segment_map": "segment_alloc", "segment_unmap": "segment_free", "oom": "oom"}


def _event(event, device, requested):
    """None: one without meaning here. A block ends where its free was requested."""
    action, address = event["action"], event.get("addr", 0)
    if action == "free_requested":
        requested.add(address)
    elif action == "free_completed":
        if address in requested:
            requested.discard(address)
            return None
        action = "free"
    kind = _KINDS.get(action)
    return kind and Event(kind, event["time_us"] * 1000, device, 0, address, event["size"], event["stream"])


def read(data):
    """The recording that the bytes are. Raises Unreadable."""
    if data[:8] == MAGIC:
        return _trace(data)
    if data[:1] == b"\x80":
        found = _unpickled(data)
    elif data.lstrip()[:1] in (b"{", b"["):
        found = _parsed(data)
    elif data[:2] == b"\x1f\x8b" or data[:4] in (b"\x28\xb5\x2f\xfd", b"\xfd7zX"):
        raise Unreadable("the file is compressed; give what `xz -dc`, `zstd -dc` or `gzip -dc` makes of it, with - as FILE")
    else:
        raise Unreadable("neither a trace of cachealloc's nor a memory snapshot of PyTorch's")
    if isinstance(found, dict) and CARRIED in found:
        try:
            return _trace(base64.b64decode("".join(found[CARRIED]), validate=True))
        except (TypeError, ValueError) as problem:
            raise Unreadable(f"the trace in the snapshot is broken: {problem}") from None
    return FromSnapshot(found)


def _trace(data):
    try:
        return FromTrace(data)
    except ValueError as problem:
        raise Unreadable(str(problem)) from None
