# SPDX-License-Identifier: MIT
"""Frameworks that cache device memory themselves: which of them a program brings along, and what becomes of their
memory. The same table as shim/framework/frameworks.def; a test compares the two."""

import glob
import os
import re

# name -> (how its libraries' names begin or, with a slash, a part of their path; how its cache is switched off;
#          [(variable, value)] that say that it is off: a value with a colon is a part of the variable's, one with a <
#          counts in versions before what follows)
FRAMEWORKS = {
    "PyTorch": (("libc10_cuda.", "libc10_cuda-"), "set PYTORCH_NO_CUDA_MEMORY_CACHING=1",
                (("PYTORCH_NO_CUDA_MEMORY_CACHING", "1"), ("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync"),
                 ("PYTORCH_ALLOC_CONF", "backend:cudaMallocAsync"))),
    "JAX": (("xla_cuda_plugin.", "pjrt_c_api_gpu_plugin.", "xla_extension.", "libxla_extension."),
            "set XLA_PYTHON_CLIENT_ALLOCATOR=address (in jaxlib before 0.10: platform)",
            tuple(("XLA_PYTHON_CLIENT_ALLOCATOR", value)
                  for value in ("address", "platform<0.10", "cuda_async", "vmm"))),
    "TensorFlow": (("libtensorflow", "_pywrap_tensorflow", "lib_pywrap_tensorflow"), "set TF_GPU_ALLOCATOR=cuda_malloc",
                   (("TF_GPU_ALLOCATOR", "cuda_malloc"), ("TF_GPU_ALLOCATOR", "cuda_malloc_async"))),
    "CuPy": (("/cupy/cuda/memory.", "/cupy_backends/cuda/api/runtime."),
             "call cupy.cuda.set_allocator(None) and set CACHEALLOC_CONF=under_framework:cache", ()),
}

# name -> (word of CACHEALLOC_TAKEOVER, the values by which its memory is stream-ordered, what that road keeps and loses)
STREAM_ORDERED = {
    "PyTorch": ("torch", ("backend:cudaMallocAsync",),
                "memory_stats (bytes), empty_cache, memory fraction, OutOfMemoryError, record_stream and CUDA graphs stay; "
                "memory_snapshot, memory history, out-of-memory observers, sharing CUDA tensors between processes and "
                "torch.compile(mode=\"reduce-overhead\") raise, torch.cuda.MemPool and two captures at a time are lost, a "
                "graph's memory is the driver's (PyTorch 2.7 to 2.15; before 2.0 it raises at the key)"),
    "JAX": ("jax", ("cuda_async",), "memory_stats (bytes) stays; nothing is preallocated, so other processes may take the memory"),
    "TensorFlow": ("tensorflow", ("cuda_malloc_async",),
                   "the limit of a logical device stays, as the pool's threshold; options of its BFC allocator are lost"),
}

# name -> where its libraries lie below a folder of Python packages
PLACES = {
    "PyTorch": ("torch/lib/libc10_cuda*.so",),
    "JAX": ("jax_plugins/xla_cuda*/xla_cuda_plugin.so", "jaxlib/xla_extension.so"),
    "TensorFlow": ("tensorflow/libtensorflow_cc.so*",),
    "CuPy": ("cupy/cuda/memory.*.so",),
}


def of_library(path):
    """The framework that a library belongs to, or None."""
    for name, (patterns, _, _) in FRAMEWORKS.items():
        if any(pattern in path if "/" in pattern else os.path.basename(path).startswith(pattern)
               for pattern in patterns):
            return name
    return None


