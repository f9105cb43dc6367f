# SPDX-License-Identifier: MIT
"""A small reader of ELF files: what the dynamic loader would look at, and a few strings.

Every offset in the file is doubted: reading outside it, or a table larger than the limits here, raises
ElfError and nothing else. Only program headers are needed for what the loader sees; section headers are used
for the symbol table of static libraries, and may be absent or nonsense.
"""

import mmap
import os
import struct

MACHINES = {3: "x86", 40: "arm", 62: "x86-64", 183: "aarch64", 21: "ppc64", 243: "riscv", 22: "s390x"}

PT_LOAD, PT_DYNAMIC, PT_INTERP = 1, 2, 3
SHT_SYMTAB = 2
DT_NULL, DT_NEEDED, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SONAME = 0, 1, 4, 5, 6, 10, 14
DT_RPATH, DT_SYMBOLIC, DT_RUNPATH, DT_FLAGS = 15, 16, 29, 30
DT_GNU_HASH, DT_FLAGS_1 = 0x6FFFFEF5, 0x6FFFFFFB
DF_1_NODEFLIB, DF_1_PIE = 0x800, 0x08000000

LIMIT_HEADERS, LIMIT_DYNAMIC, LIMIT_SYMBOLS, LIMIT_NAME = 4096, 4096, 2_000_000, 4096


class ElfError(Exception):
    """One phrase: what is wrong with the file."""


