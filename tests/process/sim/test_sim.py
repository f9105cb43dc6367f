# SPDX-License-Identifier: MIT
"""The simulated driver, seen from a program linked to it. One fresh process a case."""

import json
import os
import re
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from conftest import BUILD, ROOT, run, simulator_entries  # noqa: E402

PROBE = BUILD / "tests" / "process" / "sim" / "sim-probe"
SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED, DEINITIALIZED = range(5)
NO_DEVICE, INVALID_DEVICE, INVALID_CONTEXT = 100, 101, 201
NOT_PERMITTED = 800
INVALID_IMAGE, NO_BINARY_FOR_GPU, FILE_NOT_FOUND, INVALID_HANDLE, NOT_FOUND, NOT_READY, NOT_SUPPORTED = 200, 209, 301, 400, 500, 600, 801


class Seen(dict):
    """key -> list of values, in order; text is everything printed, err what went to stderr."""

    def one(self, key):
        assert len(self[key]) == 1, (key, self[key])
        return self[key][0]


def probe(*args, check=0, **env):
    done = run([PROBE, *args], preload=False, check=check, **env)
    seen = Seen()
    for line in done.stdout.splitlines():
        key, _, value = line.partition(" ")
        seen.setdefault(key, []).append(int(value) if re.fullmatch(r"-?\d+", value) else value)
    seen.err, seen.rc = done.stderr, done.returncode
    assert all(rc == SUCCESS for rc in seen.get("rc", [])) or args[0] in ("getproc", "call"), seen
    return seen


# ------------------------------------------------------------------ cuGetProcAddress ---
FOUND, MISSING, TOO_OLD = 0, 1, 2
GETPROC = [
    # base, version, flags, rc, status, found
    ("cuMemAlloc", 13000, 0, 0, FOUND, "cuMemAlloc_v2"),
    ("cuMemAlloc", 3020, 0, 0, FOUND, "cuMemAlloc_v2"),
    ("cuMemAlloc", 3019, 0, 0, FOUND, "cuMemAlloc"),
    ("cuMemAlloc", 2000, 1, 0, FOUND, "cuMemAlloc"),
    ("cuMemAlloc", 1000, 0, 0, TOO_OLD, "NULL"),
    ("cuMemAlloc", 13000, 2, 0, FOUND, "cuMemAlloc_v2"),  # has no twin
    ("cuMemAlloc_v2", 13000, 0, 0, MISSING, "NULL"),      # not a base name
    ("cuMemcpyHtoD", 13000, 0, 0, FOUND, "cuMemcpyHtoD_v2"),
    ("cuMemcpyHtoD", 13000, 2, 0, FOUND, "cuMemcpyHtoD_v2_ptds"),
    ("cuMemcpyHtoD", 3020, 2, 0, FOUND, "cuMemcpyHtoD_v2"),  # twin is of 7.0
    ("cuStreamGetCaptureInfo", 10010, 0, 0, FOUND, "cuStreamGetCaptureInfo"),
    ("cuStreamGetCaptureInfo", 12020, 2, 0, FOUND, "cuStreamGetCaptureInfo_v2_ptsz"),
    ("cuStreamGetCaptureInfo", 12030, 1, 0, FOUND, "cuStreamGetCaptureInfo_v3"),
    ("cuCtxCreate", 12040, 0, 0, FOUND, "cuCtxCreate_v3"),
    ("cuGetProcAddress", 12000, 0, 0, FOUND, "cuGetProcAddress_v2"),  # self look-up
    ("cuGetProcAddress", 11030, 0, 0, FOUND, "cuGetProcAddress"),
    ("cuCtxRecordEvent", 12040, 0, 0, TOO_OLD, "NULL"),
    ("cuCtxRecordEvent", 12050, 0, 0, FOUND, "cuCtxRecordEvent"),
    ("cuMemMapArrayAsync", 13000, 0, 0, FOUND, "cuMemMapArrayAsync"),  # known, not built
    ("cuNoSuchThing", 13000, 0, 0, MISSING, "NULL"),
    ("cuMemAlloc", 13010, 0, INVALID_VALUE, 99, "untouched"),  # newer than the driver
    ("cuMemAlloc", 13000, 7, INVALID_VALUE, 99, "untouched"),
]


