#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes shim/bind/cuda_names.def: every entry point of libcuda that a CUDA toolkit's headers know.

The exported symbols are those that cuda.h and the graphics headers declare; the name and version that cuGetProcAddress
knows them by come from the PFN_<base>_v<version>[_ptsz|_ptds] types of the *Typedefs.h headers. Within one base name
and one stream flavour the n-th symbol (cuX, cuX_v2, cuX_v3 ...) is the n-th version; the numbers of both must agree,
and --verify has the compiler compare the prototype of every symbol with the type it was paired with.

    gen_cuda_names.py [--cuda DIR]            write the file
    gen_cuda_names.py --check [--cuda DIR]    exit 1 if the file is not what would be written, 77 without toolkit
    gen_cuda_names.py --verify [--cuda DIR]   exit 1 if a prototype differs from its type, 77 without toolkit
"""

import argparse
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
OUTPUT = ROOT / "shim" / "bind" / "cuda_names.def"
GRAPHICS = ("GL", "EGL", "VDPAU")
HEADERS = ("",) + GRAPHICS + ("Profiler",)
# cudaProfiler.h is not in every package, and has not changed since CUDA 4
PROFILER = {"cuProfilerInitialize", "cuProfilerStart", "cuProfilerStop"}
NEVER_EXPORTED = {"cuGetProcAddress_v2_ptsz"}  # a slip of cuda.h's: no driver has it
SKIPPED = 77

HEAD = """/* SPDX-License-Identifier: MIT */
/*
 * Every entry point of libcuda that CUDA %(version)s knows: %(count)d symbols. Written by tests/abi/gen_cuda_names.py.
 *
 *   CA_NAME(symbol, base, version, flavour)
 *     symbol   as exported by libcuda.so.1
 *     base     the name that cuGetProcAddress knows it by
 *     version  the CUDA version in which this ABI appeared
 *     flavour  LEGACY, or PTSZ for the per-thread default stream (symbols in _ptsz and _ptds)
 *
 * Sorted by symbol in byte order. Unversioned symbols of version 2000 with a sibling of 3020 are the 32-bit ABI of CUDA 2.
 */
"""


def declared_symbols(include, compiler):
    """Functions that cuda.h declares under any of its settings, by the names that libcuda exports."""
    names = set()
    for setting in ([], ["-DCUDA_API_PER_THREAD_DEFAULT_STREAM"], ["-D__CUDA_API_VERSION_INTERNAL"]):
        done = subprocess.run([compiler, "-E", "-P", "-xc", f"-I{include}", *setting, "-"], input="#include <cuda.h>\n",
                              text=True, check=True, stdout=subprocess.PIPE)
        names |= set(re.findall(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(", done.stdout))
    return names - NEVER_EXPORTED


def graphics_symbols(include):
    """Functions that the graphics headers declare, as exported."""
    names = set()
    for part in GRAPHICS:
        text = (include / f"cuda{part}.h").read_text(errors="replace")
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
        text = re.sub(r"^#if(def)? _WIN32.*?^#endif", "", text, flags=re.S | re.M)
        names |= set(re.findall(r"CUDAAPI\s+(cu[A-Z]\w*)\s*\(", text))
        for target in re.findall(r"#define\s+cu\w+\s+(.*)", text):
            names |= set(re.findall(r"\bcu[A-Z]\w*", target))
            for twin, base in re.findall(r"__CUDA_API_(PTDS|PTSZ)\((\w+)\)", target):
                names.add(f"{base}_{twin.lower()}")
    return names


def versions(include):
    """{(base, suffix): sorted versions} of the function types."""
    found = defaultdict(set)
    for part in HEADERS:
        text = (include / f"cuda{part}Typedefs.h").read_text(errors="replace")
        for base, version, suffix in re.findall(r"\*PFN_(cu\w+?)_v(\d+)(_ptsz|_ptds|)\)", text):
            found[base, suffix].add(int(version))
    return {key: sorted(value) for key, value in found.items()}


def split(symbol):
    """cuX_v2_ptsz -> (cuX, _ptsz, 2)"""
    base, number, suffix = re.fullmatch(r"(cu\w+?)(?:_v(\d+))?(_ptsz|_ptds|)", symbol).groups()
    return base, suffix, int(number or 1)


def rows(cuda, compiler="cc"):
    """Sorted [(symbol, base, version, suffix)]; stops the program where the sources disagree."""
    include = cuda / "include"
    symbols = defaultdict(list)
    for symbol in declared_symbols(include, compiler) | graphics_symbols(include) | PROFILER:
        base, suffix, number = split(symbol)
        symbols[base, suffix].append((number, symbol))
    known = versions(include)
    known.pop(("cuWGLGetDevice", ""), None)  # Windows only
    result, wrong = [], []
    for key in sorted(set(symbols) | set(known)):
        have, want = sorted(symbols.get(key, [])), known.get(key, [])
        if len(have) != len(want):
            wrong.append(f"{key[0]}{key[1]}: symbols {[s for _, s in have]}, versions {want}")
        result += [(s, key[0], v, key[1]) for (_, s), v in zip(have, want)]
    if wrong:
        sys.exit("gen_cuda_names: symbols and types disagree\n  " + "\n  ".join(wrong))
    return sorted(result)


def render(cuda):
    table = rows(cuda)
    number = int(re.search(r"#define CUDA_VERSION (\d+)", (cuda / "include" / "cuda.h").read_text())[1])
    text = HEAD % {"version": f"{number // 1000}.{number % 1000 // 10}", "count": len(table)}
    for symbol, base, version, suffix in table:
        text += f"CA_NAME({symbol}, {base}, {version}, {'PTSZ' if suffix else 'LEGACY'})\n"
    return text


def verify(cuda, compiler):
    """Has the compiler compare each symbol's prototype with its PFN type."""
    source = "#define __CUDA_API_VERSION_INTERNAL 1\n"
    source += "#include <cudaTypedefs.h>\n"
    compared = 0
    # those need the graphics libraries' own headers, or one that is not in every package
    elsewhere = graphics_symbols(cuda / "include") | PROFILER
    for symbol, base, version, suffix in rows(cuda):
        if symbol in elsewhere:
            continue
        source += (f'_Static_assert(__builtin_types_compatible_p(__typeof__(&{symbol}), '
                   f'PFN_{base}_v{version}{suffix}), "{symbol}");\n')
        compared += 1
    done = subprocess.run([compiler, "-std=gnu11", "-w", "-fsyntax-only", "-x", "c", f"-I{cuda / 'include'}", "-"],
                          input=source, text=True, stderr=subprocess.PIPE)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
    else:
        print(f"{compared} prototypes compared with their types")
    return done.returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuda", type=Path, default=Path("/usr/local/cuda"), help="the toolkit's directory")
    parser.add_argument("--cc", default="cc", help="compiler for --verify")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--verify", action="store_true")
    args = parser.parse_args()
    if not (args.cuda / "include" / "cudaTypedefs.h").exists():
        print(f"no CUDA toolkit at {args.cuda}", file=sys.stderr)
        return SKIPPED
    if args.verify:
        return verify(args.cuda, args.cc)
    text = render(args.cuda)
    if args.check:
        same = OUTPUT.exists() and OUTPUT.read_text() == text
        print("shim/bind/cuda_names.def is " + ("up to date" if same else "out of date"))
        return 0 if same else 1
    OUTPUT.write_text(text)
    print(f"wrote {OUTPUT}: {text.count('CA_NAME(') - 1} names")
    return 0


if __name__ == "__main__":
    sys.exit(main())
