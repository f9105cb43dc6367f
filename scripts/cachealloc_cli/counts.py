# SPDX-License-Identifier: MIT
"""Files of counts: the last figures of processes that were killed, or that run (allocator/core/counts_file.h).

A process that has CACHEALLOC_STATS=FILE counts in pages of a file under a private name in /dev/shm or TMPDIR, which names
FILE; it removes it when it has written its last figures to FILE itself.
"""

import errno
import glob
import json
import os
import stat
import struct
import tempfile
import time

PATTERN = "cachealloc-*-*-*.counts"
TEXT_END = 8192  # CA_COUNTS_HEADER
PAGE = struct.Struct("<IIIIQQ")  # struct ca_counts_page, up to `saved`
SAVED_BYTES, SAVED_PART_BYTES = 640, 128
NOTE_HALF = 128
MASK = (1 << 64) - 1
BYTES_MAX = 64 << 20  # with pages of 64 KiB half of it
DEVICES_MAX = 1024
GAUGES_OF_PARTS = ("requested_bytes", "allocated_bytes", "active_bytes", "cached_bytes")
UNKNOWN = ("largest_free_block_bytes", "pending_blocks", "unseen_calls")


def folders():
    return dict.fromkeys(("/dev/shm", os.environ.get("TMPDIR") or tempfile.gettempdir()))


def _signed(value):
    return value - (1 << 64) if value >> 63 else value


