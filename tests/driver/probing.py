# SPDX-License-Identifier: MIT
"""NVIDIA's own libraries as set-up fetched them, and probe.c linked with one of them.

The driver is run without a device, also where there is one: it answers look-ups and refuses calls with codes of its own.
As root it would make /dev/nvidiactl, for which it is denied the capability.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from conftest import LIBRARY, ROOT, run

sys.path.append(str(ROOT / "tests" / "abi"))
from abi_source import hook_rows

DRIVERS = ROOT / "build-drivers"
PROBE = Path(__file__).resolve().parent / "probe.c"
KNOWN = re.findall(r"^CA_NAME\((\w+), (\w+), (\d+),", (ROOT / "shim" / "bind" / "cuda_names.def").read_text(), re.M)


def name_of(library):
    return library.resolve().name.removeprefix("libcuda.so.")


def version_of(library):
    """Of libcuda.so.1, which is a link to libcuda.so.VERSION."""
    return tuple(int(number) for number in name_of(library).split("."))


def drivers():
    """Every libcuda.so.1 that was fetched, oldest first."""
    return sorted(DRIVERS.glob("*/*/libcuda.so.1"), key=version_of)


def symbols(library, kinds):
    """{name: address} of the exported symbols of these kinds (nm's letters)."""
    done = subprocess.run(["nm", "-D", "--defined-only", library], text=True, check=True, stdout=subprocess.PIPE)
    rows = (line.split() for line in done.stdout.splitlines())
    return {name.split("@")[0]: int(address, 16) for address, kind, name in rows if kind in kinds}


def ours():
    """The functions of libcuda that the library has its own of."""
    return {name for name in symbols(LIBRARY, "T") if re.match("cu[A-Z]", name)}


def without_devices():
    """What a command is run under, so that the driver makes no device files and sees no device."""
    hidden = ["env", "CUDA_VISIBLE_DEVICES="]
    return hidden if os.geteuid() else [*hidden, "setpriv", "--bounding-set=-mknod", "--inh-caps=-mknod"]


BY_VALUE = re.compile(r"CUipc\w+|CUeglFrame")  # structures
#: CUmemLocation by value is two numbers in one register; with a pointer among the flags behind it, they would be zero only
#: where the address of memory happens to end in 32 zero bits
NUMBER = re.compile(r"unsigned|int|size_t|cuuint\w+|CUdevice|CUmemLocation|CUstreamCaptureMode|CUlimit|CU\w+_attribute|CU\w+Type"
                    "|GLuint")


def kinds_of(parameters):
    """For probe.c, of a function's parameters as hooks.def writes them; empty where a structure is passed by value."""
    kinds = ""
    for parameter in parameters.strip("()").split(","):
        kind = parameter.split()[0]
        if "*" in parameter:
            kinds += "p"
        elif BY_VALUE.fullmatch(kind):
            return ""
        else:
            kinds += "s" if kind == "CUstream" else "n" if NUMBER.fullmatch(kind) else "p"
    return kinds


def listed(name, items):
    return f"#define {name}(X) " + " ".join(f"X({item})" for item in items) + "\n"


class Probe:
    """probe.c for one library. `link`: what it is linked with; `file`: what it opens, None for itself."""

    def __init__(self, folder, link, file, start, exported, asked=(), called=()):
        self.program = folder / "probe"
        name = f'"{file}"' if file else "NULL"
        kinds = {row[1]: kinds_of(row[5]) for row in hook_rows()}
        calls = [f'{each}, "{kinds.get(each, "")}"' for each in called]
        (folder / "names.h").write_text(f"#define FILE_NAME {name}\n#define START {start}\n" + listed("EXPORTED", exported)
                                        + listed("ASKED", asked) + listed("CALLED", calls))
        # position-independent, or the linker would put stubs of the program's where the functions' addresses are taken
        subprocess.run(["gcc", "-std=gnu11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Werror", "-fPIE", "-pie", f"-I{folder}",
                        "-o", self.program, PROBE, *link, "-ldl", "-lpthread", "-lrt", "-lm"], check=True)

    def run(self, words, folders, preload, **env):
        """Without the library the probe keeps the driver loaded, as the library does (probe.c)."""
        paths = ":".join(str(folder) for folder in folders)
        kept = {} if preload else {"PROBE_KEEPS": "libcuda.so.1"}
        done = run([*without_devices(), self.program, *words], preload=preload, LD_LIBRARY_PATH=paths, timeout=300,
                   cwd=self.program.parent, **kept, **env)
        assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
        return done

    def both(self, words, folders):
        """The lines without the library, and with it."""
        return [self.run(words, folders, preload).stdout.splitlines() for preload in (False, True)]

    def calls(self, seed, folders, no_codes):
        """The lines of `call`, sorted, without the library and with it. Of `no_codes` only that they return is told."""
        def told(lines):
            return sorted(re.sub("code .*", "returned", line) if line.split()[0] in no_codes else line for line in lines)

        return [told(lines) for lines in self.both(["call", seed], folders)]


def differing(plain, loaded):
    """The lines of either that the other has not."""
    return sorted({*plain} ^ {*loaded})


def asked_for(stderr):
    """{name: answer} of the debug lines about look-ups."""
    return dict(re.findall(r"debug: asked for (\w+) by (?:dlsym|cuGetProcAddress): (.*)", stderr))
