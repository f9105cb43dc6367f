# SPDX-License-Identifier: MIT
"""Out-of-memory reports in a log: ours, and PyTorch's sentence in its old and new forms.

    old  ... Tried to allocate 2.00 GiB (GPU 0; 23.69 GiB total capacity; 19.51 GiB already allocated; 1.20 GiB free;
         21.00 GiB reserved in total by PyTorch) ...     (older: "1.49 GiB cached", which is the part that is not allocated)
    new  ... Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.69 GiB of which 1.20 GiB is free. Process 7 has
         1.00 GiB memory in use. Including non-PyTorch memory, this process has 21.49 GiB memory in use. Of the allocated
         memory 19.51 GiB is allocated by PyTorch, and 1.49 GiB is reserved by PyTorch but unallocated. ...
    ours is the new form, with a line more that has the largest free block
    A terminal, a box or a log may have broken it into several lines.
    pool Allocation on device 0 would exceed allowed memory. (out of memory)    (PyTorch on cudaMallocAsync)
         Currently allocated     : 54.14 GiB
         Requested               : 686.41 MiB
         Device limit            : 79.35 GiB
         Free (according to CUDA): 27.19 MiB
         PyTorch limit (set by user-supplied memory fraction)
                                 : 70.00 GiB
"""

import codecs
import collections
import itertools
import re

from .causes import Figures

# not the end of a number that a line break cut
_SIZE = r"(?<![\d.])(?<!\d )(?<!\d\. )([\d.]+) (bytes|B|KiB|MiB|GiB|TiB)"
_UNITS = {"bytes": 0, "B": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}

#: a line break of a terminal, a box or a log, with the label that the next line may have
_BREAK = r"[ \t]*[│┃║|]?[ \t]*\r?\n(?:\d+: ?|\[\w+\]: ?|\([^()\n]{1,60}\) )?[ \t]*[│┃║|>]?[ \t]*"
_HARD_BREAK = r"\r?\n"
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_GAP = rf"(?:{_BREAK}|[ \t]+)"


def _breakable(words, gap):
    """A pattern of the words, of which each may be broken anywhere by width."""
    return gap.join(rf"(?:{_HARD_BREAK})?".join(word) for word in words.split())


_START = re.compile(_breakable("Tried to allocate", _GAP) + rf"{_GAP}[\d.]")
_REQUEST = re.compile(rf"Tried to allocate {_SIZE}")
#: the last words of a report that have a figure before them
_END = re.compile(r"reserved in total by PyTorch|but unallocated|cached\)")
#: just before "Tried to allocate", which a line break may part from it
_PLATFORM = re.compile(r"\b(HIP|XPU) out of memory\.\s*\W*\Z")
_BEFORE = 60
_LENGTH = 1500
REPORTS_MAX = 1000
_PATTERNS = {
    "device_memory": re.compile(rf"{_SIZE} total capacity|total capac\w+ of {_SIZE}"),
    "free": re.compile(rf"{_SIZE} free;|of which {_SIZE} is free"),
    "live": re.compile(rf"{_SIZE} already allocated|Of the allocated memory {_SIZE} is allocated by"),
    "reserved": re.compile(rf"{_SIZE} reserved in total by PyTorch"),
    "unallocated": re.compile(rf"{_SIZE} is reserved by (?:PyTorch|cachealloc) but unallocated|{_SIZE} cached\)"),
    "allowed": re.compile(rf"{_SIZE} allowed"),
    "process": re.compile(rf"this process has {_SIZE} memory in use"),
}
_POOL_START = re.compile(_breakable("Allocation on device", _GAP) + rf"{_GAP}(\d+){_GAP}" + _breakable("would exceed allowed memory", _GAP))
_POOL = {
    "live": re.compile(rf"Currently allocated\s*: {_SIZE}"),
    "request": re.compile(rf"Requested\s*: {_SIZE}"),
    "device_memory": re.compile(rf"Device limit\s*: {_SIZE}"),
    "free": re.compile(rf"Free \(according to CUDA\)\s*: {_SIZE}"),
    "allowed": re.compile(rf"user-supplied memory fraction\)\s*: {_SIZE}"),
}
_POOL_LENGTH = 600
_LARGEST = re.compile(r"out of memory: (\d+) bytes were asked for; the largest free block has (\d+)(?: bytes)?\.")
#: of ours, where a program uses both: what the first sentence leaves out
_POOLS_HOLD = re.compile(rf"stream-ordered memory besides: {_SIZE} held by the program, {_SIZE} reserved by cachealloc")
_PRIVATE_POOLS = re.compile(rf"with {_SIZE} allocated in private pools")
_GPU = re.compile(r"GPU (\d+)")
#: of statistics, that much at the end is looked at
TAIL_BYTES = 64 << 20
#: a log is read in pieces, and all that belongs to a report stands within so many characters
PIECE_BYTES, _SECTION = 4 << 20, 1 << 16


def size(match):
    """Bytes of the first size that matched; None without a match."""
    if not match:
        return None
    number, unit = [group for group in match.groups() if group][:2]
    try:
        return round(float(number) * (1 << _UNITS[unit]))
    except ValueError:
        return None


def _pool_report(start, text):
    """Figures of a report of stream-ordered memory; the limit counts where it is below the device's."""
    part = text[start.start():start.start() + _POOL_LENGTH]
    found = {name: size(pattern.search(part)) for name, pattern in _POOL.items()}
    if found["allowed"] and found["device_memory"] and found["allowed"] >= found["device_memory"]:
        found["allowed"] = None
    figures = Figures(**found)
    figures.device = int(start.group(1))
    figures.is_pool = True
    return figures