@pytest.mark.parametrize("base,version,flags,rc,status,found", GETPROC)
def test_getproc(base, version, flags, rc, status, found):
    seen = probe("getproc", base, version, flags)
    assert (seen.one("rc"), seen.one("status"), seen.one("found")) == (rc, status, found)
    old = probe("getproc", base, version, flags, 4)  # the ABI of CUDA 11.3: no status
    assert (old.one("rc"), old.one("found"), old.one("status")) == (rc, found, 99)


def test_older_driver_hides_what_is_newer():
    env = {"SIMCUDA_DRIVER_VERSION": 12040}
    seen = probe("getproc", "cuCtxRecordEvent", 12040, 0, **env)
    assert (seen.one("status"), seen.one("found")) == (MISSING, "NULL")
    seen = probe("getproc", "cuCtxRecordEvent", 12050, 0, **env)
    assert seen.one("rc") == INVALID_VALUE
    assert probe("init", **env).one("version") == 12040
    seen = probe("call", "cuCtxRecordEvent", **env)  # dlsym still finds it
    assert seen.one("found") == 1 and seen.one("rc") == NOT_SUPPORTED
    assert "cuCtxRecordEvent is newer than this driver" in seen.err


# ------------------------------------------------------------------------- not built ---
def test_every_known_name_is_exported():
    names = re.findall(r"^CA_NAME\((\w+),", (ROOT / "shim" / "bind" / "cuda_names.def").read_text(), re.M)
    assert len(set(names)) == len(names) > 600
    built = simulator_entries()
    assert built < set(names)
    missing = [n for n in names if n not in built]
    seen = probe("call", *missing, SIMCUDA_DRIVER_VERSION=13050)
    assert seen["found"] == [1] * len(missing)
    assert seen["rc"] == [NOT_SUPPORTED] * len(missing)
    assert re.findall(r"(\w+) is not built", seen.err) == missing


def test_not_built_is_counted(tmp_path):
    stats = tmp_path / "s.json"
    probe("call", "cuLinkCreate_v2", "cuLinkCreate_v2", "cuMulticastCreate", SIMCUDA_STATS=stats)
    assert json.loads(stats.read_text())["not_built"] == {"cuLinkCreate_v2": 2, "cuMulticastCreate": 1}


def test_only_the_drivers_names_and_ours_are_exported():
    done = run(["nm", "-D", "--defined-only", BUILD / "tests" / "sim" / "libcuda.so.1"], preload=False, check=0)
    names = [line.split()[-1] for line in done.stdout.splitlines()]
    others = [n for n in names if not re.match(r"cu[A-Z]", n)]
    assert sorted(n for n in others if not n.startswith(("__", "_init", "_fini"))) == \
        ["simcuda_stats", "simcuda_step", "simcuda_touch"]


# ----------------------------------------------------------------------------- knobs ---
def test_defaults():
    seen = probe("init")
    assert seen.one("count_before") == NOT_INITIALIZED
    assert (seen.one("init"), seen.one("version"), seen.one("count"), seen.one("total")) == (0, 13000, 1, 16 << 30)
    assert not seen.err


def test_devices_and_memory():
    seen = probe("init", SIMCUDA_DEVICES=3, SIMCUDA_MEM="64M")
    assert seen["total"] == [64 << 20] * 3
    seen = probe("init", SIMCUDA_DEVICES=0)
    assert seen.one("init") == NO_DEVICE and seen.one("count_rc") == NOT_INITIALIZED


