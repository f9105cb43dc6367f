# SPDX-License-Identifier: MIT
"""--to memory_viz: the pickle of torch.cuda.memory._dump_snapshot, with the keys of current versions and empty stacks.

Times are in microseconds since 1970. A block is freed at once: `free_requested` and `free_completed` follow each other. Of a
trace of ours the whole goes along under a key of its own, which PyTorch's tools pass over, so that a replay of the pickle
gives the figures of a replay of the trace.
"""

import base64
import pickle

from . import __version__
from .convert_input import CARRIED
from .convert_pickle import APPEND, DICT, LIST, MARK, SET, START, STOP, Words, integer, string, value
from .convert_snapshot import segments_of

PIECE = 3 << 18  # bytes of the trace in one text
_ACTIONS = {"alloc": ("alloc",), "live": ("alloc",), "free": ("free_requested", "free_completed"),
            "segment_alloc": ("segment_alloc",), "segment_free": ("segment_free",), "oom": ("oom",)}


def _entry(event, action, free):
    where = {"device_free": free} if action == "oom" else {"addr": event.address}
    return {"action": action, **where, "size": event.bytes, "stream": event.stream or 0, "time_us": event.time_ns // 1000,
            "compile_context": "N/A", "user_metadata": "", "frames": []}


class _Entries:
    """Entries as instructions; of an action that came before, put together from what does not change."""

    def __init__(self, word):
        self.word = word
        self.parts = {}

    def __call__(self, event, action, free):
        entry, parts = None, self.parts.get(action)
        if parts is None:
            entry = _entry(event, action, free)
            data = value(entry, self.word) + APPEND  # after which every word of it is known
        if action == "oom":
            return data
        if parts is None:
            fixed = [DICT + MARK + self.word("action") + self.word(action) + self.word("addr")]
            fixed += [self.word(name) for name in ("size", "stream", "time_us")]
            rest = {name: entry[name] for name in ("compile_context", "user_metadata", "frames")}
            self.parts[action] = fixed, value(rest, self.word)[len(DICT + MARK):] + APPEND
            return data
        (head, size, stream, time), tail = parts
        return (head + integer(event.address) + size + integer(event.bytes) + stream + integer(event.stream or 0) + time
                + integer(event.time_ns // 1000) + tail)


def _device_trace(recording, device, word, progress):
    """A device's events as instructions. What is left free on it is known where its memory is."""
    reserved, entry = 0, _Entries(word)
    for event in recording.events(progress):
        if event.device != device or event.road == "pinned":  # which is not the device's
            continue
        reserved += {"segment_alloc": event.bytes, "segment_free": -event.bytes}.get(event.kind, 0)
        for action in _ACTIONS.get(event.kind, ()):
            free = max(recording.memory(device) - reserved, 0) if action == "oom" else 0
            yield entry(event, action, free)


def _of_trace(recording, word, progress):
    devices = recording.ordinals()
    yield string(CARRIED) + LIST  # first, so that a replay need not build the rest
    for at in range(0, len(recording.raw), PIECE):
        yield string(base64.b64encode(recording.raw[at:at + PIECE]).decode()) + APPEND
    yield word("device_traces") + LIST
    for device in range(max(devices, default=-1) + 1):
        yield LIST
        if device in devices:
            yield from _device_trace(recording, device, word, progress)
        yield APPEND
    yield word("segments") + value(segments_of(recording.end), word)
    yield value("allocator_settings", word) + value({}, word) + value("external_annotations", word) + LIST


class _Out:
    def __init__(self, out):
        self.write = out


def write(recording, out, progress=None):
    """Writes to out(bytes). A snapshot's stacks, which share their frames, go on sharing them."""
    made_by = f"cachealloc {__version__}"
    if recording.raw is None:
        pickle.Pickler(_Out(out), 4).dump({**recording.snapshot, "converted_by": made_by})
        return
    word = Words()
    out(START + DICT + MARK)
    for piece in _of_trace(recording, word, progress):
        out(piece)
    out(word("converted_by") + string(made_by) + SET + STOP)
