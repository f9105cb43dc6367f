# SPDX-License-Identifier: MIT
"""Bad settings and bad places for files, as a user meets them: one line, and the program runs as before."""

import json
import os
import resource
import stat
import subprocess
import sys

import pytest

from conftest import BUILD, LIBRARY, clean_env, run, unmarked

PROGRAM = BUILD / "tests" / "process" / "shim" / "cases_shim"

KEYS = "key:value,key:value"
SPLIT = "a whole number of MiB, at least large_segment_size_mb, or unlimited"
SEGMENT = "a whole number of MiB, more than 10 and at most 1048576"
SIZE = "a number of bytes, or of KiB, MiB, GiB or TiB as in 64K, 2M, 1G or 1T"
SLACK = "a whole number of MiB, or unlimited"
DURATION = "a duration such as 500ms, 10s or 2m (10ms to 24h), or 0"
FILES = "1, 0 or a file pattern"
LEVELS = "off, error, warn, info or debug"
PATTERN = "a file pattern such as app.%p."
BARE = "a file's name has a . / or % in it"
LETTERS = "none of %p %h %r %e %t %n %%"
LATER = "not in this version"

# variable without its prefix, value, what the line has to name
MALFORMED = [
    ("CONF", "max_split_size_mb", ["max_split_size_mb", "no colon and value", SPLIT]),
    ("CONF", "max_split_size_mb:", ["max_split_size_mb", "no value after the colon", SPLIT]),
    ("CONF", ":5", [":5", "no key before the colon", KEYS]),
    ("CONF", ",", ["an empty setting between commas", KEYS]),
    ("CONF", "max_split_size_mb:banana", ["max_split_size_mb", "'banana'", SPLIT]),
    ("CONF", "max_split_size_mb:-1", ["max_split_size_mb", "'-1'", SPLIT]),
    ("CONF", "max_split_size_mb:+64", ["max_split_size_mb", "'+64'", SPLIT]),
    ("CONF", "max_split_size_mb:20.5", ["max_split_size_mb", "'20.5'", SPLIT]),
    ("CONF", "max_split_size_mb:1e3", ["max_split_size_mb", "'1e3'", SPLIT]),
    ("CONF", "max_split_size_mb:0x20", ["max_split_size_mb", "'0x20'", SPLIT]),
    ("CONF", "max_split_size_mb:64MB", ["max_split_size_mb", "'64MB'", SPLIT]),
    ("CONF", "max_split_size_mb:5", ["max_split_size_mb", "'5'", SPLIT]),
    ("CONF", "max_split_size_mb:" + "9" * 26, ["max_split_size_mb", "9" * 26, SPLIT]),
    ("CONF", "max_split_size_mb:64:65", ["max_split_size_mb", "'64:65'", SPLIT]),
    ("CONF", "max_split_size_mb=64", ["'max_split_size_mb=64'", "no colon and value", KEYS]),
    ("CONF", "max_split_size_mb:64;reuse_slack_mb:1", ["max_split_size_mb", "'64;reuse_slack_mb:1'", SPLIT]),
    ("CONF", "max_spilt_size_mb:64", ["unknown key 'max_spilt_size_mb'", "'64'", "did you mean max_split_size_mb?"]),
    ("CONF", "MAX_SPLIT_SIZE_MB:64", ["'MAX_SPLIT_SIZE_MB'", "did you mean max_split_size_mb?"]),
    ("CONF", '"max_split_size_mb:64"', ["unknown key", "did you mean max_split_size_mb?"]),
    ("CONF", "zzz:1", ["unknown key 'zzz'", "'1'", "expected one of large_segment_size_mb"]),
    ("CONF", "reuse_slack_mb:[1,2", ["reuse_slack_mb", "a [ without ]", SLACK]),
    ("CONF", "reuse_slack_mb:[1,2]", ["reuse_slack_mb", "'[1,2]'", SLACK]),
    ("CONF", "reuse_slack_mb:1]", ["reuse_slack_mb", "'1]'", SLACK]),
    ("CONF", "reuse_slack_mb:unlimted", ["reuse_slack_mb", "'unlimted'", SLACK]),
    ("CONF", "reuse_slack_mb:" + "9" * 5000, ["reuse_slack_mb", "too long", SLACK]),
    ("CONF", "large_segment_size_mb:0", ["large_segment_size_mb", "'0'", SEGMENT]),
    ("CONF", "large_segment_size_mb:10", ["large_segment_size_mb", "'10'", SEGMENT]),
    ("CONF", "large_segment_size_mb:1048577", ["large_segment_size_mb", "'1048577'", SEGMENT]),
    ("CONF", "large_segment_size_mb:unlimited", ["large_segment_size_mb", "'unlimited'", SEGMENT]),
    ("CONF", "large_segment_size_mb:100,max_split_size_mb:50", ["max_split_size_mb", "'50'", "at least"]),
    ("CONF", "under_framework:yes", ["under_framework", "'yes'", "auto, pass or cache"]),
    ("CONF", "min_size:-1", ["min_size", "'-1'", SIZE]),
    ("CONF", "min_size:1.5M", ["min_size", "'1.5M'", SIZE]),
    ("CONF", "min_size:unlimited", ["min_size", "'unlimited'", SIZE]),
    ("CONF", "max_size:2Q", ["max_size", "'2Q'", SIZE + ", or unlimited"]),
    ("CONF", "max_size:" + "9" * 26, ["max_size", "9" * 26, SIZE]),
    ("CONF", "background_thread:True", ["background_thread", LATER]),
    ("CONF", "expandable_segments:maybe", ["expandable_segments", "'maybe'", "False, True or auto"]),
    ("CONF", "backend:native", ["backend", "PyTorch's own"]),
    ("CONF", "a" * 5000, ["a" * 60, "no colon and value", KEYS]),
    ("CONF", b"\xff\xfe:1", [r"\xff\xfe", "unknown key"]),
    ("CONF", "k\x1b31m:1", [r"k\x1b31m", "unknown key"]),
    ("DISABLE", "2", ["'2'", "1, 0 or count"]),
    ("DISABLE", " 1", ["' 1'", "1, 0 or count"]),
    ("LOG", "verbose", ["'verbose'", LEVELS]),
    ("LOG", "3", ["'3'", LEVELS]),
    ("LOG_FILE", "%z", ["'%z'", LETTERS, "a file pattern"]),
    ("LOG_FILE", "/dev/full", ["'/dev/full'", "below /dev", "a file pattern"]),
    ("STATS", "stats.%q.json", ["'stats.%q.json'", LETTERS, FILES]),
    ("STATS", "stats/", ["'stats/'", "no file name at its end", FILES]),
    ("STATS", "/dev/full", ["'/dev/full'", "below /dev", FILES]),
    ("STATS", "/proc/self/x", ["'/proc/self/x'", "below /dev, /proc", FILES]),
    ("STATS", "2", ["'2'", FILES]),
    ("STATS", "x" * 5000, ["xxx", "too long", FILES]),
    ("STATS_INTERVAL", "10", ["'10'", DURATION]),
    ("STATS_INTERVAL", "1ms", ["'1ms'", DURATION]),
    ("STATS_INTERVAL", "25h", ["'25h'", DURATION]),
    ("STATS_INTERVAL", "-1s", ["'-1s'", DURATION]),
    ("STATS_INTERVAL", "1.5s", ["'1.5s'", DURATION]),
    ("STATS_INTERVAL", "9" * 21 + "s", ["9" * 21, DURATION]),
    ("TRACE", "trace.%q", ["'trace.%q'", LETTERS, "a file pattern"]),
    ("STATS", "json", ["'json'", BARE, FILES + " such as app.%p.json"]),
    ("STATS", "table", ["'table'", BARE, FILES]),
    ("STATS", "stderr", ["'stderr'", BARE, FILES]),
    ("TRACE", "1", ["'1'", BARE, PATTERN + "trace"]),
    ("TRACE", "on", ["'on'", BARE, PATTERN + "trace"]),
    ("TRACE", "true", ["'true'", BARE, PATTERN + "trace"]),
    ("TRACE", "trace", ["'trace'", BARE, PATTERN + "trace"]),
    ("LOG_FILE", "1", ["'1'", BARE, PATTERN + "log"]),
    ("LOG_FILE", "stderr", ["'stderr'", BARE, PATTERN + "log"]),
    ("TRACE", "/dev/full", ["'/dev/full'", "below /dev", "a file pattern"]),
    ("STRICT", "2", ["'2'", "1 or 0"]),
    ("STAT", "1", ["unknown variable", "did you mean CACHEALLOC_STATS?"]),
    ("stats", "1", ["unknown variable", "did you mean CACHEALLOC_STATS?"]),
    ("FROBNICATE", "1", ["unknown variable", "one of STRICT, DISABLE, CONF"]),
    ("LIMIT", "8X", ["'8X'", "a size such as 8G"]),
    ("CONF", "roundup_power2_divisions:[256:1,512:3]", ["roundup_power2_divisions", "divisions that are no power of two"]),
    ("CONF", "roundup_power2_divisions:[100:1]", ["roundup_power2_divisions", "a size that is no power of two"]),
    ("CONF", "garbage_collection_threshold:1.0", ["garbage_collection_threshold", "'1.0'", "between 0 and 1"]),
]


