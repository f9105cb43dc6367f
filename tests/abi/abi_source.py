# SPDX-License-Identifier: MIT
"""Writes C files whose compilation proves that our ABI is cuda.h's.

Two translation units, because shim/bind/cuda_abi.h and cuda.h define the same names:

values      cuda_abi.h with every type and enumerator renamed (prefix ours_), then cuda.h, then one static assertion
            for each enumerator, constant and type. Tags of opaque handles keep their name, so that the pointer types
            can be compared; a type that is a number, a structure or an enumeration is compared by size and alignment.
prototypes  cuda.h and the *Typedefs.h headers only, then each row of hooks.def read with cuda.h's own types and compared
            with PFN_<base>_v<version>[_ptsz|_ptds]: name, version and stream flavour are thereby proved too. The headers of
            OpenGL, EGL and VDPAU that these include stand in for the real ones as far as a type's name is needed.
"""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
ABI = ROOT / "shim" / "bind" / "cuda_abi.h"
HOOKS = ROOT / "shim" / "bind" / "hooks.def"
SUBMIT = ROOT / "shim" / "bind" / "submit.def"
GRAPHICS = ROOT / "shim" / "bind" / "graphics_abi.h"

ROW = re.compile(r"^CA_(\w+)\(\s*", re.M)
COMMENT = re.compile(r"/\*.*?\*/", re.S)
PREPROCESSOR = re.compile(r"^[ \t]*#(?:.*\\\n)*.*$", re.M)


def arguments(text, start):
    """The arguments of a macro call whose first one begins at `start`; commas within parentheses do not divide."""
    found, depth, begin, at = [], 0, start, start
    while depth >= 0:
        if text[at] in ",)" and not depth:
            found.append(" ".join(text[begin:at].split()))
            begin = at + 1
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
    return found


def rows_of(text):
    """[(kind, symbol, base, version, flags, parameters)]; kind HOOK or NEED."""
    text = PREPROCESSOR.sub("", COMMENT.sub("", text))
    rows = []
    for found in ROW.finditer(text):
        macro, args = found.group(1), arguments(text, found.end())
        if macro in ("HOOK", "NEED"):
            symbol, base, version, flags, parameters = args[:5]
            rows.append((macro, symbol, base, int(version), flags, parameters))
        elif macro.endswith("_TWINS"):
            symbol, suffix, base, version, twin_version, parameters = args[:6]
            rows.append(("HOOK", symbol, base, int(version), "LEGACY", parameters))
            rows.append(("HOOK", symbol + suffix, base, int(twin_version), "PTSZ", parameters))
        else:
            symbol, base, version, parameters = args[:4]
            rows.append(("HOOK", symbol, base, int(version), "LEGACY", parameters))
    return rows


def submit_rows(path=SUBMIT):
    return rows_of(Path(path).read_text())


def hook_rows(path=HOOKS, submit=SUBMIT):
    """The rows of hooks.def, and of submit.def, which it includes."""
    return rows_of(Path(path).read_text()) + submit_rows(submit)


class Abi:
    """The names that cuda_abi.h defines."""

    def __init__(self, path=ABI):
        self.path = Path(path).resolve()
        text = COMMENT.sub("", self.path.read_text())
        self.macros = re.findall(r"^#define\s+(CU\w+)\s", text, re.M)
        bodies = re.findall(r"\benum\b\s*\w*\s*\{(.*?)\}", text, re.S)
        self.enumerators = [n for body in bodies for n in re.findall(r"^\s*(\w+)\s*(?:=|,)", body, re.M)]
        self.enum_tags = re.findall(r"\benum\s+(\w+)\s*\{", text)
        self.struct_tags = re.findall(r"\b(?:struct|union)\s+(\w+)\s*\{", text)  # with a body: not opaque
        self.handles = re.findall(r"^typedef\s+struct\s+\w+\s*\*\s*(\w+);", text, re.M)
        opaque = re.findall(r"^typedef\s+struct\s+(\w+)\s+(\w+);", text, re.M)
        self.opaque = [name for _, name in opaque]
        numbers = re.findall(r"^typedef\s+(?!struct|enum|union)[\w\s]+?\b(\w+);", text, re.M)
        records = re.findall(r"^\}\s*(\w+);", text, re.M)
        self.aggregates = re.findall(r"^typedef\s+(?:struct|union)\s+\w+\s*\{(?:.*\n)+?\}\s*(\w+);", text, re.M)
        self.functions = re.findall(r"^typedef\s+\w+\s*\(\*(\w+)\)", text, re.M)
        self.exact = numbers + self.handles
        self.sized = records

    def renamed(self):
        """Names to prefix; an opaque structure keeps its tag."""
        return sorted({*self.enumerators, *self.enum_tags, *self.struct_tags, *self.exact, *self.sized,
                       *self.opaque, *self.functions})