class Page:
    """A record: its kind (None: not begun), its device and its counts by name. ValueError: it is none."""

    def __init__(self, data, number):
        self.number = number
        self.data = data
        self.device, own, size, self.saved_bytes, self.folds, self.folded = PAGE.unpack_from(data)
        begin = PAGE.size + SAVED_BYTES + SAVED_PART_BYTES
        end = data.find(b"\0", begin)
        words = data[begin:end].decode("ascii", "replace").split() if end > begin else []
        if size and (own != number or size > len(data) - begin or self.saved_bytes > SAVED_BYTES or not words or
                     self.device >= DEVICES_MAX):
            raise ValueError("no record")
        self.kind = words[0] if size else None
        self.names = words[1:]
        self.tail = data[len(data) - size:] if size else b""

    def counts(self, tail=None):
        """What is counted in two places is added up."""
        tail, found = self.tail if tail is None else tail, {}
        for i, name in enumerate(self.names[:len(tail) // 8]):
            if name != "-":
                found[name] = found.get(name, 0) + int.from_bytes(tail[8 * i:8 * i + 8], "little")
        return found

    def saved(self):
        """The counts before the fold that goes on."""
        begin = PAGE.size
        return self.counts(self.data[begin:begin + self.saved_bytes] + self.tail[self.saved_bytes:])

    def saved_part(self):
        begin = PAGE.size + SAVED_BYTES
        return self.data[begin:begin + SAVED_PART_BYTES]


def _parts_changes(part):
    """As ca_counts_changes in allocator/tcache/flush.c: gauge -> (current, peak, total), signed."""
    value = {name: _signed(count) for name, count in part.items()}
    clean, used = value["clean"], value["used"]
    return {
        "requested_bytes": (value["requested"], value["requested_peak"], value["requested_total"]),
        "allocated_bytes": (clean + used, max(value["allocated_peak"], value["clean_peak"] + used),
                            value["clean_total"] + value["used_total"]),
        "active_bytes": (clean, max(value["active_peak"], value["clean_peak"]), value["clean_total"]),
        "cached_bytes": (-clean, max(value["cached_peak"], -value["clean_least"]), value["clean_total"] - clean),
    }


def _fold(counts, part):
    for name, (current, peak, total) in _parts_changes(part).items():
        now = _signed(counts[f"{name}.current"])
        counts[f"{name}.peak"] = max(counts[f"{name}.peak"], now + peak)
        counts[f"{name}.current"] = now + current & MASK
        counts[f"{name}.total"] = counts[f"{name}.total"] + total & MASK
    for name, amount in (("alloc_calls", part["hits"]), ("cache_hits", part["hits"]), ("free_calls", part["frees"]),
                         ("taken_clean", part["hits"] - part["exposed"]), ("taken_same_stream", part["exposed"])):
        counts[name] = counts[name] + amount & MASK


def _device(index, pages, version, zeros):
    """The device as the library writes it."""
    base = next((page for page in pages if page.kind == "device"), None)
    folding = base and base.folds & 1
    counts = dict(zeros)
    if base:
        counts.update(base.saved() if folding else base.counts())
    note = {"name": None, "uuid": None}
    for page in pages:
        if page.kind == "magazine" and base:
            part = page.counts(base.saved_part()) if folding and base.folded == page.number else page.counts()
            _fold(counts, part)
        elif page.kind == "told":
            told = page.counts()
            told["async_cache_hits"] = told["async_alloc_calls"] - told.pop("segments_taken_for")
            counts.update(told)
        elif page.kind == "pinned":
            counts.update(page.counts())
        elif page.kind == "note":
            halves = (page.tail[:NOTE_HALF], page.tail[NOTE_HALF:])
            note = {key: half.split(b"\0")[0].decode("utf-8", "replace") or None
                    for key, half in zip(("name", "uuid"), halves)}
    device = {"index": index, **note, "version": version}
    for name, value in counts.items():
        field, _, part = name.partition(".")
        if part:
            device.setdefault(field, {})[part] = value
        else:
            device[field] = value
    device.update({name: None for name in UNKNOWN})
    names = [name for name in device if name.startswith("finished_only_reasons:")]
    device["finished_only_reasons"] = [reason for name in names for bit, reason in enumerate(name.split(":")[1:])
                                       if device[name] >> bit & 1]
    for name in names:
        del device[name]
    for name in GAUGES_OF_PARTS:  # as bound_peaks in allocator/api/stats.c
        device[name]["peak"] = min(device[name]["peak"], device["reserved_bytes"]["peak"])
    return device


def _header(data):
    """The words of the text at a file's beginning. ValueError: it is none of ours."""
    lines = data.split(b"\0")[0].decode("utf-8", "surrogateescape").split("\n")
    if lines[0] != "cachealloc counts 1":
        raise ValueError(lines[0])
    return dict(line.split(" ", 1) for line in lines[1:] if " " in line)


class Counts:
    """One file, that of the process that writes its statistics to `wanted`. ValueError: it is none, or not that one's."""

    def __init__(self, path, wanted):
        self.path = path
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            self._read(fd, wanted)
        finally:
            os.close(fd)

    def _read(self, fd, wanted):
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode) or info.st_size > BYTES_MAX or not _is_trusted(info.st_uid, wanted):
            raise ValueError(self.path)
        words = _header(os.pread(fd, TEXT_END, 0))
        if os.path.realpath(words["file"]) != wanted:
            raise ValueError(self.path)
        page, header = int(words["page"]), max(int(words["header"]), int(words["page"]))
        self.pid, self._namespace, self._version = int(words["pid"]), int(words["pid_namespace"]), words["version"]
        self._zeros = dict.fromkeys(words["names"].replace("-", "").split(), 0)
        self._report = json.loads(words["report"])
        self.begun_ns = self._report["time_unix_ns"]
        self.alive = self._is_alive(info)  # before they are read: those of a dead one are its last
        data = self._at_one_moment(fd, header, page)
        if not os.fstat(fd).st_nlink:  # its last are in `wanted`, or it has given up
            raise ValueError(self.path)
        self._pages = [Page(data[at:at + page], number)
                       for number, at in enumerate(range(header, len(data) - page + 1, page))]

    @staticmethod
    def _at_one_moment(fd, header, page):
        """No fold between what was read before it and after it."""
        def folds(data):
            return [PAGE.unpack_from(data, at)[4] for at in range(header, len(data) - PAGE.size, page)]

        before, data = os.pread(fd, BYTES_MAX, 0), os.pread(fd, BYTES_MAX, 0)
        for _ in range(10):
            after = os.pread(fd, BYTES_MAX, 0)
            if folds(before) == folds(after):
                break
            before, data = data, after
        return data

    def _is_alive(self, info):
        """The process has the file mapped, under whatever name; of another namespace nothing is known."""
        file = f"{os.major(info.st_dev):02x}:{os.minor(info.st_dev):02x} {info.st_ino} "
        try:
            if self._namespace != os.stat("/proc/self/ns/pid").st_ino:
                return True
            with open(f"/proc/{self.pid}/maps", encoding="utf-8", errors="surrogateescape") as maps:
                return any(file in line for line in maps)
        except OSError as problem:
            return problem.errno not in (errno.ESRCH, errno.ENOENT)

    def report(self, number):
        """The statistics as the library would have written them, but for what nobody counts."""
        pages = [page for page in self._pages if page.kind]
        count = max((page.device + 1 for page in pages if page.kind != "magazine"), default=0)
        devices = [_device(index, [page for page in pages if page.device == index], self._version, self._zeros)
                   for index in range(count)]
        return {**self._report, "time_unix_ns": time.time_ns(), "elapsed_ns": None, "seq": number, "from_counts": True,
                "devices": devices}


def _is_trusted(owner, path):
    """The caller's own, or for root those of the user whose file it is."""
    if owner == os.geteuid():
        return True
    try:
        return os.geteuid() == 0 and owner == os.stat(path).st_uid
    except OSError:
        return False


def _names():
    return [name for folder in folders() for name in glob.glob(os.path.join(glob.escape(folder), PATTERN))]


def of_file(path):
    """The counts of the latest process that writes its statistics to that file; None: there are none."""
    wanted, found = os.path.realpath(path), []
    for name in _names():
        try:
            counts = Counts(name, wanted)
            counts.report(0)
            found.append(counts)
        except (OSError, ValueError, KeyError, TypeError, struct.error):  # none, or damaged
            continue
    return max(found, key=lambda counts: counts.begun_ns, default=None)


def remove_of(folder):
    """Those of processes that write their statistics into the folder, which goes away: nobody would find them."""
    wanted = os.path.realpath(folder)
    for name in _names():
        try:
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(fd, "rb") as file:
                words = _header(file.read(TEXT_END))
            if os.path.dirname(os.path.realpath(words["file"])) == wanted:
                os.unlink(name)
        except (OSError, ValueError, KeyError):
            continue