BAD = [
    ("SIMCUDA_DEVICES", "two"), ("SIMCUDA_DEVICES", "17"), ("SIMCUDA_DEVICES", ""), ("SIMCUDA_DEVICES", "-1"),
    ("SIMCUDA_MEM", "1M"), ("SIMCUDA_MEM", "16g"), ("SIMCUDA_MEM", "G"), ("SIMCUDA_MEM", "99999999999G"),
    ("SIMCUDA_DRIVER_VERSION", "12.4"), ("SIMCUDA_DRIVER_VERSION", "12045"), ("SIMCUDA_DRIVER_VERSION", "14000"),
    ("SIMCUDA_FAIL", "cuMemAlloc_v2"), ("SIMCUDA_FAIL", "cuMemAlloc_v2:0:2"), ("SIMCUDA_FAIL", "cuMemAllocs:1:2"),
    ("SIMCUDA_FAIL", "cuMemAlloc_v2:1:0"), ("SIMCUDA_FAIL", "cuMemAlloc_v2:1:oom"),
    ("SIMCUDA_FAIL", "cuMemAlloc_v2:1+2:2"), ("SIMCUDA_FAIL", "cuMemAlloc_v2:1:2,"), ("SIMCUDA_FAIL", ""),
    ("SIMCUDA_LATENCY", "h200"), ("SIMCUDA_LATENCY", "cuMemAlloc_v2:100"), ("SIMCUDA_LATENCY", "cuMem:1us"),
    ("SIMCUDA_LATENCY", "cuMemAlloc_v2:1us,,cuInit:1us"), ("SIMCUDA_CLOCK", "fast"), ("SIMCUDA_RACES", "on"),
    ("SIMCUDA_STRICT", "yes"), ("SIMCUDA_LOG", ""), ("SIMCUDA_LOG", "/no/such/dir/x"), ("SIMCUDA_STATS", ""),
    ("SIMCUDA_STATS", "a%x"), ("SIMCUDA_PRIVATE_TABLE", "on"), ("SIMCUDA_FUTURE", "2"), ("SIMCUDA_VMM", "no"), ("SIMCUDA_DEADLOCK", "yes"), ("SIMCUDA_JITTER", "5us"),
    ("SIMCUDA_JITTER", ":5"), ("SIMCUDA_JITTER", "5:"), ("SIMCUDA_DEADLOCK", "10s"), ("SIMCUDA_RACE", "abort"),
]


@pytest.mark.parametrize("name,value", BAD)
def test_bad_knob_is_fatal_and_named(name, value):
    seen = probe("init", check=-6, **{name: value})
    assert name in seen.err and value in seen.err and seen.err.count("\n") == 1
    assert "expected" in seen.err or "no such knob" in seen.err


@pytest.mark.parametrize("plan,codes,injected", [
    ("cuMemAlloc_v2:3:2", [0, 0, 2, 0, 0], 1),
    ("cuMemAlloc_v2:3+:700", [0, 0, 700, 700, 700], 3),
    ("cuMemAlloc_v2:1:2,cuMemAlloc_v2:4:999", [2, 0, 0, 999, 0], 2),
    ("*:3:46", [46, 0, 0, 0, 0], 1),  # cuInit and cuCtxCreate come first
    ("cuMemFree_v2:1:2", [0] * 5, 0),
])
def test_fail(plan, codes, injected, tmp_path):
    stats = tmp_path / "s.json"
    seen = probe("alloc", 5, 4096, SIMCUDA_FAIL=plan, SIMCUDA_STATS=stats)
    assert seen["alloc"] == codes
    figures = json.loads(stats.read_text())
    assert figures["injected"] == injected and figures["calls"]["cuMemAlloc_v2"] == 5


def test_failed_init_stays_failed_for_that_call_only():
    seen = probe("init", SIMCUDA_FAIL="cuInit:1:999")
    assert seen.one("init") == 999 and seen.one("count_rc") == NOT_INITIALIZED


