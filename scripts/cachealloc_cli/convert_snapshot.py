# SPDX-License-Identifier: MIT
"""PyTorch's memory snapshots: older forms become the current one, and a recording's last state becomes a snapshot's segments."""

import bisect

SMALL_SEGMENT, GRAIN = 2 << 20, 512


def _normal_block(block, address):
    size = block["size"]
    history = block.get("history") or [{}]
    requested = block.get("requested_size", history[0].get("real_size", size))
    return {"address": block.get("address", address), "size": size, "requested_size": requested,
            "state": block["state"], "frames": block.get("frames", history[0].get("frames", []))}


def _segment(device, address, total, stream, blocks, **others):
    def summed(name, *states):
        return sum(block[name] for block in blocks if block["state"] in states)

    live, busy = "active_allocated", ("active_awaiting_free", "active_pending_free")
    return {"device": device, "address": address, "total_size": total, "allocated_size": summed("size", live),
            "active_size": summed("size", live, *busy), "requested_size": summed("requested_size", live, *busy),
            "stream": stream, "segment_type": "small" if total <= SMALL_SEGMENT else "large", "segment_pool_id": (0, 0),
            "is_expandable": False, "frames": [], "blocks": blocks, **others}


def _normal_segment(segment):
    blocks, address = [], segment["address"]
    for block in segment["blocks"]:
        blocks.append(_normal_block(block, address))
        address = blocks[-1]["address"] + block["size"]
    total = segment.get("total_size", address - segment["address"])
    others = {name: value for name, value in segment.items() if name not in ("blocks", "address", "device", "total_size", "stream")}
    return _segment(segment.get("device", 0), segment["address"], total, segment.get("stream", 0), blocks, **others)


def _normal_event(event):
    normal = {"action": event["action"], "size": event.get("size", 0), "stream": event.get("stream", 0),
              "time_us": event.get("time_us", 0), "compile_context": "N/A", "user_metadata": "", "frames": [], **event}
    if event["action"] not in ("oom", "snapshot") and "addr" not in event:
        raise KeyError("addr")
    if event["action"] == "oom":
        normal.setdefault("device_free", 0)
    return normal


def normalised(found):
    """In the form of current versions, whatever the version. KeyError, TypeError and the like: not a snapshot."""
    if isinstance(found, list):  # before there were traces
        found = {"segments": found}
    if "segments" not in found and "device_traces" not in found:
        raise ValueError("neither segments nor device_traces")
    segments = [_normal_segment(segment) for segment in found.get("segments", [])]
    traces = [[_normal_event(event) for event in trace] for trace in found.get("device_traces", [])]
    most = max([segment["device"] for segment in segments], default=-1)
    traces += [[] for _ in range(len(traces), most + 1)]
    return {"allocator_settings": {}, "external_annotations": [], **found, "segments": segments, "device_traces": traces}


def _tiles(address, end, live):
    """The blocks of a segment, of which `live` has (address, bytes), sorted."""
    blocks, at = [], address
    for i, (start, size) in enumerate(live):
        limit = live[i + 1][0] if i + 1 < len(live) else end
        if start > at:
            blocks.append((at, start - at, 0, "inactive"))
        at = min(start + -(-size // GRAIN) * GRAIN, limit)
        blocks.append((start, at - start, size, "active_allocated"))
    if at < end:
        blocks.append((at, end - at, 0, "inactive"))
    return [{"address": start, "size": size, "requested_size": requested, "state": state, "frames": []}
            for start, size, requested, state in blocks]


def _joined(state, live):
    """(device, address, bytes) of the segments. Memory that was mapped in pieces is one where a block lies across them."""
    found = []
    for (device, address), total in sorted(state.segments.items()):
        below = live[max(bisect.bisect_left(live, (device, address)) - 1, 0)] if live else (None, 0, 0)
        is_across = below[0] == device and below[1] < address < below[1] + below[2]
        if is_across and found and found[-1][0] == device and sum(found[-1][1:]) == address:
            found[-1] = (device, found[-1][1], found[-1][2] + total)
        else:
            found.append((device, address, total))
    return found


def segments_of(state):
    """The segments, and the blocks that are live in them, at a trace's end (convert_trace.State)."""
    live = sorted((device, address, size) for (device, address), (size, _) in state.live.items())
    found, at = [], 0
    for device, address, total in _joined(state, live):
        while at < len(live) and live[at][:2] < (device, address):
            at += 1
        begin = at
        while at < len(live) and live[at][:2] < (device, address + total):
            at += 1
        inside = [(start, size) for _, start, size in live[begin:at]]
        streams = [state.live[device, start][1] for start, _ in inside]
        pool = state.pools.get((device, address))
        road = {} if pool is None else {"road": "async", "segment_pool_id": (0, pool + 1)}
        found.append(_segment(device, address, total, (streams[0] if streams else 0) or 0,
                              _tiles(address, address + total, inside), **road))
    return found
