# SPDX-License-Identifier: MIT
"""The header of a trace that the library recorded: the settings that the program ran with (cachealloc-trace(5))."""

import struct

from . import candidates

_MAGIC = b"\x89CAtr\r\n\n"
_HEADER = struct.Struct("<8sIHHIIIIQQII")
_FIELD = struct.Struct("<II")
_HEADER_MAX, _PROGRAM, _SETTINGS = 1 << 20, 2, 3


def _fields(data, at):
    """{tag: text} of the fields that are whole."""
    found = {}
    while len(data) - at >= _FIELD.size:
        tag, length = _FIELD.unpack_from(data, at)
        at += _FIELD.size
        if length > len(data) - at:
            break
        found[tag] = data[at:at + length].decode("utf-8", "replace")
        at += (length + 7) // 8 * 8
    return found


def _header(path):
    try:
        with open(path, "rb") as file:
            data = file.read(_HEADER.size)
            if len(data) < _HEADER.size or not data.startswith(_MAGIC):
                return {}
            _, _, _, _, header_bytes, fixed_bytes, *_ = _HEADER.unpack(data)
            data += file.read(max(0, min(header_bytes, _HEADER_MAX) - len(data)))
    except OSError:
        return {}
    return _fields(data, fixed_bytes)


def settings(path):
    """{variable: value} as recorded, each that differed from its default; {} of any other file."""
    lines = _header(path).get(_SETTINGS, "").splitlines()
    return {name: value for name, equals, value in (line.partition("=") for line in lines) if equals}


def program(path):
    """The recorded program's name, or None."""
    return _header(path).get(_PROGRAM) or None


def has_unnamed_variable(path):
    """May the recorded program be PyTorch's, which let this library in by a variable that no recording has?"""
    variables = settings(path)
    return ((program(path) or "").startswith("python") and "CACHEALLOC_TAKEOVER" not in variables
            and keys(variables).get("async") != "pool")


def keys(variables):
    """The keys of CACHEALLOC_CONF among recorded settings."""
    return candidates.parse(variables.get("CACHEALLOC_CONF", ""))


def allowed_bytes(variables, memory):
    """The smaller of the caps that the program ran under, on a device of `memory`; None: none, or not to be told."""
    caps = []
    limit = variables.get("CACHEALLOC_LIMIT", "")
    fraction = keys(variables).get("per_process_memory_fraction", "")
    try:
        if limit.endswith("%"):
            caps.append(float(limit[:-1]) / 100 * memory if memory else None)
        elif limit:
            caps.append(size(limit))
        if fraction and memory:
            caps.append(float(fraction) * memory)
    except ValueError:
        pass
    return min((int(cap) for cap in caps if cap), default=None)


def size(text):
    """Bytes of "22G", "1.5GiB" or "512"; raises ValueError."""
    number = text.strip().rstrip("iB")
    shift = 10 * ("KMGT".find(number[-1:].upper()) + 1) if number[-1:].isalpha() else 0
    if number[-1:].isalpha() and not shift:
        raise ValueError("expected a size such as 80G or 512M")
    try:
        count = float(number[:-1] if shift else number)
    except ValueError:
        raise ValueError("expected a size such as 80G or 512M") from None
    if not 0 < count * (1 << shift) < 1 << 50:
        raise ValueError("expected a size such as 80G or 512M")
    return int(count * (1 << shift))