def test_latency_is_at_least_what_was_asked(tmp_path):
    start = time.monotonic()
    probe("alloc", 5, 4096, SIMCUDA_LATENCY="cuMemAlloc_v2:40ms")
    assert time.monotonic() - start >= 0.2
    stats = tmp_path / "s.json"
    start = time.monotonic()
    probe("alloc", 8, 2 << 30, SIMCUDA_LATENCY="published", SIMCUDA_STATS=stats)  # 59.2 us and 2048 x 655 ns each
    assert time.monotonic() - start >= 8 * (59.2e-6 + 2048 * 655e-9)
    assert json.loads(stats.read_text())["latency"] == "published"


def test_capacity():
    assert probe("alloc", 5, 16 << 20, SIMCUDA_MEM="64M")["alloc"] == [0, 0, 0, 0, OUT_OF_MEMORY]
    assert probe("alloc", 1, 0)["alloc"] == [INVALID_VALUE]
    assert probe("alloc", 1, 1 << 62)["alloc"] == [OUT_OF_MEMORY]


def test_log(tmp_path):
    assert "cuMemAlloc_v2 = 0" in probe("alloc", 1, 4096, SIMCUDA_LOG=1).err
    seen = probe("alloc", 1, 4096, SIMCUDA_LOG=tmp_path / "log.%p")
    assert not seen.err
    (log,) = tmp_path.iterdir()
    assert re.fullmatch(r"log\.\d+", log.name)
    assert [line.split(": ")[1] for line in log.read_text().splitlines()] == \
        ["cuInit = 0", "cuCtxCreate_v2 = 0", "cuMemAlloc_v2 = 0"]


def test_stats_exact(tmp_path):
    seen = probe("counts", SIMCUDA_STATS=tmp_path / "s-%p.json", SIMCUDA_DEVICES=2)
    (path,) = tmp_path.iterdir()
    figures = json.loads(path.read_text())
    assert figures["calls"] == {"cuInit": 1, "cuCtxCreate_v2": 1, "cuMemAlloc_v2": 3, "cuMemcpyHtoD_v2": 1,
                                "cuMemFree_v2": 2}
    assert figures["peak_bytes"] == [12 << 20, 0] and figures["races"] == 0 and figures["injected"] == 0
    assert seen.one("again") == INVALID_VALUE
    assert json.loads(seen.one("json")) == figures
    assert seen.one("cut") == 7 and seen.one("same") == 1


def test_strict():
    seen = probe("misuse")
    assert (seen.one("free"), seen.one("errno")) == (INVALID_VALUE, 17) and not seen.err
    assert probe("misuse", SIMCUDA_LOG="/dev/full").one("errno") == 17  # where every write of a line fails
    seen = probe("misuse", check=-6, SIMCUDA_STRICT=1)
    assert "misuse in cuMemFree_v2" in seen.err


def test_races(tmp_path):
    stats = tmp_path / "s.json"
    probe("race", SIMCUDA_STATS=stats)
    assert json.loads(stats.read_text())["races"] == 0  # off
    seen = probe("race", SIMCUDA_RACES="report", SIMCUDA_STATS=stats)
    assert json.loads(stats.read_text())["races"] == 1 and "race" in seen.err
    assert "race" in probe("race", check=-6, SIMCUDA_RACES="abort").err


def test_manual_clock():
    seen = probe("manual", SIMCUDA_CLOCK="manual")
    assert seen.one("query") == NOT_READY and seen.one("stepped") >= 1 and seen.one("query_after") == 0
    assert probe("manual").one("stepped") == 0


@pytest.mark.parametrize("clock", ["real", "manual"])
def test_deadlock(clock):
    seen = probe("deadlock", check=-6, SIMCUDA_CLOCK=clock, SIMCUDA_DEADLOCK=300)
    assert "deadlock" in seen.err and "sim_wait #1" in seen.err and "== 0x7; it holds 0x0" in seen.err
    assert "sim_fill #2" in seen.err


