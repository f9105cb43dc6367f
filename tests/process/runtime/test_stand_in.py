# SPDX-License-Identifier: MIT
"""The stand-in runtime: its resolver sequence on the recording driver, beside the toolkit's own where there is one, and
its rules above the driver on the simulator."""

import ctypes
import os
import re
import subprocess
from pathlib import Path

import pytest

from conftest import BUILD, LIBRARY, SIM, run

PROGRAMS = BUILD / "tests" / "process" / "programs"
FIXTURES = BUILD / "tests" / "process" / "fixtures"
FLAVOURS = ["road_runtime_shared-O2", "road_runtime_static-O2"]


def toolkit_runtime():
    for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda"):
        path = home and Path(home) / "lib64" / "libcudart.so.13"
        if path and path.is_file():
            return path
    pytest.skip("no CUDA 13 toolkit: CUDA_HOME and /usr/local/cuda hold no libcudart.so.13")


def on_fixture(program, tmp_path, driver="", runtime=SIM, **env):
    """Runs on the recording driver; returns the process and the driver's log as lists of words."""
    log = tmp_path / "log"
    done = run([PROGRAMS / program, "8"], preload=False, FIXTURE_LOG=log,
               LD_LIBRARY_PATH=f"{FIXTURES / driver}:{runtime}", **env)
    return done, [line.split() for line in log.read_text().splitlines()] if log.exists() else []


def lookups(log):
    return [tuple(words[2:5]) for words in log if words[0] == "proc" and len(words) == 6]


@pytest.mark.parametrize("program", FLAVOURS)
def test_every_name_by_the_second_resolver(program, tmp_path):
    done, log = on_fixture(program, tmp_path)
    assert done.returncode == 0, done.stderr
    assert log[0] == ["proc", "v2", "0", "0", "-"]  # the probe: empty name, version 0
    asked = lookups(log)
    assert asked[0] == ("cuInit", "2000", "0")
    assert ("cuMemAlloc", "3020", "0") in asked and ("cuMemcpyAsync", "7000", "2") in asked
    assert all(words[1] == "v2" and words[-1] != "-" for words in log[1:] if words[0] == "proc")
    assert sum(words == ["call", "cuMemAlloc_v2"] for words in log) == 8


@pytest.mark.parametrize("link", ["shared", "static"])
def test_flavours_of_the_default_stream(link, tmp_path):
    for flavour, called, other in (("", "cuMemsetD8Async", "cuMemsetD8Async_ptsz"),
                                   ("_ptsz", "cuMemsetD8Async_ptsz", "cuMemsetD8Async")):
        folder = tmp_path / f"flavour{flavour}"
        folder.mkdir()
        _, log = on_fixture(f"road_runtime_{link}{flavour}-O2", folder)
        assert ["call", called] in log and ["call", other] not in log


@pytest.mark.parametrize("driver, proc", [("", "v1"), ("", "none"), ("v1", "both"), ("v0", "both")])
@pytest.mark.parametrize("program", FLAVOURS)
def test_falls_back_to_dlsym(program, driver, proc, tmp_path):
    done, log = on_fixture(program, tmp_path, driver, FIXTURE_PROC=proc)
    assert done.returncode == 0, done.stderr
    assert not lookups(log)
    assert sum(words == ["call", "cuMemAlloc_v2"] for words in log) == 8


@pytest.mark.parametrize("env, error", [
    ({"FIXTURE_VERSION": "12090"}, 35),
    ({"FIXTURE_MISSING": "cuMemAlloc"}, 36),
    ({"FIXTURE_CODES": "cuInit=100"}, 100),
    ({"FIXTURE_CODES": "cuMemAlloc_v2=2"}, 2),
    ({"FIXTURE_CODES": "cuMemAlloc_v2=12345"}, 999),
    ({"FIXTURE_CODES": "cuDevicePrimaryCtxRetain=101"}, 101),
])
@pytest.mark.parametrize("program", FLAVOURS)
def test_errors(program, env, error, tmp_path):
    done, _ = on_fixture(program, tmp_path, **env)
    assert (done.returncode, done.stderr) == (1, f"alloc: {error}\n")


@pytest.mark.parametrize("program", FLAVOURS)
def test_no_driver(program, tmp_path):
    done, log = on_fixture(program, tmp_path, driver="programs-of-nobody", runtime=tmp_path)
    if "shared" in program:
        (tmp_path / "libcudart.so.13").symlink_to(SIM / "libcudart.so.13")
        done, log = on_fixture(program, tmp_path, driver="programs-of-nobody", runtime=tmp_path)
    assert (done.returncode, done.stderr, log) == (1, "alloc: 35\n", [])


def test_same_questions_as_the_toolkits_runtime(tmp_path):
    """The real runtime gives up on this driver later; until then it asks the same in the same order."""
    real, ours = tmp_path / "real", tmp_path / "ours"
    real.mkdir(), ours.mkdir()
    _, log = on_fixture(FLAVOURS[0], real, runtime=toolkit_runtime().parent)
    theirs = iter(lookups(log))
    assert log[0] == ["proc", "v2", "0", "0", "-"]
    _, log = on_fixture(FLAVOURS[0], ours)
    assert [q for q in lookups(log) if q not in theirs] == []  # `in` an iterator consumes: order counts


def symbols(path, *options):
    text = subprocess.run(["nm", *options, path], check=True, capture_output=True, text=True).stdout
    return {line.split()[-1] for line in text.splitlines() if re.search(r" [TWBDRVA] ", line)}


def test_exports_are_the_toolkits_names():
    ours = {name for name in symbols(SIM / "libcudart.so.13", "-D", "--defined-only") if name != "libcudart.so.13"}
    assert len(ours) == 55
    assert all(re.fullmatch(r"cuda\w+@@libcudart\.so\.13", name) for name in ours), ours
    assert ours - symbols(toolkit_runtime(), "-D", "--defined-only") == set()


def test_soname():
    text = subprocess.run(["readelf", "-dW", SIM / "libcudart.so.13"], check=True, capture_output=True,
                          text=True).stdout
    assert re.search(r"SONAME.*\[libcudart\.so\.13\]", text)


def test_archive_shows_only_the_api():
    ours = symbols(SIM / "libcudart_static.a", "--defined-only", "-g")
    assert "cudaMalloc" in ours and all(name.startswith("cuda") for name in ours), ours
    assert not [n for n in symbols(PROGRAMS / FLAVOURS[1], "-D", "--defined-only") if n.startswith("cuda")]


@pytest.mark.skipif("CACHEALLOC_TEST_SANITIZER" in os.environ, reason="Python cannot load a library with a sanitizer")
def test_texts_are_the_toolkits():
    ours, real = (ctypes.CDLL(str(path)) for path in (SIM / "libcudart.so.13", toolkit_runtime()))
    for name in ("cudaGetErrorName", "cudaGetErrorString"):
        for library in (ours, real):
            getattr(library, name).restype = ctypes.c_char_p
        for code in range(-1, 1100):
            assert getattr(ours, name)(code) == getattr(real, name)(code), code


@pytest.mark.parametrize("program", ["runtime_rules", "runtime_rules_ptsz", "runtime_rules_static"])
@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("preload", [False, True])
def test_rules(program, devices, preload):
    assert not preload or LIBRARY.is_file(), f"{LIBRARY} is not built"
    done = run([PROGRAMS / program], preload=preload, SIMCUDA_DEVICES=devices, SIMCUDA_RACES="abort")
    assert (done.returncode, done.stderr) == (0, "")
