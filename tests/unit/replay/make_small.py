#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes small.h, a little snapshot in every notation: make_small.py > small.h"""

import json
import pickle

BASE = 0x7F0000000000
FRAMES = [{"name": "f", "filename": "a.c", "line": 1}]


def event(action, offset, size, stream=0, time_us=0):
    return {"action": action, "addr": BASE + offset, "size": size, "stream": stream, "time_us": time_us,
            "frames": FRAMES}


def snapshot():
    blocks = [(0, 1 << 20, 1000000, "active_allocated"), (1 << 20, 2 << 20, 2 << 20, "active_allocated"),
              (3 << 20, 17 << 20, 0, "inactive")]
    return {
        "segments": [{"device": 0, "address": BASE, "total_size": 20 << 20, "stream": 5, "is_expandable": False,
                      "blocks": [{"address": BASE + offset, "size": size, "requested_size": requested,
                                  "state": state, "frames": FRAMES} for offset, size, requested, state in blocks]}],
        "device_traces": [[
            event("segment_alloc", 0, 20 << 20, 5, 1), event("alloc", 1 << 20, 2 << 20, 7, 2),
            event("free_requested", 3 << 20, 4096, 5, 3), event("free_completed", 3 << 20, 4096, 5, 3),
            event("free_completed", 4 << 20, 512, 5, 4), event("alloc", 3 << 20, 600, 5, 5),
            event("free_requested", 3 << 20, 600, 5, 9), event("free_completed", 3 << 20, 600, 5, 9)]],
        "allocator_settings": {"garbage_collection_threshold": 0.5, "max_split_size": -1, "all": None},
    }


def array(name, data):
    lines = [", ".join(f"0x{byte:02x}" for byte in data[i:i + 16]) for i in range(0, len(data), 16)]
    body = "".join(f"\t{line},\n" for line in lines)
    return f"static const uint8_t {name}[] = {{\n{body}}};\n"


def main():
    print("/* SPDX-License-Identifier: MIT */\n/* Made by make_small.py. */\n// clang-format off\n#pragma once\n\n"
          "#include <stdint.h>\n")
    for protocol in (2, 4, 5):
        print(array(f"small_pickle{protocol}", pickle.dumps(snapshot(), protocol)))
    print(array("small_json", json.dumps(snapshot()).encode()), end="")


if __name__ == "__main__":
    main()
