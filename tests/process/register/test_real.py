# SPDX-License-Identifier: MIT
"""The real libcufile.so.0 (PyPI's nvidia-cufile) and libibverbs.so.1 (Debian's package), linked directly, on the
simulator under the preload: their presence restricts nothing, and every way to their functions leads through ours.

They are downloaded, but not installed; without an index or a Debian mirror the tests are skipped and say so.
"""

import json
import os
import shutil
import subprocess
import sys

import pytest

from conftest import BUILD, ROOT, SIM, run

SOURCES = [ROOT / "tests" / "process" / "register" / "real.c", ROOT / "tests" / "process" / "order" / "order.c"]
DEBIAN = ["libibverbs1", "libnl-3-200", "libnl-route-3-200"]

pytestmark = pytest.mark.skipif("CACHEALLOC_TEST_PRELOAD_FIRST" in os.environ, reason="the real libraries know no sanitizer")


def fetch(argv, folder):
    try:
        subprocess.run(argv, cwd=folder, check=True, capture_output=True, timeout=180, text=True)
    except (OSError, subprocess.SubprocessError) as problem:
        words = (getattr(problem, "stderr", None) or str(problem)).strip().splitlines()
        pytest.skip(f"{argv[-1]} cannot be downloaded: {words[-1] if words else problem}")


def found(folder, soname):
    return next(folder.rglob(soname)).parent


@pytest.fixture(name="files", scope="module")
def _files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cufile")
    fetch([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--retries", "1", "--timeout", "15",
           "nvidia-cufile"], folder)
    for wheel in folder.glob("*.whl"):
        shutil.unpack_archive(wheel, folder, "zip")
    return [found(folder, "libcufile.so.0")]


@pytest.fixture(name="verbs", scope="module")
def _verbs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verbs")
    if not shutil.which("dpkg-deb") or not shutil.which("apt-get"):
        pytest.skip("libibverbs1 is taken from Debian's packages, and this is no Debian")
    fetch(["apt-get", "download", "-q", *DEBIAN], folder)
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
    return [found(folder, "libibverbs.so.1"), found(folder, "libnl-3.so.200")]


def program(folder, define, library, binding):
    out = folder / f"real_{binding}"
    subprocess.run([os.environ.get("CC", "cc"), "-D_GNU_SOURCE", f"-D{define}", "-O1", f"-I{ROOT}", "-o", out, *SOURCES,
                    f"-L{SIM}", "-lcuda", library, f"-Wl,-z,{binding}", "-Wl,--allow-shlib-undefined", "-ldl", "-pthread"],
                   check=True)
    return out


def device_after(app, tmp_path, paths, **env):
    stats = tmp_path / "ours.json"
    stats.unlink(missing_ok=True)
    run([app, "linked"], check=0, LD_LIBRARY_PATH=paths, CACHEALLOC_STATS=stats, SIMCUDA_RACES="abort", SIMCUDA_CLOCK="manual",
        **env)
    return json.loads(stats.read_text())["devices"][0]


def is_followed(tmp_path, define, library, folders, pauses_unseen):
    paths = ":".join(str(p) for p in [SIM, *folders])
    for binding in ("lazy", "now"):
        app = program(tmp_path, define, library, binding)
        run([app, "linked"], preload=False, check=0, LD_LIBRARY_PATH=paths, REAL_NATIVE=1)
        for words in ({}, pauses_unseen):
            device = device_after(app, tmp_path, paths, **words)
            assert device["finished_only_reasons"] == [] and device["taken_same_stream"] >= 300, device
            assert device["settles"] == 0
        assert device["order_marks"] == 0


@pytest.mark.skipif(not BUILD.is_dir(), reason="no build")
def test_cufile(tmp_path, files, pauses_unseen):
    is_followed(tmp_path, "FILES", files[0] / "libcufile.so.0", files, pauses_unseen)


@pytest.mark.skipif(not BUILD.is_dir(), reason="no build")
def test_ibverbs(tmp_path, verbs, pauses_unseen):
    is_followed(tmp_path, "VERBS", verbs[0] / "libibverbs.so.1", verbs, pauses_unseen)
