# SPDX-License-Identifier: MIT
"""Debian's ffmpeg, which opens libcuda by itself, on the simulator: frames go to the device and back, and must come out
as they went in, with and without the preload, judged by the race oracle.

Only what copies: filters with device code of their own (scale_cuda and its like) are left out.
"""

import json
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import LIBRARY, SIM, clean_env, run

QUICK_EVERY = 4  # conftest.py
CLIENT = shutil.which("ffmpeg")
QUIET = ["-nostdin", "-hide_banner", "-loglevel", "error"]
DEVICE = ["-init_hw_device", "cuda=one:0", "-filter_hw_device", "one"]
PRIMARY = ["-init_hw_device", "cuda=one:0,primary_ctx=1", "-filter_hw_device", "one"]

#: size, pixel format, frames: one, two and three planes, one and two bytes, odd sizes (where no plane is halved: ffmpeg
#: itself leaves the last row of such a plane out), planes far beyond a segment
PICTURES = [("320x240", "nv12", 25), ("641x359", "yuv444p", 10), ("1920x1080", "yuv420p", 4), ("176x144", "p010le", 50),
            ("322x242", "bgr0", 10), ("3840x2160", "yuv444p16le", 2), ("16x16", "nv12", 50)]


def up_and_down(picture, upload="hwupload_cuda"):
    return f"format={picture},{upload},hwdownload,format={picture}"


#: name: (the graph without the device, with it, how many frames it reads)
GRAPHS = {
    "twice": ("format=yuv420p,scale=200:100", up_and_down("yuv420p") + ",scale=200:100," + up_and_down("yuv420p"), 50),
    "one_device": ("format=nv12,scale=200:100",
                   up_and_down("nv12", "hwupload") + ",scale=200:100,format=nv12," + up_and_down("nv12", "hwupload"), 50),
    "many_at_once": ("format=nv12,reverse", "format=nv12,hwupload,reverse,hwdownload,format=nv12", 60),
    "read_twice": ("format=nv12,split[a][b];[a]null[c];[b]null[d];[c][d]hstack",
                   "format=nv12,hwupload_cuda,split[a][b];[a]hwdownload,format=nv12[c];[b]hwdownload,format=nv12[d];"
                   "[c][d]hstack", 30),
    "two_branches": ("format=nv12,split[a][b];[a]null[c];[b]hflip[d];[c][d]vstack",
                     f"format=nv12,split[a][b];[a]{up_and_down('nv12')}[c];[b]hflip,{up_and_down('nv12')}[d];"
                     "[c][d]vstack", 30),
}
CONFIGURATIONS = [{}, {"CACHEALLOC_CONF": "reuse_slack_mb:0"}, {"CACHEALLOC_CONF": "free_sync:host"},
                  {"SIMCUDA_CLOCK": "manual"}, {"SIMCUDA_JITTER": "50:1"}]


@pytest.fixture(autouse=True)
def _able():
    for needed in (LIBRARY, SIM / "libcuda.so.1"):
        if not needed.exists():
            pytest.skip(f"not built: {needed.name}")
    if not CLIENT:
        pytest.skip("no ffmpeg (scripts/setup.sh could not install it: build-ffmpeg.log)")
    filters = subprocess.run([CLIENT, *QUIET, "-filters"], capture_output=True, text=True, check=True).stdout
    if "hwupload_cuda" not in filters:
        pytest.skip("this ffmpeg is built without CUDA")


def frames_of(size, frames):
    return ["-f", "lavfi", "-i", f"testsrc=size={size}:duration={frames / 25}"]




def md5(arguments, **knobs):
    """The checksum of all frames. knobs: preload, and the environment."""
    done = run([CLIENT, *QUIET, *arguments, "-f", "md5", "-"], check=0, timeout=120, **{"SIMCUDA_RACES": "abort", **knobs})
    said = [line for line in done.stderr.splitlines() if "SIMCUDA_JITTER=" not in line]
    assert not said and done.stdout.startswith("MD5="), done.stderr
    return done.stdout


def without_device(arguments):
    """The simulator is not even found."""
    env = clean_env()
    del env["LD_LIBRARY_PATH"]
    return subprocess.run([CLIENT, *QUIET, *arguments, "-f", "md5", "-"], env=env, check=True, text=True, timeout=120,
                          capture_output=True).stdout