def started(name, value, cwd, **env):
    # bytes that are no text pass through the environment as surrogates
    return run([PROGRAM, "ten"], cwd=cwd, **{"CACHEALLOC_" + name: os.fsdecode(value), **env})


@pytest.mark.parametrize("name, value, words", MALFORMED, ids=lambda value: str(value)[:40].replace("\x1b", "ESC"))
def test_malformed(tmp_path, name, value, words):
    done = started(name, value, tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and unmarked(lines[0]).startswith("cachealloc: warning: CACHEALLOC_" + name), lines
    assert " is ignored" in lines[0]
    for word in words:
        assert word in lines[0]
    assert all(" " <= character <= "~" for character in lines[0])
    assert not list(tmp_path.iterdir())
    if name == "STRICT":
        return
    strict = started(name, value, tmp_path, CACHEALLOC_STRICT="1")
    assert strict.returncode == 125
    assert len(strict.stderr.splitlines()) == 1 and words[0] in strict.stderr
    assert unmarked(strict.stderr).startswith("cachealloc: error: ") and " is refused" in strict.stderr


def test_enough_of_them():
    assert len(MALFORMED) >= 30


@pytest.mark.parametrize("name", ["CONF", "DISABLE", "LOG", "LOG_FILE", "STATS", "STATS_INTERVAL", "TRACE", "STRICT"])
def test_empty_is_unset(name, tmp_path):
    assert run([PROGRAM, "ten"], check=0, cwd=tmp_path, **{"CACHEALLOC_" + name: ""}).stderr == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", ["0", "off", "no", "False"])
@pytest.mark.parametrize("name", ["STATS", "TRACE", "LOG_FILE"])
def test_off_is_off_and_no_name_of_a_file(name, value, tmp_path):
    assert run([PROGRAM, "ten"], check=0, cwd=tmp_path, **{"CACHEALLOC_" + name: value}).stderr == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name, value", [("STATS", "./1"), ("STATS", "./json"), ("TRACE", "./1"), ("TRACE", "%e"),
                                         ("STATS", "a.b")])