def _report(before, section):
    """Figures of the report at the beginning of a text, and what stood before it."""
    pool = _POOL_START.match(section)
    figures = _pool_report(pool, section) if pool else _sentence(section)
    platform = _PLATFORM.search(before) or _PLATFORM.search(re.sub(_HARD_BREAK, "", before))
    figures.platform = platform.group(1) if platform else figures.platform
    return figures


def reports(pieces):
    """Figures of the reports in a text that comes in pieces, the last first, of at most 1000."""
    found, text, begin = collections.deque(maxlen=REPORTS_MAX), "", 0
    for piece in itertools.chain(pieces, [None]):
        text = _COLOUR.sub("", text + (piece or "")).replace("\u00a0", " ")  # a page's, copied
        sure = len(text) if piece is None else max(begin, len(text) - _SECTION)  # what begins later is not all there
        starts = sorted(start.start() for pattern in (_START, _POOL_START) for start in pattern.finditer(text, begin))
        for start, end in zip(starts, [*starts[1:], len(text)]):
            if start < sure:
                found.append((text[max(0, start - _BEFORE):start], text[start:min(end, start + _SECTION)]))
        text, begin = text[max(0, sure - _BEFORE):], min(sure, _BEFORE)
    return [figures for figures in itertools.starmap(_report, reversed(found)) if figures.request is not None]


def last(found, device=None):
    """The first of the reports, that of the device, or None."""
    wanted = [figures for figures in found if device in (None, figures.device)]
    if not wanted:
        return None
    wanted[0].reports = len(wanted)
    wanted[0].other_devices = sorted({figures.device for figures in found} - {wanted[0].device})
    return wanted[0]


def parse(text, device=None):
    """Figures of the last report in the text, of that device, or None."""
    return last(reports([text]), device)


def _joined(text, broken, gap):
    """The report at the beginning of `text` as one line, its figures, and whether its last words are there."""
    line = re.sub(broken, gap, _COLOUR.sub("", text[:_LENGTH]))
    end = _END.search(line)
    line = line[:end.end()] if end else line
    found = {name: size(pattern.search(line)) for name, pattern in {"request": _REQUEST, **_PATTERNS}.items()}
    return line, found, end is not None


def _sentence(line):
    """Figures of the report at the beginning of a text. A line may be broken between words or, by width alone, within one."""
    ways = [_joined(line, _BREAK, " "), _joined(line, _HARD_BREAK, "")]
    sentence, found, _ = max(ways, key=lambda way: (way[2], sum(value is not None for value in way[1].values())))
    unallocated = found.pop("unallocated")
    if found["reserved"] is None and None not in (unallocated, found["live"]):
        found["reserved"] = found["live"] + unallocated
    figures = Figures(**found)
    gpu = _GPU.search(sentence)
    figures.device = int(gpu.group(1)) if gpu else 0
    figures.is_ours = "reserved by cachealloc" in sentence
    figures.private_pools = size(_PRIVATE_POOLS.search(sentence))
    more = (line, re.sub(_HARD_BREAK, "", line))  # our other lines, which may be broken where the first is not
    pools = next(filter(None, map(_POOLS_HOLD.search, more)), None)
    if pools and figures.is_ours and None not in (figures.live, figures.reserved):
        live, unallocated = (size(re.match(_SIZE, " ".join(pools.groups()[at:at + 2]))) for at in (0, 2))
        figures.live, figures.reserved = figures.live + live, figures.reserved + live + unallocated
    exact = next(filter(None, map(_LARGEST.search, more)), None)
    if exact and figures.is_ours:
        figures.request, figures.largest = int(exact.group(1)), int(exact.group(2))
    return figures


_CONTROL = re.compile(rb"[\x01-\x07\x0e-\x1a\x1c-\x1f]")


def _is_binary(sample):
    """A text may have zeros: a log that was truncated while a program appended to it begins with them."""
    if b"\0" not in sample:
        return False
    try:  # from the first whole character on, and the last may be cut
        codecs.getincrementaldecoder("utf-8")().decode(sample.lstrip(bytes(range(0x80, 0xc0))))
    except UnicodeDecodeError:
        return True
    return _CONTROL.search(sample) is not None


def pieces(file):
    """The text of a file, in pieces; none of a binary one."""
    file.seek(0)
    sample = file.read(4096)
    encoding = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}.get(sample[:2], "utf-8")  # PowerShell writes UTF-16
    if encoding == "utf-8" and _is_binary(sample):
        return
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    file.seek(0)
    while data := file.read(PIECE_BYTES):
        yield decoder.decode(data.replace(b"\0", b"") if encoding == "utf-8" else data)


def tail(file):
    """The end of a file that may be statistics, as text; empty of others."""
    file.seek(0, 2)
    file.seek(max(0, file.tell() - TAIL_BYTES))
    data = file.read(TAIL_BYTES)
    return data.decode("utf-8", "replace") if b'"stats"' in data else ""


#: other programs': drivers, runtimes, TensorFlow, JAX, llama.cpp ...
_RAN_OUT = re.compile(r"out[ _]of[ _]memory|OOM when allocating|RESOURCE_EXHAUSTED|cudaErrorMemoryAllocation", re.IGNORECASE)


def says_out_of_memory(file):
    """True: a text says so, if not in a form that has figures."""
    return any(map(_RAN_OUT.search, pieces(file)))