def figures(folder, arguments, **knobs):
    """(checksum, the library's device 0, calls of the driver)"""
    stats, simulator = folder / "stats.json", folder / "simulator.json"
    seen = md5(arguments, CACHEALLOC_STATS=stats, SIMCUDA_STATS=simulator, **knobs)
    driver = json.loads(simulator.read_text())
    assert driver["races"] == 0 and not driver["not_built"]
    return seen, json.loads(stats.read_text())["devices"][0], driver["calls"]


@pytest.mark.parametrize("size, picture, frames", PICTURES)
def test_frames_come_back(size, picture, frames, tmp_path):
    source = frames_of(size, frames)
    wanted = without_device([*source, "-vf", f"format={picture}"])
    there_and_back = [*DEVICE, *source, "-vf", up_and_down(picture)]
    assert md5(there_and_back, preload=False) == wanted
    seen, device, calls = figures(tmp_path, there_and_back)
    assert seen == wanted
    assert device["alloc_calls"] == device["free_calls"] > 0
    assert calls["cuMemcpy2DAsync_v2"] >= 2 * frames


@pytest.mark.parametrize("graph", GRAPHS)
def test_graphs(graph):
    plain, through_device, frames = GRAPHS[graph]
    source = frames_of("320x240", frames)
    wanted = without_device([*source, "-filter_complex", plain])
    assert md5([*DEVICE, *source, "-filter_complex", through_device], preload=False) == wanted
    assert md5([*PRIMARY, *source, "-filter_complex", through_device]) == wanted
    for configuration in CONFIGURATIONS:
        assert md5([*DEVICE, *source, "-filter_complex", through_device], **configuration) == wanted, configuration


@pytest.fixture(name="changing", scope="module")
def _changing(tmp_path_factory):
    """Pictures of four sizes in turn: each change frees all memory of the device and takes other."""
    if not CLIENT:
        pytest.skip("no ffmpeg")
    folder = tmp_path_factory.mktemp("pictures")
    for size in (sizes := ["320x240", "640x480", "160x120", "321x243"]):
        subprocess.run([CLIENT, *QUIET, *frames_of(size, 8), folder / f"{size}-%d.ppm"], check=True, timeout=60)
    number = 0
    for turn in range(4):
        for size in sizes:
            for n in (1, 2):
                number += 1
                (folder / f"{size}-{2 * turn + n}.ppm").rename(folder / f"{number:03d}.ppm")
    return ["-i", folder / "%03d.ppm"]


@pytest.mark.parametrize("device", [DEVICE, PRIMARY], ids=["context", "primary"])
def test_memory_is_reused(device, changing, tmp_path):
    wanted = without_device([*changing, "-vf", "format=yuv444p"])
    through_device = [*device, *changing, "-vf", up_and_down("yuv444p", "hwupload")]
    assert md5(through_device, preload=False) == wanted
    seen, library, calls = figures(tmp_path, through_device)
    assert seen == wanted
    assert library["alloc_calls"] == library["free_calls"] >= 16
    assert library["cache_hits"] >= 10 and calls["cuMemAlloc_v2"] < library["alloc_calls"]


def test_contexts_come_and_go(changing):
    """hwupload_cuda makes one for itself, and again with each size."""
    wanted = without_device([*changing, "-vf", "format=yuv444p"])
    through_device = [*DEVICE, *changing, "-vf", up_and_down("yuv444p")]
    for configuration in CONFIGURATIONS:
        assert md5(through_device, **configuration) == wanted, configuration


def test_many_at_once(changing):
    """Eight processes, each with the device twice."""
    plain, through_device, frames = GRAPHS["two_branches"]
    source = frames_of("320x240", frames)
    jobs = [([*source, "-filter_complex", plain], [*DEVICE, *source, "-filter_complex", through_device]),
            ([*changing, "-vf", "format=yuv444p"], [*PRIMARY, *changing, "-vf", up_and_down("yuv444p", "hwupload")])]
    wanted = [without_device(plain) for plain, _ in jobs] * 4
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda job: md5(job[1]), jobs * 4)) == wanted
