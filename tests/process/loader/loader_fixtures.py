# SPDX-License-Identifier: MIT
"""The loader fixtures, compiled at -O0 and at -O2 for the machine whose library is under test."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parent / "src"
EMULATED = "CACHEALLOC_TEST_EMULATOR" in os.environ
CC = "aarch64-linux-gnu-gcc" if EMULATED else os.environ.get("CC", "cc")


def compile_c(out, source, *args):
    """One C file to one program or library; sibling calls stay calls, so that no jump hides a lost caller."""
    subprocess.run([CC, "-D_GNU_SOURCE", "-w", "-g", "-fPIC", "-fno-optimize-sibling-calls",
                    "-o", str(out), str(SRC / source), *args, "-ldl", "-pthread"], check=True)
    return out


def build_fixtures(folder, level):
    shared = ["-shared", f"-O{level}"]
    (folder / "driver").mkdir()
    driver = compile_c(folder / "driver" / "libcuda.so.1", "driver.c", *shared, "-Wl,-soname,libcuda.so.1",
                       "-Wl,-Bsymbolic")
    for n in (2, 1, 0):
        compile_c(folder / f"libchain{n}.so", "library.c", *shared, "-DKIND_CHAIN", f"-DLEVEL={n}")
    (folder / "plugins").mkdir()
    compile_c(folder / "libplugin.so", "library.c", *shared, "-DKIND_PLUGIN",
              "-Wl,-rpath,$ORIGIN/plugins", "-Wl,--enable-new-dtags")
    compile_c(folder / "plugins" / "libsibling.so", "library.c", *shared, "-DKIND_SIBLING")
    (folder / "siblings").mkdir()
    shutil.copy(folder / "plugins" / "libsibling.so", folder / "siblings")
    compile_c(folder / "libother.so", "library.c", *shared, "-DKIND_OTHER")
    chain = [f"-L{folder}", "-Wl,--no-as-needed", "-lchain2", "-lchain1", "-lchain0", "-Wl,--as-needed"]
    compile_c(folder / "probe", "probe.c", f"-O{level}", "-rdynamic", *chain)
    compile_c(folder / "probe_direct", "probe.c", f"-O{level}", "-DDIRECT", *chain, str(driver))
    return folder


@pytest.fixture(scope="session", params=["0", "2"], ids=["O0", "O2"])
def fixtures(request, tmp_path_factory):
    if not shutil.which(CC):
        pytest.skip(f"no {CC}")
    return build_fixtures(tmp_path_factory.mktemp(f"loader-O{request.param}"), request.param)
