# SPDX-License-Identifier: MIT
"""Statistics of the library in a file: one JSON object, or one a line (the latest last)."""

import json


def _object(text):
    try:
        data = json.loads(text)
    except ValueError:
        return None
    return data if isinstance(data, dict) and data.get("format") == "stats" else None


def devices(text):
    """The devices of the last object, by index; None: the text is no statistics."""
    if '"format"' not in text or '"stats"' not in text:
        return None
    data = _object(text)
    for line in [] if data else reversed(text.splitlines()):
        data = _object(line)
        if data:
            break
    try:
        return {device["index"]: device for device in data["devices"]} if data else None
    except (KeyError, TypeError):
        return None
