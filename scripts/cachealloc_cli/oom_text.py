# SPDX-License-Identifier: MIT
"""Out-of-memory reports in a log: ours, and PyTorch's sentence in its old and new forms.

    old  ... Tried to allocate 2.00 GiB (GPU 0; 23.69 GiB total capacity; 19.51 GiB already allocated; 1.20 GiB free;
         21.00 GiB reserved in total by PyTorch) ...     (before 1.5: "cached" instead of "reserved in total by PyTorch")
    new  ... Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.69 GiB of which 1.20 GiB is free. Process 7 has
         1.00 GiB memory in use. Including non-PyTorch memory, this process has 21.49 GiB memory in use. Of the allocated
         memory 19.51 GiB is allocated by PyTorch, and 1.49 GiB is reserved by PyTorch but unallocated. ...
    ours is the new form, with a line more that has the largest free block
"""

import re

from .causes import Figures

_SIZE = r"([\d.]+) (bytes|B|KiB|MiB|GiB|TiB)"
_UNITS = {"bytes": 0, "B": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}

_START = re.compile(rf"Tried to allocate {_SIZE}")
_PATTERNS = {
    "device_memory": re.compile(rf"{_SIZE} total capacity|total capac\w+ of {_SIZE}"),
    "free": re.compile(rf"{_SIZE} free;|of which {_SIZE} is free"),
    "live": re.compile(rf"{_SIZE} already allocated|Of the allocated memory {_SIZE} is allocated by"),
    "reserved": re.compile(rf"{_SIZE} reserved in total by PyTorch|{_SIZE} cached\)"),
    "unallocated": re.compile(rf"{_SIZE} is reserved by (?:PyTorch|cachealloc) but unallocated"),
    "allowed": re.compile(rf"{_SIZE} allowed"),
}
_LARGEST = re.compile(r"out of memory: (\d+) bytes were asked for; the largest free block has (\d+)")
_GPU = re.compile(r"GPU (\d+)")
#: of a log, that much at its end is looked at
TAIL_BYTES = 64 << 20


def size(match):
    """Bytes of the first size that matched; None without a match."""
    if not match:
        return None
    number, unit = [group for group in match.groups() if group][:2]
    try:
        return round(float(number) * (1 << _UNITS[unit]))
    except ValueError:
        return None


def parse(text):
    """Figures of the last report in the text, or None."""
    starts = list(_START.finditer(text))
    if not starts:
        return None
    start = starts[-1]
    line = text[start.start():]
    sentence = line.split("\n", 1)[0]
    found = {name: size(pattern.search(sentence)) for name, pattern in _PATTERNS.items()}
    unallocated = found.pop("unallocated")
    if found["reserved"] is None and None not in (unallocated, found["live"]):
        found["reserved"] = found["live"] + unallocated
    figures = Figures(request=size(start), **found)
    gpu = _GPU.search(sentence)
    figures.device = int(gpu.group(1)) if gpu else 0
    figures.is_ours = "reserved by cachealloc" in sentence
    figures.reports = len(starts)
    exact = _LARGEST.search(line)
    if exact and figures.is_ours:
        figures.request, figures.largest = int(exact.group(1)), int(exact.group(2))
    return figures


def tail(path_or_file):
    """The end of a file as text, in which reports are looked for; None: it is binary."""
    path_or_file.seek(0, 2)
    path_or_file.seek(max(0, path_or_file.tell() - TAIL_BYTES))
    data = path_or_file.read(TAIL_BYTES)
    return None if b"\0" in data[:4096] else data.decode("utf-8", "replace")
