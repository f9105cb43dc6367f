# SPDX-License-Identifier: MIT
"""A framework that caches by itself (a model of PyTorch's, and libraries named like others'), beside another library:
while its cache is on, every request of the process reaches the driver one to one. app.c says what the steps do."""

import json
import re
import shutil

import pytest

from conftest import BUILD, SIM, run

HERE = BUILD / "tests" / "process" / "framework"
APP, LINKED = HERE / "framework_app", HERE / "framework_app_linked"
OFF = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}


def app(*steps, program=APP, preload=True, runtime=SIM, **env):
    """The JSON lines of a run, and its stderr."""
    env.setdefault("CACHEALLOC_LOG", "info")
    for name in ("PYTORCH_NO_CUDA_MEMORY_CACHING", "XLA_PYTHON_CLIENT_ALLOCATOR"):
        env.setdefault(name, "")
    done = run([program, HERE, *steps], preload=preload, check=0, LD_LIBRARY_PATH=f"{runtime}:{SIM}:{HERE}", **env)
    return [json.loads(line) for line in done.stdout.replace("}\n}", "}}").splitlines()], done.stderr


def calls(line, name):
    return line["driver"]["calls"].get(name, 0)


def used(line):
    return line["driver"]["used_bytes"][0]


def peak(line):
    return line["driver"]["peak_bytes"][0]


