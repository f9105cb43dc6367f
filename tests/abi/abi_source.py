# SPDX-License-Identifier: MIT
"""Writes C files whose compilation proves that our ABI is cuda.h's.

Two translation units, because shim/cuda_abi.h and cuda.h define the same names:

values      cuda_abi.h with every type and enumerator renamed (prefix ours_), then cuda.h, then one static assertion
            for each enumerator, constant and type. Tags of opaque handles keep their name, so that the pointer types
            can be compared; a type that is a number, a structure or an enumeration is compared by size and alignment.
prototypes  cuda.h and cudaTypedefs.h only, then each row of hooks.def read with cuda.h's own types and compared with
            PFN_<base>_v<version>[_ptsz]: name, version and stream flavour are thereby proved too.
"""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
ABI = ROOT / "shim" / "cuda_abi.h"
HOOKS = ROOT / "shim" / "hooks.def"

ROW = re.compile(r"^CA_(HOOK|NEED)\(\s*(\w+),\s*(\w+),\s*(\d+),\s*(\w+),\s*", re.M)
COMMENT = re.compile(r"/\*.*?\*/", re.S)


def hook_rows(path=HOOKS):
    """[(kind, symbol, base, version, flags, parameters)] of hooks.def."""
    text = COMMENT.sub("", Path(path).read_text())
    rows = []
    for found in ROW.finditer(text):
        kind, symbol, base, version, flags = found.groups()
        end, depth = found.end(), 0
        while True:  # the balanced parentheses of the parameter list
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
            if not depth:
                break
        rows.append((kind, symbol, base, int(version), flags, text[found.end():end]))
    return rows


class Abi:
    """The names that cuda_abi.h defines."""

    def __init__(self, path=ABI):
        self.path = Path(path).resolve()
        text = COMMENT.sub("", self.path.read_text())
        self.macros = re.findall(r"^#define\s+(CU\w+)\s", text, re.M)
        bodies = re.findall(r"\benum\b\s*\w*\s*\{(.*?)\}", text, re.S)
        self.enumerators = [n for body in bodies for n in re.findall(r"^\s*(\w+)\s*(?:=|,)", body, re.M)]
        self.enum_tags = re.findall(r"\benum\s+(\w+)\s*\{", text)
        self.struct_tags = re.findall(r"\bstruct\s+(\w+)\s*\{", text)  # with a body: not opaque
        self.handles = re.findall(r"^typedef\s+struct\s+\w+\s*\*\s*(\w+);", text, re.M)
        opaque = re.findall(r"^typedef\s+struct\s+(\w+)\s+(\w+);", text, re.M)
        self.opaque = [name for _, name in opaque]
        numbers = re.findall(r"^typedef\s+(?!struct|enum)[\w\s]+?\b(\w+);", text, re.M)
        records = re.findall(r"^\}\s*(\w+);", text, re.M)
        self.exact = numbers + self.handles
        self.sized = records

    def renamed(self):
        """Names to prefix; an opaque structure keeps its tag."""
        return sorted({*self.enumerators, *self.enum_tags, *self.struct_tags, *self.exact, *self.sized,
                       *self.opaque})


def values_source(path=ABI):
    abi = Abi(path)
    names = abi.renamed()
    lines = [f"#define {name} ours_{name}" for name in names]
    lines.append(f'#include "{abi.path}"')
    # a macro cannot be renamed: keep its value in an object of the same type before it goes
    lines += [f"enum {{ ours_{name} = (int)(__UINTPTR_TYPE__)({name}) }};" for name in abi.macros]
    lines += [f"#undef {name}" for name in names + abi.macros]
    lines.append("#include <cuda.h>")
    lines += [f'_Static_assert((long long)ours_{n} == (long long)(__UINTPTR_TYPE__)({n}), "value: {n}");'
              for n in abi.enumerators + abi.macros]
    lines += [f'_Static_assert(__builtin_types_compatible_p(ours_{n}, {n}), "type: {n}");' for n in abi.exact]
    for name in abi.sized:
        lines.append(f'_Static_assert(sizeof(ours_{name}) == sizeof({name}), "size: {name}");')
        lines.append(f'_Static_assert(_Alignof(ours_{name}) == _Alignof({name}), "alignment: {name}");')
        # an enumeration's sign decides how it is passed on and compared
        if name not in {t.removesuffix("_st") for t in abi.struct_tags}:
            lines.append(f'_Static_assert(((ours_{name})-1 < 0) == (({name})-1 < 0), "sign: {name}");')
    lines += [f"{n} *keeps_{n};" for n in abi.opaque]  # the name must exist there
    return "\n".join(lines) + "\n"


def prototypes_source(rows):
    # without it, cudaTypedefs.h keeps the oldest ABIs back (PFN_cuCtxCreate_v2000)
    lines = ["#define __CUDA_API_VERSION_INTERNAL", "#include <cuda.h>", "#include <cudaTypedefs.h>"]
    for _, symbol, base, version, flags, parameters in rows:
        suffix = {"LEGACY": "", "PTSZ": "_ptsz"}[flags]
        lines.append(f"typedef CUresult ours_{symbol}{parameters};")
        lines.append(f"_Static_assert(__builtin_types_compatible_p(ours_{symbol} *, PFN_{base}_v{version}{suffix}), "
                     f'"prototype: {symbol}");')
    return "\n".join(lines) + "\n"
