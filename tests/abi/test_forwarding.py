# SPDX-License-Identifier: MIT
"""Each wrapper of submit.def hands its own arguments to its own function, and that function's answer back.

A driver is written from the table whose functions print their name and the bytes of every argument and answer with a
number of their own; a program calls each once, found by dlsym, without and with the preload.
"""

import re
import subprocess

import pytest

from abi_source import ROOT, submit_rows
from conftest import run

DRIVER_HEAD = r"""
#include <stdio.h>
#include "shim/bind/cuda_abi.h"
#include "shim/bind/graphics_abi.h"
static void put(const void *bytes, size_t n)
{
	printf(" ");
	for (size_t i = 0; i < n; i++)
		printf("%02x", ((const unsigned char *)bytes)[i]);
}
CUresult cuInit(unsigned flags) { return 0; }
CUresult cuDriverGetVersion(int *version) { *version = 13000; return 0; }
CUresult cuCtxGetCurrent(CUcontext *context) { *context = NULL; return 0; }
"""

PROGRAM_HEAD = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include "shim/bind/cuda_abi.h"
#include "shim/bind/graphics_abi.h"
static char zeros[1 << 16]; /* what pointers point to */
static void *driver;
static int ours;
static void *find(const char *name)
{
	Dl_info where;
	void *found = dlsym(driver, name);
	if (dladdr(found, &where) && strstr(where.dli_fname, "libcachealloc"))
		ours++;
	return found;
}
"""


def parameters(text):
    """[(declaration, name, is a pointer)] of a parameter list."""
    parts = [part.strip() for part in text.strip()[1:-1].split(",")]
    return [(part, re.search(r"(\w+)$", part).group(1), "*" in part or re.match(r"CU(stream|func|graph|array|context|event|"
             r"memoryPool|graphics|ext)", part) is not None) for part in parts if part != "void"]


def driver_source(rows):
    text = DRIVER_HEAD
    for i, (_, symbol, _, _, _, params) in enumerate(rows):
        puts = "".join(f" put(&{name}, sizeof({name}));" for _, name, _ in parameters(params))
        text += f'CUresult {symbol}{params} {{ printf("{symbol}");{puts} puts(""); return {1000 + i}; }}\n'
    return text


def program_source(rows):
    text, calls = PROGRAM_HEAD, ""
    for i, (_, symbol, _, _, _, params) in enumerate(rows):
        body = ""
        for k, (declaration, name, pointer) in enumerate(parameters(params)):
            local = re.sub(rf"\bconst\b|{name}$", "", declaration).strip()
            body += f"\t{local} v{k};\n"
            value = f"void *p{k} = zeros + {4096 * (k + 1)}; memcpy(&v{k}, &p{k}, sizeof(v{k}))" if pointer \
                else f"memset(&v{k}, {0x11 * (k + 1)}, sizeof(v{k}))"
            body += f"\t{value};\n"
        passed = ", ".join(f"v{k}" for k in range(len(parameters(params))))
        text += (f"static void call{i}(void)\n{{\n\ttypedef CUresult fn{params};\n{body}"
                 f'\tprintf(" = %d\\n", (int)((fn *)find("{symbol}"))({passed}));\n}}\n')
        calls += f"\tcall{i}();\n"
    return text + ('int main(void)\n{\n\tdriver = dlopen("libcuda.so.1", RTLD_NOW);\n\tif (!driver)\n\t\treturn 2;\n'
                   f'{calls}\tfprintf(stderr, "ours %d\\n", ours);\n\treturn 0;\n}}\n')


def compile_text(source, output, *options):
    subprocess.run(["cc", "-w", "-O1", f"-I{ROOT}", "-o", output, "-xc", "-", *options], input=source, text=True, check=True,
                   timeout=120)


@pytest.fixture(scope="module")
def made(tmp_path_factory, build):
    folder = tmp_path_factory.mktemp("forwarding")
    rows = submit_rows()
    compile_text(driver_source(rows), folder / "libcuda.so.1", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1")
    compile_text(program_source(rows), folder / "program", "-fno-pie", "-no-pie", "-ldl")  # the same addresses in both runs
    return folder


def test_every_wrapper_forwards(made):
    rows = submit_rows()
    native = run([made / "program"], preload=False, check=0, LD_LIBRARY_PATH=made)
    ours = run([made / "program"], check=0, LD_LIBRARY_PATH=made)
    lines = native.stdout.splitlines()
    assert len(lines) == 2 * len(rows)
    assert [line.split()[0] for line in lines[::2]] == [row[1] for row in rows]
    assert lines[1::2] == [f" = {1000 + i}" for i in range(len(rows))]
    assert "ours 0\n" in native.stderr and f"ours {len(rows)}\n" in ours.stderr
    assert ours.stdout.splitlines() == lines