# How the application comes to its framework. The last step of each list is taken with the framework there.
WAYS = {
    "opened first": (APP, ["open"]),
    "opened late": (APP, ["workspaces:30", "open"]),
    "linked": (LINKED, ["open"]),
    "opened again": (APP, ["open", "train:1", "empty", "close", "workspaces:3", "open"]),
    "in a child": (APP, ["fork", "workspaces:2", "open"]),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_request_reaches_the_driver_one_to_one(way):
    program, steps = WAYS[way]
    (before, after, emptied), log = app(*steps, "look", "train:6", "look", "empty", "look", program=program)
    segments, workspaces = after["segments"] - before["segments"], after["workspaces"] - before["workspaces"]
    assert segments > 10 and workspaces == 72
    assert calls(after, "cuMemAlloc_v2") - calls(before, "cuMemAlloc_v2") == segments + workspaces
    # each of the framework's segments is the driver's own, and leaves when the framework frees it
    assert calls(emptied, "cuMemFree_v2") - calls(after, "cuMemFree_v2") == emptied["given_back"] - after["given_back"]
    assert emptied["reserved"] == used(emptied) == 0
    assert log.count("PyTorch's own cache is on") == 1


def test_memory_cached_before_the_framework_came_goes_back():
    (before, after), _ = app("workspaces:30", "look", "open", "hold:50", "look")
    assert used(before) > 0 and used(after) == 50 << 20


def test_memory_of_before_is_still_found_and_freed():
    """A block handed out before the framework came: its pointer is freed as ever, and its segment goes back."""
    (held, after), _ = app("keep:3000000", "open", "hold:50", "look", "give", "hold:50", "look")
    assert used(held) == 70 << 20 and used(after) == 100 << 20


@pytest.mark.parametrize("steps", [["open", "train:6"], ["workspaces:30", "look", "open", "train:6"],
                                   ["open", "train:3", "empty", "workspaces:5", "train:3"],
                                   ["open", "hold:700", "drop", "empty", "train:2", "raw:50000000:3", "train:2"]],
                         ids=lambda steps: " ".join(steps))
def test_the_peak_is_at_most_one_percent_above_stock(steps):
    (*_, stock), _ = app(*steps, "look", preload=False)
    (*_, ours), _ = app(*steps, "look")
    assert ours["peak_reserved"] == stock["peak_reserved"] and ours["segments"] == stock["segments"]
    assert peak(ours) <= 1.01 * peak(stock)


@pytest.mark.parametrize("before", [[], ["workspaces:10"], ["raw:300000000:2", "raw:200000000:2", "raw:700000:9"]],
                         ids=lambda steps: " ".join(steps))
@pytest.mark.parametrize("memory", ["1G", "1537M"])
def test_the_largest_batch_that_fits_is_that_of_stock(before, memory):
    steps = ["open", *before, "largest", "look", "empty", "look"]
    (stock, stock_look, _), _ = app(*steps, preload=False, SIMCUDA_MEM=memory)
    (ours, look, emptied), _ = app(*steps, SIMCUDA_MEM=memory)
    assert stock["largest"] > 30
    assert ours["largest"] == stock["largest"]
    assert look["failed"] == stock_look["failed"] and look["segments"] == stock_look["segments"]
    assert emptied["reserved"] == 0


@pytest.mark.parametrize("steps", [["open", "threads:4"], ["workspaces:5", "open", "threads:4"],
                                   ["open", "train:1", "threads:4", "empty", "close", "open", "threads:4"]],
                         ids=lambda steps: " ".join(steps))
def test_with_four_threads(steps):
    (after, emptied), _ = app(*steps, "look", "empty", "look")
    assert emptied["reserved"] == 0 and used(after) - used(emptied) == after["reserved"]


def test_when_its_cache_is_off_everything_is_cached():
    (after,), log = app("open", "train:6", "look", **OFF)
    assert after["segments"] == 240 and calls(after, "cuMemAlloc_v2") < 40
    assert "PyTorch's own cache is off (PYTORCH_NO_CUDA_MEMORY_CACHING)" in log and "is on" not in log


@pytest.mark.parametrize("name", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"])
def test_when_it_uses_the_drivers_pool_it_is_not_taken_for_a_cache(name):
    _, log = app("open", "train:1", **{name: "max_split_size_mb:64, backend : cudaMallocAsync"})
    assert f"PyTorch's own cache is off ({name})" in log
    _, log = app("open", "train:1", **{name: "backend:native"})
    assert "PyTorch's own cache is on" in log


@pytest.mark.parametrize("value", ["", "backend:native"])
def test_the_older_name_decides_even_if_it_is_empty(value):
    """PyTorch takes PYTORCH_CUDA_ALLOC_CONF if it is set, and looks at PYTORCH_ALLOC_CONF only otherwise."""
    _, log = app("open", "train:1", PYTORCH_CUDA_ALLOC_CONF=value, PYTORCH_ALLOC_CONF="backend:cudaMallocAsync")
    assert "PyTorch's own cache is on" in log


def test_under_framework_pass_and_cache():
    (cached, emptied), log = app("open", "train:2", "look", "empty", "look", CACHEALLOC_CONF="under_framework:cache")
    assert used(emptied) == used(cached) and "own cache" not in log  # hoarded, as asked for
    (passed,), _ = app("open", "train:2", "look", CACHEALLOC_CONF="under_framework:pass", **OFF)
    assert calls(passed, "cuMemAlloc_v2") >= passed["segments"] == 80


def test_nothing_is_said_by_default():
    _, log = app("open", "train:2", CACHEALLOC_LOG="")
    assert log == ""


# Library name -> (framework, variable that switches its cache off, value)
OTHERS = {
    "jax_plugins/xla_cuda12/xla_cuda_plugin.so": ("JAX", "XLA_PYTHON_CLIENT_ALLOCATOR", "address"),
    "tensorflow/libtensorflow_cc.so.2": ("TensorFlow", "TF_GPU_ALLOCATOR", "cuda_malloc"),
    "cupy/cuda/memory.cpython-311-x86_64-linux-gnu.so": ("CuPy", None, None),
    "cupy_backends/cuda/api/runtime.cpython-311-x86_64-linux-gnu.so": ("CuPy", None, None),
}


@pytest.mark.parametrize("model", ["libfakedriver.so", "libfakestatic.so", "libfakecudnn.so"])
@pytest.mark.parametrize("name", OTHERS)
def test_other_frameworks_are_known_by_their_libraries(tmp_path, name, model):
    """Whichever way its calls take: to the driver, or through a runtime linked into the library or shared."""
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    shutil.copy(HERE / model, path)
    framework, variable, value = OTHERS[name]
    steps = ["workspaces:3", f"other:{path}", "look", "raw:11000000:20", "look"]
    (before, after), log = app(*steps)
    assert calls(after, "cuMemAlloc_v2") - calls(before, "cuMemAlloc_v2") == 20
    assert log.count(f"{framework}'s own cache is on") == 1
    if variable:
        (before, after), log = app(*steps, **{variable: value})
        assert calls(after, "cuMemAlloc_v2") - calls(before, "cuMemAlloc_v2") <= 1
        assert f"{framework}'s own cache is off ({variable})" in log


@pytest.mark.parametrize("version, is_off", [
    ('_version = "0.9.2"', True), ('# a comment\n\n_version = "0.4.30"\n_release_version: str | None = None', True),
    ('__version__ = "0.1.27"', True), ('_version = "0.10.0"', False), ('_version = "0.10.1.dev20260501"', False),
    ('_version = "1.0"', False), ("", False), ('_version = "x"', False), ("# " + "x" * 9000 + '\n_version = "0.9.2"', False),
    (None, False),
], ids=lambda value: str(value)[:30])
def test_jaxs_platform_is_a_cache_unless_its_version_is_known_to_have_none(tmp_path, version, is_off):
    """Since openxla/xla #41761 it is the same allocator as the default one. The version stands beside the plug-in."""
    plugin = tmp_path / "jax_plugins" / "xla_cuda12" / "xla_cuda_plugin.so"
    plugin.parent.mkdir(parents=True)
    shutil.copy(HERE / "libfakedriver.so", plugin)
    if version is not None:
        (plugin.parent / "version.py").write_text(version + "\n")
    steps = ["workspaces:3", f"other:{plugin}", "look", "raw:11000000:20", "look"]
    (before, after), log = app(*steps, XLA_PYTHON_CLIENT_ALLOCATOR="platform")
    asked = calls(after, "cuMemAlloc_v2") - calls(before, "cuMemAlloc_v2")
    if is_off:
        assert asked <= 1 and "JAX's own cache is off (XLA_PYTHON_CLIENT_ALLOCATOR)" in log
    else:
        assert asked == 20 and "JAX's own cache is on" in log and "XLA_PYTHON_CLIENT_ALLOCATOR=address" in log


@pytest.mark.parametrize("model", ["libfakedriver.so", "libfakestatic.so"])
def test_a_library_with_a_name_like_a_frameworks_is_none(tmp_path, model):
    path = tmp_path / "libc10.so"
    shutil.copy(HERE / model, path)
    (before, after), _ = app(f"other:{path}", "look", "raw:20971520:20", "look")
    assert calls(after, "cuMemAlloc_v2") - calls(before, "cuMemAlloc_v2") <= 1


@pytest.mark.parametrize("model", ["libfakedriver.so", "libfakestatic.so", "libfakecudnn.so"])
def test_a_framework_that_is_closed_is_gone(tmp_path, model):
    """The same file under two names: most likely at one address, so that every return address is the same."""
    plain, plugin = tmp_path / "libplain.so", tmp_path / "xla_cuda_plugin.so"
    shutil.copy(HERE / model, plain)
    shutil.copy(HERE / model, plugin)
    steps = []
    for path in (plain, plugin, plain, plugin):
        steps += [f"other:{path}", "look", "raw:21000000:10", "look"]
    lines, _ = app(*steps)
    asked = [calls(after, "cuMemAlloc_v2") - calls(before, "cuMemAlloc_v2")
             for before, after in zip(lines[::2], lines[1::2])]
    assert asked[1] == asked[3] == 10 and asked[0] <= 1 and asked[2] <= 1


# ---- the window of sizes


def stats(tmp_path, *steps, **env):
    path = tmp_path / "stats.json"
    lines, _ = app(*steps, CACHEALLOC_STATS=path, **env)
    return lines, json.loads(path.read_text())["devices"][0]


def test_max_size_sends_larger_requests_to_the_driver(tmp_path):
    (look,), device = stats(tmp_path, "raw:1048576:9", "raw:1048577:9", "look", CACHEALLOC_CONF="max_size:1M")
    assert calls(look, "cuMemAlloc_v2") == 10 and calls(look, "cuMemFree_v2") == 9
    assert device["passed_alloc_calls"] == 9 and device["alloc_calls"] == device["free_calls"] == 18
    assert device["driver_alloc_calls"] == 10 and device["driver_free_calls"] == 9
    assert device["requested_bytes"]["total"] == 9 * (1048576 + 1048577)


def test_min_size_sends_smaller_requests_to_the_driver(tmp_path):
    (look,), device = stats(tmp_path, "raw:65536:9", "raw:65535:9", "look", CACHEALLOC_CONF="min_size:64KiB")
    assert calls(look, "cuMemAlloc_v2") == 10 and device["passed_alloc_calls"] == 9


def test_one_giant_allocation_leaves_with_its_free(tmp_path):
    (held, gone), device = stats(tmp_path, "open", "hold:12000", "look", "drop", "empty", "look",
                                 CACHEALLOC_CONF="max_size:1G,under_framework:cache")
    assert used(held) == 12000 << 20 and used(gone) == 0
    assert device["reserved_bytes"]["current"] == 0 and device["reserved_bytes"]["peak"] == 12000 << 20


@pytest.mark.parametrize("bytes_", [4096, 3000000, 30 << 20])
@pytest.mark.parametrize("window", ["max_size:1", "min_size:1T"])
def test_wrong_frees_of_passed_memory_get_the_drivers_answer(window, bytes_):
    steps = ["raw:5000000:1", f"wrong:{bytes_}"]
    (stock,), _ = app(*steps, preload=False)
    (ours,), _ = app(*steps, CACHEALLOC_CONF=window)
    assert ours["codes"] == stock["codes"] and ours["codes"][1] == 0 and ours["codes"][2] != 0


def test_running_out_in_the_window_gives_cached_memory_back_first(tmp_path):
    steps = ["raw:600000000:1", "keep:900000000", "look"]
    (look,), device = stats(tmp_path, *steps, CACHEALLOC_CONF="max_size:700M", SIMCUDA_MEM="1G")
    assert used(look) >= 900000000 and device["ooms"] == 0 and device["passed_alloc_calls"] == 1


# ---- the table says what became of what


def table(*steps, **env):
    """The lines of the table at exit, joined by single spaces."""
    _, log = app(*steps, CACHEALLOC_STATS="1", CACHEALLOC_LOG="", **env)
    lines = log.splitlines()
    assert max(map(len, lines)) <= 80, lines
    return [" ".join(line.split()) for line in lines]


def test_the_table_says_what_passed_why_and_what_changes_it():
    lines = table("workspaces:9", "open", "train:2")
    at = next(i for i, line in enumerate(lines) if line.startswith("passed "))
    assert re.fullmatch(r"passed \d+ of these straight to the driver: PyTorch's own cache is on", lines[at])
    assert lines[at + 1:at + 3] == ["to cache them here: PYTORCH_NO_CUDA_MEMORY_CACHING=1, or",
                                    "CACHEALLOC_CONF=under_framework:cache"]
    passed = int(lines[at].split()[1])
    found, = [re.fullmatch(r"calls (\d+) alloc, \d+ free; of (\d+) not passed on ([\d.]+)% served from cache", line)
              for line in lines if line.startswith("calls ")]
    assert int(found[1]) == passed + int(found[2]) and float(found[3]) > 50


def test_the_table_of_a_program_that_only_its_framework_serves():
    lines = table("open", "hold:20")
    assert any(re.fullmatch(r"calls (\d+) alloc, \d+ free; all were passed on", line) for line in lines), lines


@pytest.mark.parametrize("steps, env, why, change", [
    (["raw:1048576:9", "raw:1048577:9"], {"CACHEALLOC_CONF": "max_size:1M"}, "9 of these straight to the driver: by size",
     "CACHEALLOC_CONF=min_size:0,max_size:unlimited"),
    (["open", "train:1"], {"CACHEALLOC_CONF": "under_framework:pass", **OFF}, "by under_framework:pass",
     "CACHEALLOC_CONF=under_framework:cache"),
])
def test_the_table_names_the_setting_by_which_something_passed(steps, env, why, change):
    lines = table(*steps, **env)
    at = next(i for i, line in enumerate(lines) if line.startswith("passed "))
    assert lines[at].endswith(why) and change in " ".join(lines[at + 1:at + 3])


def test_the_table_has_no_such_rows_where_nothing_passed():
    lines = table("open", "train:2", **OFF)
    assert not [line for line in lines if line.startswith(("passed", "other", "reuse"))]
    assert any("% served from cache" in line for line in lines)