def test_jitter(tmp_path):
    log = tmp_path / "log"
    probe("value", SIMCUDA_JITTER="2000:7", SIMCUDA_LOG=log)
    assert log.read_text().splitlines()[0].endswith(": SIMCUDA_JITTER=2000:7")
    assert re.fullmatch(r"simcuda\[\d+\]: SIMCUDA_JITTER=5:\d+\n", probe("alloc", 1, 4096, SIMCUDA_JITTER=5).err)
    start = time.monotonic()
    probe("deadlock", check=-6, SIMCUDA_DEADLOCK=100, SIMCUDA_JITTER="300000:5")
    assert time.monotonic() - start > 0.5  # seed 5 draws 434 ms for the two launches; 100 ms is the limit


# ------------------------------------------------------------------------- behaviour ---
@pytest.mark.parametrize("clock", ["real", "manual"])
def test_values_and_host_functions(clock):
    seen = probe("value", SIMCUDA_CLOCK=clock, SIMCUDA_DEADLOCK="on")
    assert seen.one("before") == NOT_READY
    assert (seen.one("low"), seen.one("batch"), seen.one("wide"), seen.one("shown")) == (4, 77, 1, 1)
    assert seen["inside"] == [NOT_PERMITTED, NOT_PERMITTED, SUCCESS]
    assert seen.one("flush") == NOT_SUPPORTED and "flushing remote writes is not built" in seen.err
    assert [seen.one(k) for k in ("no_barrier", "host_memory", "bad_batch", "long_batch")] == [INVALID_VALUE] * 4
    assert seen.one("untouched") == 77


@pytest.mark.parametrize("clock", ["real", "manual"])
def test_private_table(clock, tmp_path):
    seen = probe("private")
    assert seen.one("other") == seen.one("ours") == NOT_FOUND
    stats = tmp_path / "s.json"
    seen = probe("private", SIMCUDA_PRIVATE_TABLE=1, SIMCUDA_CLOCK=clock, SIMCUDA_STATS=stats)
    assert (seen.one("other"), seen.one("ours"), seen.one("size"), seen.one("filled")) == (NOT_FOUND, 0, 1, 77)
    assert set(json.loads(stats.read_text())["calls"]) == \
        {"cuInit", "cuCtxCreate_v2", "cuMemAlloc_v2", "cuGetExportTable", "cuMemcpyDtoH_v2"}


@pytest.mark.parametrize("clock", ["real", "manual"])
def test_graph_nodes(clock):
    seen = probe("nodes", SIMCUDA_CLOCK=clock, SIMCUDA_RACES="abort")
    assert (seen.one("calls"), seen.one("set"), seen.one("filled")) == (3, 3, 7)
    assert (seen.one("two_rows"), seen.one("second_row")) == (0, 7)
    assert (seen.one("topology"), seen.one("result")) == (910, 2)
    assert (seen.one("early"), seen.one("destroyed")) == (0, 1)


def test_peer_access():
    seen = probe("peer", SIMCUDA_DEVICES=2)
    assert seen["can"] == [1, 0, 1] and seen.one("self") == INVALID_DEVICE and seen.one("flags") == INVALID_VALUE
    assert seen.one("without") == 700


def test_32_bit_names_are_functions_of_their_own():
    seen = probe("abi32")
    assert seen.one("alloc32") == OUT_OF_MEMORY and seen.one("ptr") == 7  # memory lies above 4 GiB; untouched
    assert seen.one("lost") == 0                                          # and nothing is lost
    assert seen.one("total32") == 2**32 - 1
    assert seen.one("info_null") == 0
    assert seen.one("free32") == INVALID_VALUE and seen.one("free64") == 0


def test_child_of_a_program_that_used_the_driver(tmp_path):
    seen = probe("fork", "after", SIMCUDA_STATS=tmp_path / "%p")
    assert seen.one("child_exit") == 3
    for key in ("child_count", "child_init", "child_ctx", "child_alloc"):
        assert seen.one(key) == NOT_INITIALIZED
    assert seen.one("parent_alloc") == 0
    counts = sorted(json.loads(p.read_text())["calls"].get("cuMemAlloc_v2", 0) for p in tmp_path.iterdir())
    assert counts == [1, 2]  # the child's own, and the parent's


