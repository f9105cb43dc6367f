# SPDX-License-Identifier: MIT
"""expandable_segments: what `auto` would decide in a program, as far as its files tell. The same table as
shim/driver/vmm_trial.c; a test compares the two."""

import os

# how a library's name begins -> what it is: they give device memory to other processes, which mapped memory is not for
SHARERS = {"libmpi": "MPI", "libucp.": "UCX", "libuct.": "UCX", "libtorch_python.": "torch.multiprocessing"}


def setting(environ):
    """expandable_segments as CACHEALLOC_CONF has it, in small letters; "" where it is not there."""
    word = ""
    for entry in environ.get("CACHEALLOC_CONF", "").split(","):
        key, _, value = entry.partition(":")
        if "".join(key.split()) == "expandable_segments":
            word = "".join(value.split()).lower()
    return word


def note(environ, names, has_torch):
    """A phrase about `auto`, or None. names: of the libraries that the program loads; has_torch: its Python may import it."""
    if setting(environ) != "auto":
        return None
    for name in names:
        for begin, owner in SHARERS.items():
            if os.path.basename(name).startswith(begin):
                return (f"expandable_segments:auto: segments are as ever, since {owner} is loaded ({name}), which shares memory "
                        "between processes; expandable_segments:True maps it all the same")
    return ("expandable_segments:auto: memory is mapped if the process sees one device, its driver passes a trial, and neither "
            "MPI, UCX nor PyTorch is loaded later" + (" (this Python has PyTorch)" if has_torch else "") +
            ": CACHEALLOC_LOG=info says how that ended")
