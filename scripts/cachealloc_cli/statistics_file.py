# SPDX-License-Identifier: MIT
"""Statistics of the library in a file: one JSON object, or one a line (the latest last)."""

import json


def _object(text):
    try:
        data = json.loads(text)
    except ValueError:
        return None
    return data if isinstance(data, dict) and data.get("format") == "stats" else None


def last(text):
    """The last whole object with a list of devices; None: the text is no statistics."""
    if '"format"' not in text or '"stats"' not in text:
        return None
    data = _object(text)
    for line in [] if data else reversed(text.splitlines()):
        data = _object(line)
        if data:
            break
    listed = data.get("devices") if data else None
    if not isinstance(listed, list) or not all(isinstance(one, dict) and isinstance(one.get("index"), int) for one in listed):
        return None
    return data


def devices(text):
    """The devices of the last object, by index; None: the text is no statistics."""
    data = last(text)
    return {device["index"]: device for device in data["devices"]} if data else None
