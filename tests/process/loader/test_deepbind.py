# SPDX-License-Identifier: MIT
"""A library that is opened with RTLD_DEEPBIND, and looks the driver up itself (Taichi), is served."""

import json
import os

import pytest
from conftest import SIM, run
from loader_fixtures import compile_c

LINKS = {"lazy": ["-Wl,-z,lazy,-z,norelro"], "relro": ["-Wl,-z,now,-z,relro"], "word": ["-fno-plt", "-Wl,-z,relro"]}


@pytest.mark.skipif("CACHEALLOC_TEST_SANITIZER" in os.environ, reason="a sanitizer refuses RTLD_DEEPBIND")
@pytest.mark.parametrize("how", ["now", "lazy"])
@pytest.mark.parametrize("link", sorted(LINKS))
def test_it_is_served(tmp_path, link, how):
    library, probe, stats = tmp_path / "libdeep.so", tmp_path / "probe", tmp_path / "stats.json"
    compile_c(library, "deepbind.c", "-O2", "-shared", *LINKS[link])
    compile_c(probe, "deepbind_probe.c")
    done = run([probe, library, how], LD_LIBRARY_PATH=SIM, CACHEALLOC_STATS=stats)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    device = json.loads(stats.read_text())["devices"][0]
    assert (device["alloc_calls"], device["free_calls"], device["driver_alloc_calls"]) == (10, 10, 1)
