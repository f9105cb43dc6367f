# SPDX-License-Identifier: MIT
"""`cachealloc doctor --run` on programs that nobody here wrote: ffmpeg and NVIDIA's bindings are served, by the roads
that they take; node, a shell and a Python that use no CUDA allocate nothing."""

import json
import os
import shutil
import subprocess
import sys

import pytest
from conftest import BUILD, LIBRARY, ROOT, SIM, clean_env
from packages import python_with
from test_cuda_bindings import PROGRAM

pytestmark = pytest.mark.skipif("CACHEALLOC_TEST_SANITIZER" in os.environ, reason="others' programs are not built for a sanitizer")

COMMAND = ROOT / "scripts" / "cachealloc"
FFMPEG = ["-nostdin", "-v", "error", "-init_hw_device", "cuda=one:0", "-filter_hw_device", "one", "-f", "lavfi", "-i",
          "testsrc=size=320x240:duration=100", "-vf", "format=nv12,hwupload_cuda,hwdownload,format=nv12", "-f", "null", "-"]


def doctor(*words):
    """(exit status, the `run` of the JSON)."""
    for needed in (LIBRARY, SIM / "libcuda.so.1"):
        if not needed.exists():
            pytest.skip(f"not built: {needed.name}")
    env = clean_env(CACHEALLOC_BUILD=BUILD)
    del env["LD_LIBRARY_PATH"]
    done = subprocess.run([sys.executable, COMMAND, "doctor", "--run", "--sim", "--json", "--", *map(str, words)], env=env, text=True,
                          timeout=120, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)["run"]


def found(name):
    path = shutil.which(name)
    if not path:
        pytest.skip(f"no {name}")
    return path


def test_ffmpeg_is_served_through_dlsym():
    ffmpeg = found("ffmpeg")
    if "hwupload_cuda" not in subprocess.run([ffmpeg, "-v", "error", "-filters"], capture_output=True, text=True, check=True).stdout:
        pytest.skip("this ffmpeg is built without CUDA")
    status, run = doctor(ffmpeg, *FFMPEG)
    assert status == 0 and run["road"] == "looked up by dlsym" and run["end"] == "it was ended by SIGTERM", run


def test_nvidias_bindings_are_served_through_cugetprocaddress():
    status, run = doctor(python_with("cuda.bindings.driver"), PROGRAM)
    assert status == 0 and run["road"] == "looked up by cuGetProcAddress" and not run["problems"], run


@pytest.mark.parametrize("words", [["node", "-e", "1"], ["bash", "-c", "true; true"], ["python3", "-c", "pass"]], ids=lambda words: words[0])
def test_programs_without_cuda_allocate_nothing(words):
    status, run = doctor(found(words[0]), *words[1:])
    assert status == 4 and run["end"] == "it exited with 0" and run["served"] == run["passed"] == 0, run
