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
_START = re.compile(rf"Tried{_GAP}to{_GAP}allocate{_GAP}[\d.]")
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
_POOL_START = re.compile(r"Allocation on device (\d+) would exceed allowed memory")
_POOL = {
    "live": re.compile(rf"Currently allocated\s*: {_SIZE}"),
    "request": re.compile(rf"Requested\s*: {_SIZE}"),
    "device_memory": re.compile(rf"Device limit\s*: {_SIZE}"),
    "free": re.compile(rf"Free \(according to CUDA\)\s*: {_SIZE}"),
    "allowed": re.compile(rf"user-supplied memory fraction\)\s*: {_SIZE}"),
}
_POOL_LENGTH = 600
_LARGEST = re.compile(r"out of memory: (\d+) bytes were asked for; the largest free block has (\d+)")
#: of ours, where a program uses both: what the first sentence leaves out
_POOLS_HOLD = re.compile(rf"stream-ordered memory besides: {_SIZE} held by the program, {_SIZE} reserved by cachealloc")
_PRIVATE_POOLS = re.compile(rf"with {_SIZE} allocated in private pools")
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


def reports(text):
    """Figures of the reports in the text, the last first, of at most 1000."""
    text = _COLOUR.sub("", text).replace("\u00a0", " ")  # a page's, copied
    starts = sorted([*_START.finditer(text), *_POOL_START.finditer(text)], key=re.Match.start)
    ends = [start.start() for start in starts[1:]] + [len(text)]
    found = []
    for start, end in list(zip(starts, ends))[:-REPORTS_MAX - 1:-1]:
        figures = _pool_report(start, text) if start.re is _POOL_START else _sentence(text[start.start():end])
        platform = _PLATFORM.search(text[max(0, start.start() - _BEFORE):start.start()])
        figures.platform = platform.group(1) if platform else figures.platform
        if figures.request is not None:
            found.append(figures)
    return found


def parse(text, device=None):
    """Figures of the last report in the text, of that device, or None."""
    found = reports(text)
    wanted = [figures for figures in found if device in (None, figures.device)]
    if not wanted:
        return None
    wanted[0].reports = len(wanted)
    wanted[0].other_devices = sorted({figures.device for figures in found} - {wanted[0].device})
    return wanted[0]


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
    pools = _POOLS_HOLD.search(line)
    if pools and figures.is_ours and None not in (figures.live, figures.reserved):
        live, unallocated = (size(re.match(_SIZE, " ".join(pools.groups()[at:at + 2]))) for at in (0, 2))
        figures.live, figures.reserved = figures.live + live, figures.reserved + live + unallocated
    exact = _LARGEST.search(line)
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


def tail(file):
    """The end of a file as text, in which reports are looked for; None: it is binary."""
    file.seek(0)
    encoding = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}.get(file.read(2), "utf-8")  # PowerShell writes UTF-16
    file.seek(0, 2)
    file.seek(max(0, (file.tell() - TAIL_BYTES) // 2 * 2))
    data = file.read(TAIL_BYTES)
    if encoding == "utf-8":
        if _is_binary(data[:4096]):
            return None
        data = data.replace(b"\0", b"")
    return data.decode(encoding, "replace")


#: other programs': drivers, runtimes, TensorFlow, JAX, llama.cpp ...
_RAN_OUT = re.compile(r"out[ _]of[ _]memory|OOM when allocating|RESOURCE_EXHAUSTED|cudaErrorMemoryAllocation", re.IGNORECASE)


def says_out_of_memory(file):
    """True: a text says so, if not in a form that has figures."""
    text = tail(file)
    return text is not None and _RAN_OUT.search(text) is not None