def test_child_forked_before_may_use_it():
    seen = probe("fork", "before")
    assert (seen.one("child_count"), seen.one("child_init"), seen.one("child_alloc")) == (NOT_INITIALIZED, 0, 0)
    assert seen.one("child_exit") == 3


def test_after_the_exit_handlers():
    seen = probe("late")
    assert seen.one("late_alloc") == DEINITIALIZED and seen.one("late_version") == 0


def test_null_stream_of_both_flavours():
    seen = probe("twins")
    assert [seen.one(k) for k in ("ptsz_is_per_thread", "differ", "explicit_is_legacy", "contents")] == [1] * 4


def test_kernels():
    seen = probe("kernel")
    assert seen.one("ptx") == INVALID_IMAGE and "device code cannot be run" in seen.err
    assert seen.one("unknown") == NOT_FOUND
    assert seen.one("cooperative") == NOT_SUPPORTED and "launch attribute is not built" in seen.err
    assert seen.one("no_threads") == INVALID_VALUE
    assert seen.one("not_a_function") == INVALID_HANDLE and seen.one("unloaded") == INVALID_HANDLE
    assert seen.one("died") == INVALID_HANDLE and seen.one("died_module") == INVALID_HANDLE
    assert seen.one("errors") == 1024
    seen = probe("kernel", SIMCUDA_RACES="report")
    assert seen.err.count("race on") == 2  # the programmatic launches: over the barrier, and in their stream


def test_libraries(tmp_path):
    (tmp_path / "image").write_text("simcuda")
    (tmp_path / "ptx").write_text(".version 8.0\n.target sm_90\n")
    seen = probe("library", tmp_path)
    assert seen.one("ptx") == NO_BINARY_FOR_GPU and seen.err.count("device code cannot be run") == 2
    assert (seen.one("ptx_file"), seen.one("no_file"), seen.one("no_code")) == (NO_BINARY_FOR_GPU, FILE_NOT_FOUND, INVALID_VALUE)
    assert seen.one("table") == NOT_SUPPORTED and "universal table is not built" in seen.err
    assert (seen.one("unknown"), seen.one("global"), seen.one("managed"), seen.one("unified")) == (NOT_FOUND,) * 4
    assert seen["name"] == ["sim_fill", "sim_fill"] and seen.one("count") == seen.one("listed") >= 6
    assert seen["same"] == [1] * 5  # one module a context; the function's module; the kernel's library
    assert seen["no_context"] == [INVALID_CONTEXT] * 3
    assert seen.one("unload_module") == NOT_PERMITTED
    assert seen["gone"] == [INVALID_HANDLE] * 5 + [INVALID_VALUE]


def test_attributes_of_functions():
    seen = probe("attributes", SIMCUDA_DEVICES=2, SIMCUDA_DRIVER_VERSION=13050)
    assert seen["threads"] == [1024] * 2 and seen["registers"] == [0] * 2 and seen["binary"] == [90] * 2
    # set on device 0, asked there, on device 1, of the function; set of the function, asked there and of the kernel
    assert seen["shared"] == [49152, 100000, 49152, 100000, 70000, 100000]
    assert seen["refused"] == [1] + [INVALID_VALUE] * 4 + [INVALID_DEVICE] * 2 + [INVALID_HANDLE] * 3
    assert seen["place"] == [24, 8, 24, 8] and seen["arguments"] == [5, 5]


def test_launches_of_kernels_without_a_context():
    seen = probe("kernel_launches", SIMCUDA_DEVICES=2, SIMCUDA_RACES="abort")
    assert seen.one("errors") == 0 and seen.one("graph") == 0
    assert seen["no_context"] == [INVALID_CONTEXT] and seen["unloaded"] == [INVALID_HANDLE] * 2
    assert seen.one("own_context") == NOT_SUPPORTED


