# SPDX-License-Identifier: MIT
"""A site's file of settings, as programs and their users meet it: by a library that differs from the shipped one in the
path of that file alone."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from conftest import BUILD, LIBRARY, ROOT, clean_env, run, unmarked

FOLDER = BUILD / "tests" / "process" / "site"
SITE = FOLDER / "libcachealloc_site.so"
FILE = FOLDER / "site.conf"
SHIM = BUILD / "tests" / "process" / "shim"
MIB = 1 << 20

pytestmark = pytest.mark.skipif(not SITE.exists(), reason="a sanitizer or cross build has no such library")
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can make a file that is read: the cases of one are not tested")


@pytest.fixture(autouse=True)
def no_file():
    def remove():
        if FILE.is_dir() and not FILE.is_symlink():
            FILE.rmdir()
        elif FILE.exists() or FILE.is_symlink():
            FILE.unlink()
    remove()
    yield
    remove()


def write(text, mode=0o644):
    FILE.write_bytes(text if isinstance(text, bytes) else text.encode())
    FILE.chmod(mode)


def go(program="cases_shim", case="ten", **env):
    return run([SHIM / program, case], preload=False, check=0, LD_PRELOAD=SITE, **env)


def stats(tmp_path, **env):
    path = tmp_path / "s.json"
    done = go(CACHEALLOC_STATS=path, **env)
    return json.loads(path.read_text()), done.stderr


def test_without_a_file_nothing_is_said(tmp_path):
    data, stderr = stats(tmp_path, CACHEALLOC_LOG="info")
    assert data["site_conf"] is None and "site" not in stderr.replace(str(SITE), "")


@as_root
def test_it_is_named_wherever_settings_are(tmp_path):
    write("# ours\nCACHEALLOC_CONF=reuse_slack_mb:77\nCACHEALLOC_STATS=" + str(tmp_path / "t.txt"))
    stderr = go(CACHEALLOC_LOG="info").stderr
    assert f"settings of the site: {FILE}\n" in stderr and "CACHEALLOC_CONF=reuse_slack_mb:77\n" in stderr
    assert (tmp_path / "t.txt").read_text().endswith(f"site    settings of {FILE}\n")
    data, stderr = stats(tmp_path)
    assert data["site_conf"] == str(FILE) and stderr == ""


@as_root
def test_the_environment_is_above_it():
    write("CACHEALLOC_CONF=reuse_slack_mb:77,min_reserve_mb:5\nCACHEALLOC_LOG=info\nCACHEALLOC_STATS=1\n")
    stderr = go(CACHEALLOC_CONF="reuse_slack_mb:78").stderr
    assert "reuse_slack_mb:78\n" in stderr and "min_reserve_mb:5\n" in stderr and "device 0" in stderr
    assert go(CACHEALLOC_STATS="0", CACHEALLOC_LOG="warn").stderr == ""


@as_root
@pytest.mark.parametrize("forced, own", [("100M", None), ("100M", "1G"), ("100M", "100%"), ("1G", "100M"), ("10%", "1G"),
                                         ("1G", "10%"), ("100M", "10%")])
def test_the_smaller_of_forced_and_own_limit_holds(tmp_path, forced, own):
    write(f"force CACHEALLOC_LIMIT={forced}")
    sim = tmp_path / "sim.json"
    stderr = go("cases_keys", "limit", SIMCUDA_MEM="1000M", SIMCUDA_STATS=sim, **({"CACHEALLOC_LIMIT": own} if own else {})).stderr
    assert json.loads(sim.read_text())["peak_bytes"][0] <= 100 * MIB
    by_site = forced != "1G" and own != "10%"
    assert (f"hint: {FILE} allows 100.00 MiB" in stderr) == by_site
    assert ("hint: CACHEALLOC_LIMIT allows 100.00 MiB" in stderr) == (not by_site)


@as_root
def test_a_bad_line_is_one_line_and_ends_nothing(tmp_path):
    write("CACHEALLOC_CONF=min_reserve_mb:5\n\nCACHEALLOC_CONF=min_reserve_mb\nCACHEALLOC_LIMT=1G")
    done = go(CACHEALLOC_STRICT="1")
    lines = done.stderr.splitlines()
    assert len(lines) == 2 and unmarked(lines[0]).startswith(f"cachealloc: warning: {FILE}:3: CACHEALLOC_CONF: 'min_reserve_mb' is ignored")
    assert unmarked(lines[1]).startswith(f"cachealloc: warning: {FILE}:4: CACHEALLOC_LIMT: unknown variable is ignored: did you mean")
    assert stats(tmp_path)[0]["site_conf"] == str(FILE)
    assert go(CACHEALLOC_LOG="error").stderr == ""


@as_root
def test_a_strict_user_answers_for_the_environment_alone():
    write("CACHEALLOC_CONF=large_segment_size_mb:64,nonsense:1")
    done = go(CACHEALLOC_STRICT="1", CACHEALLOC_CONF="max_split_size_mb:32")
    assert "warning: CACHEALLOC_CONF: the site's sizes do not go with the environment's" in done.stderr
    done = run([SHIM / "cases_shim", "ten"], preload=False, LD_PRELOAD=SITE, CACHEALLOC_STRICT="1", CACHEALLOC_CONF="x:1")
    assert done.returncode == 125 and "error: CACHEALLOC_CONF: unknown key 'x'" in done.stderr


def make_fifo():
    os.mkfifo(FILE)


def make_large():
    with open(FILE, "wb") as file:
        file.truncate(1 << 30)


BAD_KINDS = {
    "fifo": (make_fifo, "it is not a regular file"),
    "folder": (FILE.mkdir, "it is not a regular file"),
    "link": (lambda: FILE.symlink_to("/etc/hostname"), "it is a symbolic link"),
    "large": (make_large, "it is larger than 64 KiB" if os.getuid() == 0 else "it does not belong to root"),
}
if os.getuid() == 0:
    BAD_KINDS["writable"] = (lambda: write("CACHEALLOC_LIMIT=1M", 0o664), "others than root may write to it")
    BAD_KINDS["owned"] = (lambda: (write("CACHEALLOC_LIMIT=1M"), os.chown(FILE, 1000, 0)), "it does not belong to root")
else:
    BAD_KINDS["owned"] = (lambda: write("CACHEALLOC_LIMIT=1M"), "it does not belong to root")


@pytest.mark.parametrize("kind", BAD_KINDS)
def test_a_file_that_is_not_trusted_is_one_line(tmp_path, kind):
    make, reason = BAD_KINDS[kind]
    make()
    data, stderr = stats(tmp_path)
    assert unmarked(stderr) == f"cachealloc: warning: {FILE} is ignored: {reason}\n" and data["site_conf"] is None


@as_root
def test_a_file_that_the_user_may_not_read(tmp_path):
    write("CACHEALLOC_LIMIT=1M", 0o600)
    if not shutil.which("setpriv"):
        pytest.skip("no setpriv")
    done = run(["setpriv", "--reuid=65534", "--clear-groups", SHIM / "cases_shim", "ten"], preload=False, LD_PRELOAD=SITE)
    if "cannot open shared object" in done.stderr or "cannot be preloaded" in done.stderr or done.returncode == 127:
        pytest.skip("another user cannot reach the build folder")
    assert done.returncode == 0 and f"{FILE} is ignored: permission denied" in done.stderr


@as_root
@pytest.mark.parametrize("text", [b"CACHEALLOC_CONF=min_reserve_mb:5\0\n", b"\0" * 70, b"\xff\xfe" * 50])
def test_any_bytes(text):
    write(text)
    done = go()
    assert len(done.stderr.splitlines()) == 1 and done.stderr.isascii()
    write(b"\n" * 65536)
    assert go().stderr == ""


@as_root
def test_it_is_not_touched_before_the_first_call_nor_when_disabled():
    write("nonsense\n")
    strace = shutil.which("strace")
    if not strace:
        pytest.skip("no strace")

    def traced(*argv, **env):
        done = subprocess.run([strace, "-f", "-qq", "-e", "trace=open,openat,stat,newfstatat,statx", *argv], text=True, timeout=60,
                              env=clean_env(LD_PRELOAD=SITE, **env), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return done.stderr.count("site.conf")

    if not traced(SHIM / "cases_shim", "ten"):
        pytest.skip("strace sees nothing here")
    assert traced("/bin/true") == 0 and traced("/bin/sh", "-c", "/bin/true; /bin/true") == 0
    assert traced(SHIM / "cases_shim", "ten", CACHEALLOC_DISABLE="1") == 0
    assert go(CACHEALLOC_DISABLE="1").stderr == ""


@as_root
def test_a_site_may_switch_it_off_and_a_user_on(tmp_path):
    write("CACHEALLOC_DISABLE=1")
    path = tmp_path / "s.json"
    assert go(CACHEALLOC_STATS=path).stderr == "" and not path.exists()
    data, _ = stats(tmp_path, CACHEALLOC_DISABLE="0")
    assert data["devices"] and data["site_conf"] == str(FILE)


@as_root
def test_moments_of_snapshots_may_be_a_sites_alone(tmp_path):
    """A user's own, alone, are a mistake."""
    warning = "CACHEALLOC_SNAPSHOT_ON has no effect without CACHEALLOC_SNAPSHOT"
    write("CACHEALLOC_SNAPSHOT_ON=oom")
    assert go().stderr == ""
    assert warning in go(CACHEALLOC_SNAPSHOT_ON="peak").stderr
    assert go(CACHEALLOC_SNAPSHOT=tmp_path / "s.pickle").stderr == "" and not (tmp_path / "s.pickle").exists()
    FILE.unlink()
    assert warning in go(CACHEALLOC_SNAPSHOT_ON="peak").stderr