def test_a_name_that_is_clearly_a_files_is_one(name, value, tmp_path):
    assert run([PROGRAM, "ten"], check=0, cwd=tmp_path, **{"CACHEALLOC_" + name: value}).stderr == ""
    assert [path.name for path in tmp_path.iterdir()] == [value.replace("%e", PROGRAM.name).removeprefix("./")]


def test_an_interval_alone_repeats_the_table_on_stderr(tmp_path):
    """Whoever says how often wants statistics."""
    done = run([PROGRAM, "slow"], check=0, cwd=tmp_path, CACHEALLOC_STATS_INTERVAL="50ms")
    assert done.stderr.count("served from cache") >= 2 and "warning" not in done.stderr
    assert not list(tmp_path.iterdir())
    assert run([PROGRAM, "slow"], check=0, CACHEALLOC_STATS_INTERVAL="50ms", CACHEALLOC_STATS="0").stderr == ""
    assert run([PROGRAM, "slow"], check=0, CACHEALLOC_STATS_INTERVAL="0").stderr == ""


@pytest.mark.parametrize("kind", ["folder", "below a file", "closed folder", "link"])
@pytest.mark.parametrize("name", ["STATS", "LOG_FILE", "TRACE"])
def test_file_that_cannot_be_made(name, kind, tmp_path):
    if kind == "closed folder" and os.getuid() == 0:
        pytest.skip("root may write everywhere")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "closed").mkdir(mode=0o500)
    (tmp_path / "link").symlink_to(tmp_path / "closed")
    place = {"folder": ".", "below a file": "file/x.json", "closed folder": "closed/x.json", "link": "./link"}[kind]
    done = run([PROGRAM, "ten"], check=0, cwd=tmp_path, CACHEALLOC_LOG="info" if name == "LOG_FILE" else "warn",
               **{"CACHEALLOC_" + name: place})
    complaints = [line for line in done.stderr.splitlines() if "warning" in line]
    assert len(complaints) == 1 and "CACHEALLOC_" + name in complaints[0] and f"'{place}'" in complaints[0]
    assert "errno" in complaints[0]
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("name, file, second, level", [
    ("STATS", "app.json", "app.1.json", "warn"), ("STATS", "app.txt", "app.1.txt", "warn"),
    ("TRACE", "app.trace", "app.1.trace", "warn"), ("LOG_FILE", "app.log", "app.1.log", "info"),
])
def test_a_second_file_is_told_by_name(tmp_path, name, file, second, level):
    """Whoever opens app.json after a second run would read the first run's figures."""
    settings = {"CACHEALLOC_LOG": level, "CACHEALLOC_" + name: file}
    assert run([PROGRAM, "ten"], check=0, cwd=tmp_path, **settings).stderr == ""
    before = (tmp_path / file).read_bytes()
    done = run([PROGRAM, "ten"], check=0, cwd=tmp_path, **settings)
    line, = done.stderr.splitlines()
    assert unmarked(line).startswith(f"cachealloc: warning: CACHEALLOC_{name}: ") and "exists" in line
    told = [os.path.basename(word.strip("',:;")) for word in line.split()]
    assert file in told and second in told
    assert (tmp_path / file).read_bytes() == before and (tmp_path / second).stat().st_size
    assert run([PROGRAM, "ten"], check=0, cwd=tmp_path, **{**settings, "CACHEALLOC_LOG": "error"}).stderr == ""