def test_pointers():
    seen = probe("pointer")
    assert seen.one("base") == 1 and seen.one("size") == 5000
    assert seen.one("known") == 1 and seen.one("foreign") == 1 and seen.one("foreign_one") == INVALID_VALUE
    assert seen.one("ipc_inside") == INVALID_VALUE and seen.one("ipc_unique") == 1
    assert seen.one("range_after") == NOT_FOUND


def test_pools(tmp_path):
    stats = tmp_path / "stats"
    seen = probe("pool", SIMCUDA_STATS=stats)
    assert seen.one("threshold") == 1 and seen.one("owner") == 1 and seen.one("used") == 1024
    assert seen.one("reserved") == 2 << 20 and seen.one("again") == 1 and seen.one("over_max") == OUT_OF_MEMORY
    assert seen.one("access") == 3 and seen.one("current") == 1 and seen.one("default") == INVALID_VALUE
    assert seen.one("rule") == 0 and seen.one("properties") == INVALID_VALUE
    assert json.loads(stats.read_text())["calls"]["cuMemAllocFromPoolAsync_ptsz"] == 1
    assert probe("pool", SIMCUDA_DRIVER_VERSION=13050).one("properties") == SUCCESS
    done = run([PROBE, "pool"], preload=False, check=None, SIMCUDA_FAIL="cuMemPoolCreate:1:2")
    assert "rc 2" in done.stdout
    done = run([PROBE, "pool"], preload=False, check=None, SIMCUDA_DRIVER_VERSION=11010)
    assert "cuMemPoolCreate" in done.stderr and "rc 801" in done.stdout


def test_capture():
    seen = probe("capture")
    assert seen.one("capturing") == 1 and seen.one("look_inside") == SUCCESS
    assert (seen.one("before"), seen.one("after")) == (1, 9)


def test_contexts():
    seen = probe("contexts", SIMCUDA_DEVICES=2)
    assert seen.one("same") == 1 and seen.one("dead") in (INVALID_CONTEXT, 709)
    assert (seen.one("device"), seen.one("device_of"), seen.one("restored")) == (1, 1, 1)
    assert seen.one("active") == 0 and seen.one("bad_device") == INVALID_DEVICE


def test_sixteen_threads_at_once(tmp_path):
    stats = tmp_path / "s.json"
    assert probe("threads", SIMCUDA_STATS=stats).one("failed") == 0
    calls = json.loads(stats.read_text())["calls"]
    assert calls["cuMemAlloc_v2"] == calls["cuMemFree_v2"] == 1600 and calls["cuInit"] == 32


def test_exports_are_found_before_a_preloaded_librarys(tmp_path):
    """What cuGetProcAddress returns is the driver's own function, also under a preload that exports the name."""
    source, library = tmp_path / "first.c", tmp_path / "first.so"
    source.write_text("int cuMemAlloc_v2(void) { return 12345; }\n")
    run(["cc", "-shared", "-fPIC", "-o", library, source], preload=False, check=0)
    env = {"LD_PRELOAD": library}
    if "CACHEALLOC_TEST_PRELOAD_FIRST" in os.environ:
        env["LD_PRELOAD"] = f"{os.environ['CACHEALLOC_TEST_PRELOAD_FIRST']}:{library}"
    done = run([PROBE, "alloc", "1", "4096"], preload=False, **env)
    assert "alloc 12345" in done.stdout  # the preload is in force
    fetch = ("import ctypes as c; d = c.CDLL('libcuda.so.1'); p = c.c_void_p(); "
             "d.cuGetProcAddress(b'cuMemAlloc', c.byref(p), 13000, c.c_uint64(0)); "
             "print(c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_size_t)(p.value)(None, 1))")
    done = run([sys.executable, "-c", fetch], preload=False, check=0, **env)
    assert done.stdout.split() == [str(NOT_INITIALIZED)]
