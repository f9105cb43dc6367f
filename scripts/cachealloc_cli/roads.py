# SPDX-License-Identifier: MIT
"""By which roads a program reaches the CUDA driver, as far as its files tell.

direct          linked with libcuda.so.1: our exported names stand before libcuda's
shared-runtime  linked with libcudart.so.N, which asks dlsym and cuGetProcAddress
static-runtime  contains the CUDA runtime (nvcc's default), which does the same
dlopen          names libcuda.so or libcudart.so and imports dlopen
run-time        can load libraries later (dlopen); nothing more is known
"""

import re

NAMED = 3  # files in a line of `doctor`
HOOKED = ("cuMemAlloc_v2", "cuMemFree_v2")


class Road:
    """kind as above; file: which file takes it; binds: False with a reason in `text`."""

    def __init__(self, kind, file, binds, text):
        self.kind = kind
        self.file = file
        self.binds = binds
        self.text = text


def contains_runtime(elf):
    """A statically linked CUDA runtime: it names the driver and its resolver without being linked to it."""
    named = elf.contains(b"libcuda.so.1\0") and elf.contains(b"cuGetProcAddress")
    return named and (elf.contains(b"cudart") or elf.contains(b"CUDA_VISIBLE_DEVICES") or "cudaMalloc" in elf.exported)


def is_runtime(name):
    return re.match(r"libcudart\.so", name) is not None


def is_driver(name):
    return re.match(r"libcuda\.so", name.rsplit("/", 1)[-1]) is not None


def of_file(label, elf, main):
    """Roads of one file; `main` is the program's own Elf, whose names stand before everybody's."""
    roads = []
    if any(is_driver(name) for name in elf.needed):
        own = [name for name in HOOKED if name in main.exported]
        if own:
            roads.append(Road("direct", label, False,
                              f"the program itself exports {own[0]}, which stands before a preloaded library's"))
        elif elf.symbolic and any(name in elf.exported for name in HOOKED):
            roads.append(Road("direct", label, False, "linked with -Bsymbolic to driver names of its own"))
        else:
            roads.append(Road("direct", label, True, "linked with libcuda.so.1: the exported hooks come first"))
    for name in elf.needed:
        if is_runtime(name):
            roads.append(_looked_up("shared-runtime", label, f"linked with {name}, the shared CUDA runtime", main))
    if contains_runtime(elf) and not is_runtime(elf.soname or ""):
        roads.append(_looked_up("static-runtime", label, "contains the CUDA runtime", main))
    elif not roads and "dlopen" in elf.imported and (elf.contains(b"libcuda.so") or elf.contains(b"libcudart.so")):
        roads.append(_looked_up("dlopen", label, "loads CUDA at run time (imports dlopen and names it)", main))
    elif not roads and elf.imported & {"dlopen", "dlmopen"}:
        roads.append(_looked_up("run-time", label, "can load CUDA at run time (imports dlopen)", main))
    return roads


def by_text(roads):
    """((kind, text), files) of each kind of road, the first files by name: a program may have dozens of libraries that
    import dlopen."""
    files = {}
    for road in roads:
        files.setdefault((road.kind, road.text), []).append(road.file)
    return [(key, ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else ""))
            for key, names in files.items()]


def _looked_up(kind, label, text, main):
    """A road that goes through dlsym."""
    if "dlsym" in main.exported:
        return Road(kind, label, False, text + ", but the program exports a dlsym of its own")
    return Road(kind, label, True, text + ": the hooks come through dlsym and cuGetProcAddress")