class Elf:
    """Attributes: bits, little, machine, kind (ET_*), interpreter, dynamic (bool), needed, soname, rpath,
    runpath, flags_1, symbolic, imported and exported (sets of names)."""

    def __init__(self, path):
        try:
            with open(path, "rb") as file:
                if os.fstat(file.fileno()).st_size < 20:
                    raise ElfError("not an ELF file")
                self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as problem:
            raise ElfError(getattr(problem, "strerror", None) or str(problem)) from None
        self.interpreter = self.soname = None
        self.needed, self.rpath, self.runpath = [], [], []
        self.flags_1, self.symbolic, self.dynamic = 0, False, False
        self.imported, self.exported = set(), set()
        self._header()
        self._program_headers()
        self._dynamic()

    # ---- raw access

    def _take(self, offset, size):
        if offset < 0 or size < 0 or offset + size > len(self.data):
            raise ElfError("truncated or damaged ELF file")
        return self.data[offset:offset + size]

    def _unpack(self, form, offset):
        form = ("<" if self.little else ">") + form
        return struct.unpack(form, self._take(offset, struct.calcsize(form)))

    def _string(self, offset):
        if not 0 <= offset < len(self.data):
            raise ElfError("truncated or damaged ELF file")
        end = self.data.find(b"\0", offset, offset + LIMIT_NAME)
        if end < 0:
            raise ElfError("truncated or damaged ELF file")
        return self.data[offset:end].decode("utf-8", "replace")

    # ---- headers

    def _header(self):
        ident = self._take(0, 16)
        if ident[:4] != b"\x7fELF":
            raise ElfError("not an ELF file")
        if ident[4] not in (1, 2) or ident[5] not in (1, 2):
            raise ElfError("ELF file of unknown class")
        self.bits, self.little = 32 * ident[4], ident[5] == 1
        self.kind, number = self._unpack("HH", 16)
        self.machine = MACHINES.get(number, f"machine {number}")
        if self.bits == 64:
            self._phoff, self._shoff = self._unpack("QQ", 32)
            self._phsize, self._phnum, self._shsize, self._shnum, _ = self._unpack("HHHHH", 54)
        else:
            self._phoff, self._shoff = self._unpack("II", 28)
            self._phsize, self._phnum, self._shsize, self._shnum, _ = self._unpack("HHHHH", 42)

    def _program_headers(self):
        """self.segments: (type, file offset, address, bytes in file)."""
        if self._phnum > LIMIT_HEADERS:
            raise ElfError("too many program headers")
        self.segments = []
        for index in range(self._phnum):
            at = self._phoff + index * self._phsize
            if self.bits == 64:
                kind, _, offset, address, _, size = self._unpack("IIQQQQ", at)
            else:
                kind, offset, address, _, size = self._unpack("IIIII", at)
            self.segments.append((kind, offset, address, size))
            if kind == PT_INTERP:
                self.interpreter = self._take(offset, min(size, LIMIT_NAME)).split(b"\0")[0].decode("utf-8", "replace")

    def _offset_of(self, address):
        """File offset of an address of a loaded segment."""
        for kind, offset, start, size in self.segments:
            if kind == PT_LOAD and start <= address < start + size:
                return offset + address - start
        raise ElfError("truncated or damaged ELF file")

    # ---- the dynamic section

    def _dynamic(self):
        place = next((segment for segment in self.segments if segment[0] == PT_DYNAMIC), None)
        if place is None:
            return
        self.dynamic = True
        form, step = ("qQ", 16) if self.bits == 64 else ("iI", 8)
        entries = {}
        for index in range(min(place[3] // step, LIMIT_DYNAMIC)):
            tag, value = self._unpack(form, place[1] + index * step)
            if tag == DT_NULL:
                break
            entries.setdefault(tag, []).append(value)
        self.flags_1 = entries.get(DT_FLAGS_1, [0])[0]
        self.symbolic = DT_SYMBOLIC in entries or bool(entries.get(DT_FLAGS, [0])[0] & 2)
        if DT_STRTAB not in entries:
            return
        names = self._offset_of(entries[DT_STRTAB][0])
        self.needed = [self._string(names + value) for value in entries.get(DT_NEEDED, [])]
        self.soname = next((self._string(names + value) for value in entries.get(DT_SONAME, [])), None)
        self.rpath, self.runpath = ([part for value in entries.get(tag, [])
                                     for part in self._string(names + value).split(":") if part]
                                    for tag in (DT_RPATH, DT_RUNPATH))
        if DT_SYMTAB in entries:
            self._symbols(self._offset_of(entries[DT_SYMTAB][0]), names, self._symbol_count(entries))

    def _symbol_count(self, entries):
        """The loader never needs the number; it follows from the hash table."""
        if DT_HASH in entries:
            return self._unpack("II", self._offset_of(entries[DT_HASH][0]))[1]
        if DT_GNU_HASH not in entries:
            return 0
        at = self._offset_of(entries[DT_GNU_HASH][0])
        buckets, first, bloom, _ = self._unpack("IIII", at)
        if buckets > LIMIT_SYMBOLS or bloom > LIMIT_SYMBOLS:
            raise ElfError("damaged symbol table")
        at += 16 + bloom * (self.bits // 8)
        last = max(self._unpack(f"{buckets}I", at), default=0)
        if last < first:
            return first  # nothing exported: imported names stand before the first hashed one
        chain = at + 4 * buckets
        while last < LIMIT_SYMBOLS and not self._unpack("I", chain + 4 * (last - first))[0] & 1:
            last += 1
        return last + 1

    def _symbols(self, offset, names, count):
        if count > LIMIT_SYMBOLS:
            raise ElfError("damaged symbol table")
        step = 24 if self.bits == 64 else 16
        for index in range(1, count):
            at = offset + index * step
            if self.bits == 64:
                name, info, _, section = self._unpack("IBBH", at)
            else:
                name, _, _, info, _, section = self._unpack("IIIBBH", at)
            text = self._string(names + name)
            if section == 0:
                self.imported.add(text)
            elif info >> 4 in (1, 2, 10):  # global, weak, unique
                self.exported.add(text)

    # ---- for the caller

    @property
    def static(self):
        """No loader is asked for: nothing can be preloaded."""
        return self.interpreter is None and (self.kind == 2 or not self.dynamic or bool(self.flags_1 & DF_1_PIE))

    def contains(self, text):
        """True if the bytes occur anywhere in the file."""
        return self.data.find(text) >= 0
