# SPDX-License-Identifier: MIT
"""Writes small ELF files whose every property is chosen, for machines that no compiler here knows."""

import struct

EXEC, DYN, REL, CORE = 2, 3, 1, 4
X86_64, I386, AARCH64, ARM = 62, 3, 183, 40


class _Strings:
    def __init__(self):
        self.data = b"\0"

    def add(self, text):
        at = len(self.data)
        self.data += text.encode() + b"\0"
        return at


def elf(bits=64, little=True, machine=X86_64, kind=DYN, interpreter="/lib64/ld-linux-x86-64.so.2", needed=(),
        runpath=None, rpath=None, soname=None, flags_1=0, imported=(), exported=(), dynamic=True, payload=b""):
    """The bytes of an ELF file with one loaded segment over the whole file and a SysV hash table."""
    order = "<" if little else ">"
    word = "Q" if bits == 64 else "I"
    strings = _Strings()
    entries = [(1, strings.add(name)) for name in needed]
    for tag, text in ((14, soname), (15, rpath), (29, runpath)):
        if text is not None:
            entries.append((tag, strings.add(text)))
    symbols = b"\0" * (24 if bits == 64 else 16)
    names = [(name, 0) for name in imported] + [(name, 1) for name in exported]
    for name, section in names:
        at = strings.add(name)
        if bits == 64:
            symbols += struct.pack(order + "IBBHQQ", at, 0x12, 0, section, 0, 0)
        else:
            symbols += struct.pack(order + "IIIBBH", at, 0, 0, 0x12, 0, section)
    table = struct.pack(order + "IIII", 1, len(names) + 1, 0, 0)
    header, program = (64, 56) if bits == 64 else (52, 32)
    count = 1 + bool(interpreter) + bool(dynamic)
    at = header + program * count
    places = {}
    body = b""
    for name, data in (("strings", strings.data), ("symbols", symbols), ("table", table),
                       ("interpreter", (interpreter or "").encode() + b"\0"), ("payload", payload)):
        body += b"\0" * (-(at + len(body)) % 8)
        places[name] = at + len(body)
        body += data
    body += b"\0" * (-(at + len(body)) % 8)
    places["dynamic"] = at + len(body)
    if flags_1:
        entries.append((0x6FFFFFFB, flags_1))
    entries += [(5, places["strings"]), (6, places["symbols"]), (10, len(strings.data)), (4, places["table"]), (0, 0)]
    dynamic_data = b"".join(struct.pack(order + 2 * word, *entry) for entry in entries)
    body += dynamic_data
    total = at + len(body)

    def segment(tag, offset, size):
        if bits == 64:
            return struct.pack(order + "IIQQQQQQ", tag, 5, offset, offset, offset, size, size, 8)
        return struct.pack(order + "8I", tag, offset, offset, offset, size, size, 5, 4)
    headers = segment(1, 0, total)
    if interpreter:
        headers += segment(3, places["interpreter"], len(interpreter) + 1)
    if dynamic:
        headers += segment(2, places["dynamic"], len(dynamic_data))
    ident = b"\x7fELF" + bytes([bits // 32, 1 if little else 2, 1]) + b"\0" * 9
    start = ident + struct.pack(order + "HHI" + 3 * word + "I6H", kind, machine, 1, 0, header, 0, 0, header, program,
                                count, 64 if bits == 64 else 40, 0, 0)
    return start + headers + body