FORK = """
import ctypes, os, sys
cuda = ctypes.CDLL("libcuda.so.1")
def use():
    context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
    assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
    return cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(64 << 20))
assert cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(1)) == 3
os.remove(sys.argv[1])
if os.fork() == 0:
    os._exit(use())
_, status = os.wait()
assert os.WEXITSTATUS(status) == 2, status
"""


@as_root
def test_a_forked_child_has_what_its_parent_read():
    write("force CACHEALLOC_LIMIT=32M\nbad\n")
    done = run([sys.executable, "-c", FORK, FILE], preload=False, check=0, LD_PRELOAD=SITE)
    assert done.stderr.count(f"{FILE}:2: 'bad' is ignored") == 1 and done.stderr.count("site.conf allows 32.00 MiB") == 1


def doctor(library):
    done = subprocess.run([sys.executable, ROOT / "scripts" / "cachealloc", "doctor", "--json", "--library", library, "/bin/true"],
                          text=True, env=clean_env(), stdout=subprocess.PIPE, check=False, timeout=60)
    return [(note["problem"], note["text"]) for note in json.loads(done.stdout)["notes"] if "site.conf" in note["text"]]


def test_doctor_tells():
    assert doctor(SITE) == []
    if os.getuid() == 0:
        write("CACHEALLOC_LIMIT=1G\nbad")
        assert doctor(SITE) == [
            (False, f"{FILE} is read before the environment"),
            (True, f"{FILE}:2: 'bad' is ignored: expected CACHEALLOC_NAME=value, perhaps after the word force")]
        FILE.unlink()
    FILE.mkdir()
    assert doctor(SITE) == [(True, f"{FILE} is ignored: it is not a regular file")]


def test_the_file_has_no_part_in_a_check_of_the_environment():
    FILE.mkdir()
    done = subprocess.run([sys.executable, ROOT / "scripts" / "cachealloc", "run", "--library", SITE, "--strict", "--conf",
                           "max_split_size_mb:32", "true"], text=True, env=clean_env(), stderr=subprocess.PIPE, check=False, timeout=60)
    assert done.returncode == 0 and done.stderr == ""


def test_a_library_that_is_built_without(tmp_path):
    """Empty in the developer's set-up, so that tests do not depend on the machine."""
    path = tmp_path / "s.json"
    run([SHIM / "cases_shim", "ten"], check=0, CACHEALLOC_STATS=path)
    assert json.loads(path.read_text())["site_conf"] is None
    assert b"/etc/cachealloc.conf" not in LIBRARY.read_bytes() and str(FILE).encode() in SITE.read_bytes()