def values_source(path=ABI, words=None):
    """`words`: those of a cuda.h that need not know all of our names; None: it must."""
    abi = Abi(path)
    names = abi.renamed()

    def known(wanted):
        return [name for name in wanted if words is None or name in words]

    lines = [f"#define {name} ours_{name}" for name in names]
    lines.append(f'#include "{abi.path}"')
    # a macro cannot be renamed: keep its value in an object of the same type before it goes
    lines += [f"enum {{ ours_{name} = (int)(__UINTPTR_TYPE__)({name}) }};" for name in abi.macros]
    lines += [f"#undef {name}" for name in names + abi.macros]
    lines.append("#include <cuda.h>")
    lines += [f'_Static_assert((long long)ours_{n} == (long long)(__UINTPTR_TYPE__)({n}), "value: {n}");'
              for n in known(abi.enumerators + abi.macros)]
    lines += [f'_Static_assert(__builtin_types_compatible_p(ours_{n}, {n}), "type: {n}");' for n in known(abi.exact)]
    for name in known(abi.sized):
        lines.append(f'_Static_assert(sizeof(ours_{name}) == sizeof({name}), "size: {name}");')
        lines.append(f'_Static_assert(_Alignof(ours_{name}) == _Alignof({name}), "alignment: {name}");')
        # an enumeration's sign decides how it is passed on and compared
        if name not in abi.aggregates:
            lines.append(f'_Static_assert(((ours_{name})-1 < 0) == (({name})-1 < 0), "sign: {name}");')
    lines += [f"{n} *keeps_{n};" for n in known(abi.opaque)]  # the name must exist there
    return "\n".join(lines) + "\n"


# What cudaGL.h, cudaEGL.h and cudaVDPAU.h use of headers that few machines have
GRAPHICS_STANDINS = {
    "GL/gl.h": "typedef unsigned int GLuint, GLenum; typedef int GLint;",
    "EGL/egl.h": "typedef int EGLint;",
    "EGL/eglext.h": "typedef void *EGLStreamKHR, *EGLImageKHR, *EGLSyncKHR;",
    "vdpau/vdpau.h": "typedef unsigned VdpDevice, VdpVideoSurface, VdpOutputSurface; "
                     "typedef int VdpGetProcAddress(VdpDevice, unsigned, void **);",
}
GRAPHICS_ROW = re.compile("cu(GL|EGL|VDPAU)[A-Z]")


def write_standins(folder):
    for name, text in GRAPHICS_STANDINS.items():
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def prototypes_source(rows):
    # without it, cudaTypedefs.h keeps the oldest ABIs back (PFN_cuCtxCreate_v2000)
    lines = ["#define __CUDA_API_VERSION_INTERNAL", "#include <cuda.h>", "#include <cudaTypedefs.h>"]
    if any(GRAPHICS_ROW.match(row[1]) for row in rows):
        lines += ["#include <cudaGL.h>", "#include <cudaGLTypedefs.h>", "#include <cudaEGL.h>",
                  "#include <cudaEGLTypedefs.h>", "#include <vdpau/vdpau.h>", "#include <cudaVDPAU.h>",
                  "#include <cudaVDPAUTypedefs.h>"]
    for _, symbol, base, version, flags, parameters in rows:
        suffix = {"LEGACY": "", "PTSZ": "_ptds" if symbol.endswith("_ptds") else "_ptsz"}[flags]
        lines.append(f"typedef CUresult ours_{symbol}{parameters};")
        lines.append(f"_Static_assert(__builtin_types_compatible_p(ours_{symbol} *, PFN_{base}_v{version}{suffix}), "
                     f'"prototype: {symbol}");')
    return "\n".join(lines) + "\n"


def graphics_source(path=GRAPHICS):
    """graphics_abi.h's one structure against cudaEGL.h's, with the names of the former changed."""
    names = Abi(path)
    changed = sorted({*names.struct_tags, *names.exact, *names.sized})
    lines = ["#include <cuda.h>"]
    lines += [f"#define {name} ours_{name}" for name in changed]
    lines += [re.sub(r'^#(include|pragma).*$', "", Path(path).read_text(), flags=re.M)]
    lines += [f"#undef {name}" for name in changed]
    lines += ["#include <cudaGL.h>", "#include <cudaEGL.h>"]
    for name in ("GLuint", "CUeglFrame"):
        lines.append(f'_Static_assert(sizeof(ours_{name}) == sizeof({name}) && '
                     f'_Alignof(ours_{name}) == _Alignof({name}), "size: {name}");')
    return "\n".join(lines) + "\n"


def runtime_tables():
    """Ids of the private driver tables that count as the runtime's own."""
    text = (ROOT / "shim" / "hooks" / "hook_peer.c").read_text()
    rows = re.search(r"runtime_tables\[\]\[16\] = \{(.*?)\n\};", text, re.S).group(1)
    return [bytes(int(byte, 16) for byte in re.findall("0x([0-9a-f]{2})", row)) for row in re.findall(r"\{(.*?)\}", rows, re.S)]