def test_a_pattern_that_tells_processes_apart_says_nothing(tmp_path):
    for _ in range(2):
        done = run([PROGRAM, "ten"], check=0, cwd=tmp_path, CACHEALLOC_STATS="app.%p.json", CACHEALLOC_TRACE="app.%p.trace")
        assert done.stderr == ""
    assert len(list(tmp_path.iterdir())) == 4


def test_missing_folders_are_made(tmp_path):
    run([PROGRAM, "ten"], check=0, cwd=tmp_path, CACHEALLOC_STATS="a/b/c.json")
    assert json.loads((tmp_path / "a" / "b" / "c.json").read_text())["format"] == "stats"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700


def test_full_disk(tmp_path):
    """A file that cannot take all of the statistics: said in one line. The limit on file size stands for the disk."""
    env = clean_env(LD_PRELOAD=":".join(filter(None, [os.environ.get("CACHEALLOC_TEST_PRELOAD_FIRST"), str(LIBRARY)])),
                    CACHEALLOC_STATS=str(tmp_path / "s.json"))
    done = subprocess.run([str(PROGRAM), "ten"], env=env, text=True, capture_output=True, timeout=60, check=False,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)))
    assert done.returncode == 0, done.stderr
    assert len(done.stderr.splitlines()) == 1 and "is incomplete" in done.stderr and "s.json" in done.stderr
    assert (tmp_path / "s.json").stat().st_size <= 100


UNTIL_REPEATED = """
import ctypes, os, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, device, pointer = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device) == 0
lines = 0
while lines < 3:
    assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(1000)) == 0 and cuda.cuMemFree_v2(pointer) == 0
    lines = open(sys.argv[1]).read().count("\\n") if os.path.exists(sys.argv[1]) else 0
os._exit(0)
"""


@pytest.mark.skipif("CACHEALLOC_TEST_SANITIZER" in os.environ, reason="Python cannot load a library with a sanitizer")
def test_repeated_statistics_outlive_a_process_that_ends_at_once(tmp_path):
    path = tmp_path / "s.json"
    run([sys.executable, "-c", UNTIL_REPEATED, path], check=0, CACHEALLOC_STATS=path, CACHEALLOC_STATS_INTERVAL="10ms")
    counts = [json.loads(line)["devices"][0]["alloc_calls"] for line in path.read_text().splitlines()]
    assert len(counts) == 3 and counts == sorted(counts)