def package_folders(python, environ):
    """Where that interpreter would look for packages, without running it."""
    found = [folder for folder in environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    for start in dict.fromkeys((os.path.dirname(os.path.abspath(python)), os.path.dirname(os.path.realpath(python)))):
        prefix = os.path.dirname(start)
        for library in ("lib", "lib64", "local/lib"):
            for packages in ("site-packages", "dist-packages"):
                found += sorted(glob.glob(os.path.join(glob.escape(prefix), library, "python3*", packages)))
    return list(dict.fromkeys(found))


def of_python(python, environ):
    """{name: a library of it} of the frameworks installed for an interpreter, which a script of its may import."""
    found = {}
    for name, places in PLACES.items():
        for folder in package_folders(python, environ):
            for place in places:
                for path in glob.glob(os.path.join(glob.escape(folder), place)):
                    found.setdefault(name, path)
    return found


def is_before(library, limit):
    """True if the version that version.py beside the library has is known and before "MAJOR.MINOR"."""
    try:
        with open(os.path.join(os.path.dirname(library), "version.py"), encoding="utf-8", errors="replace") as file:
            found = re.search(r'^(?:_version|__version__) = "(\d+)\.(\d+)', file.read(4095), re.M)
    except OSError:
        return False
    return bool(found) and tuple(map(int, found.groups())) < tuple(map(int, limit.split(".")))


def version(library):
    """The version of the framework that a library belongs to, by the version.py of its package, or None."""
    folder = os.path.dirname(library)
    for place in (folder, os.path.dirname(folder)):
        try:
            with open(os.path.join(place, "version.py"), encoding="utf-8", errors="replace") as file:
                found = re.search(r"""^(?:_version|__version__)\s*=\s*["']([^"']+)["']""", file.read(4095), re.M)
        except OSError:
            continue
        if found:
            return found.group(1)
    return None


def says_off(value, is_set, library):
    """Does a variable's contents say what the table's value says?"""
    if ":" in value:
        return value in "".join(is_set.split())
    word, _, limit = value.partition("<")
    return is_set == word and (not limit or is_before(library, limit))


def switched_off(name, environ, library):
    """The variable that says that the framework's cache is off, or None. Of the variables that hold a list the first
    that is set decides, even if it is empty."""
    decided = False
    for variable, value in FRAMEWORKS[name][2]:
        is_list, is_set = ":" in value, environ.get(variable)
        if is_set is None or (is_list and decided):
            continue
        decided = decided or is_list
        if says_off(value, is_set, library):
            return variable
    return None


def _stream_ordered(name, environ, variable):
    """A phrase, where that variable says that the framework's memory is stream-ordered."""
    _, values, balance = STREAM_ORDERED.get(name, ("", (), ""))
    value = "".join(environ.get(variable or "", "").split())
    if not any(wanted in value if ":" in wanted else wanted == value for wanted in values):
        return None
    return f"{name}'s own cache is off ({variable}): its memory is stream-ordered, from the driver's pool: {balance}"


def _offer(name):
    if name not in STREAM_ORDERED:
        return ""
    word, _, balance = STREAM_ORDERED[name]
    return f"; or, for stream-ordered memory, CACHEALLOC_TAKEOVER={word}: {balance}"


def setting(environ):
    """under_framework as CACHEALLOC_CONF has it."""
    word = "auto"
    for entry in environ.get("CACHEALLOC_CONF", "").split(","):
        key, _, value = entry.partition(":")
        if "".join(key.split()) == "under_framework" and "".join(value.split()).lower() in ("auto", "pass", "cache"):
            word = "".join(value.split()).lower()
    return word


def phrase(name, environ, library):
    """One phrase about a framework that the program has: `library` is the path of a library of it."""
    variable, word = switched_off(name, environ, library), setting(environ)
    stream_ordered = _stream_ordered(name, environ, variable)
    if stream_ordered:
        return stream_ordered
    if word == "cache":
        return f"{name}: what it asks of cudaMalloc is cached like any other request (under_framework:cache)"
    if variable and word == "auto":
        return f"{name}'s own cache is off ({variable}): what it asks of cudaMalloc is cached here"
    if variable:
        return f"{name}'s own cache is off ({variable}), but what it asks for goes straight through (under_framework:pass)"
    return (f"{name}'s own cache is on: requests go straight to the driver; to let cachealloc take over, "
            f"{FRAMEWORKS[name][1]}" + _offer(name))
