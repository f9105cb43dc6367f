# SPDX-License-Identifier: MIT
"""CACHEALLOC_TAKEOVER: the variables that a process and its children get, as C, the shell and Python read them."""

import json
import os
import sys

import pytest

from conftest import BUILD, LIBRARY, run, unmarked
from test_framework import app

ENVIRONMENT = BUILD / "tests" / "process" / "framework" / "environment"
OLDER, NEWER, OFF = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING"
NAMES = (OLDER, NEWER, OFF, "XLA_PYTHON_CLIENT_ALLOCATOR", "XLA_PYTHON_CLIENT_PREALLOCATE", "TF_GPU_ALLOCATOR",
         "CUDF_PANDAS_RMM_MODE")
ASYNC = "backend:cudaMallocAsync"


@pytest.fixture(autouse=True)
def nothing_inherited(monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def seen(lines, who):
    """{name: value} of the lines that begin with that word."""
    return dict(line.split(" ", 1)[1].split("=", 1) for line in lines.splitlines() if line.startswith(who + " "))


PYTHON = f"import os; [print('python', n + '=' + os.environ[n]) for n in {NAMES!r} if n in os.environ]"


def quoted(words):
    return " ".join("'" + str(word).replace("'", "'\\''") + "'" for word in words)


def environment(depth=0, preload=True, **env):
    """What main(), getenv() and Python find, `depth` shells further down."""
    program, python = [ENVIRONMENT, *NAMES], ["/usr/bin/python3", "-c", PYTHON]
    found = []
    for words, readers in (program, ("main", "getenv")), (python, ("python",)):
        for _ in range(depth):
            words = ["sh" if depth < 3 else "bash", "-c", quoted(words) + "; true"]
        done = run(words, preload=preload, check=0, **env)
        assert not done.stderr, done.stderr
        found += [seen(done.stdout, who) for who in readers]
    assert found[0] == found[1] == found[2], found
    return found[0]


TORCH = {
    "neither": ({}, {OLDER: ASYNC}),
    "older": ({OLDER: "max_split_size_mb:64"}, {OLDER: f"max_split_size_mb:64,{ASYNC}"}),
    "older, empty": ({OLDER: ""}, {OLDER: ASYNC}),
    "older, blank": ({OLDER: " "}, {OLDER: ASYNC}),
    "older, with a comma": ({OLDER: "max_split_size_mb:64, "}, {OLDER: f"max_split_size_mb:64, {ASYNC}"}),
    "newer": ({NEWER: "roundup_power2_divisions:[256:1,>:8]"},
              {NEWER: f"roundup_power2_divisions:[256:1,>:8],{ASYNC}", OLDER: f"roundup_power2_divisions:[256:1,>:8],{ASYNC}"}),
    # PyTorch before 2.9 would raise at the key
    "newer, a new key": ({NEWER: "pinned_use_background_threads:True"},
                         {NEWER: f"pinned_use_background_threads:True,{ASYNC}"}),
    "both": ({OLDER: "max_split_size_mb:64", NEWER: "expandable_segments:True"},
             {OLDER: f"max_split_size_mb:64,{ASYNC}", NEWER: f"expandable_segments:True,{ASYNC}"}),
    "both, the older empty": ({OLDER: "", NEWER: "expandable_segments:True"},
                              {OLDER: ASYNC, NEWER: f"expandable_segments:True,{ASYNC}"}),
    "backend": ({OLDER: "backend:native"}, {}), "another backend": ({NEWER: "x:1, backend : other"}, {}),
    "backend in one of two": ({OLDER: "max_split_size_mb:64", NEWER: "backend:native"}, {}),
    "no cache": ({OFF: "1", OLDER: "max_split_size_mb:64"}, {}), "no cache, empty": ({OFF: ""}, {}),
}


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
@pytest.mark.parametrize("case", TORCH)
def test_pytorchs_variable(case, depth):
    """At any depth the same: a child appends nothing to what it inherits."""
    before, changes = TORCH[case]
    assert environment(depth, CACHEALLOC_TAKEOVER="torch", **before) == {**before, **changes}


@pytest.mark.parametrize("word, before, after", [
    ("jax", {}, {"XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}),
    ("jax", {"XLA_PYTHON_CLIENT_PREALLOCATE": "true"},
     {"XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async", "XLA_PYTHON_CLIENT_PREALLOCATE": "true"}),
    ("jax", {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}, {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}),
    ("tensorflow", {}, {"TF_GPU_ALLOCATOR": "cuda_malloc_async"}),
    ("tensorflow", {"TF_GPU_ALLOCATOR": "cuda_malloc"}, {"TF_GPU_ALLOCATOR": "cuda_malloc"}),
    ("cudf", {}, {"CUDF_PANDAS_RMM_MODE": "async"}),
    ("cudf", {"CUDF_PANDAS_RMM_MODE": "pool"}, {"CUDF_PANDAS_RMM_MODE": "pool"}),
    ("cudf, torch", {}, {"CUDF_PANDAS_RMM_MODE": "async", OLDER: ASYNC}),
])
@pytest.mark.parametrize("depth", [0, 2])
def test_the_others(word, before, after, depth):
    assert environment(depth, CACHEALLOC_TAKEOVER=word, **before) == after


@pytest.mark.parametrize("env", [{}, {"CACHEALLOC_TAKEOVER": "off"}, {"CACHEALLOC_TAKEOVER": "auto"},
                                 {"CACHEALLOC_TAKEOVER": "torch", "CACHEALLOC_DISABLE": "1"},
                                 {"CACHEALLOC_TAKEOVER": "torch", "CACHEALLOC_DISABLE": "count"}], ids=str)
def test_nothing_is_set_otherwise(env):
    assert environment(1, **env) == {}


def test_the_rest_of_the_environment_is_as_it_was():
    """Names, values and order, but for what is added; malformed entries too."""
    words = ["/usr/bin/env"]
    odd = {"A B": "x=y=z", "EMPTY": "", "LONG": "v" * 100000, "PYTORCH_CUDA_ALLOC_CONFX": "1"}
    plain = run(words, check=0, **odd).stdout.splitlines()
    taken = run(words, check=0, CACHEALLOC_TAKEOVER="torch", **odd).stdout.splitlines()
    assert [line for line in taken if line.split("=")[0] not in (OLDER, "CACHEALLOC_TAKEOVER")] == plain
    assert f"{OLDER}={ASYNC}" in taken


def test_a_program_may_go_on_changing_its_environment():
    code = ("import os; os.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'a:1'; os.environ['NEW'] = 'x'; os.unsetenv('TF_GPU_ALLOCATOR'); "
            "os.system('env')")
    done = run(["/usr/bin/python3", "-c", code], check=0, CACHEALLOC_TAKEOVER="torch,tensorflow", PYTHONDONTWRITEBYTECODE="1")
    lines = done.stdout.splitlines()
    assert f"{OLDER}=a:1,{ASYNC}" in lines and "NEW=x" in lines  # set by the program, then taken over in its child
    assert "TF_GPU_ALLOCATOR=cuda_malloc_async" in lines


@pytest.mark.skipif("CACHEALLOC_TEST_SANITIZER" in os.environ, reason="Python cannot load a library with a sanitizer")
def test_a_library_that_is_opened_late_sets_nothing():
    code = ("import ctypes, os, sys; ctypes.CDLL(sys.argv[1]); get = ctypes.CDLL(None).getenv; "
            "get.restype = ctypes.c_char_p; print(get(b'PYTORCH_CUDA_ALLOC_CONF'), os.system('env | grep PYTORCH'))")
    done = run([sys.executable, "-c", code, LIBRARY], preload=False, check=0, CACHEALLOC_TAKEOVER="torch")
    assert done.stdout == "None 256\n"


def log(level="info", **env):
    done = run([ENVIRONMENT, "call"], check=0, CACHEALLOC_LOG=level, **env)
    return [line.removeprefix("cachealloc: ") for line in unmarked(done.stderr).splitlines() if "TAKEOVER=torch" in line
            and not line.endswith("TAKEOVER=torch")]


def test_what_was_set_is_said_at_level_info():
    assert log(CACHEALLOC_TAKEOVER="torch", **{OLDER: "max_split_size_mb:64"}) == [
        f"info: CACHEALLOC_TAKEOVER=torch: {OLDER}=max_split_size_mb:64,{ASYNC}"]
    assert log(CACHEALLOC_TAKEOVER="torch", **{NEWER: ASYNC}) == [
        f"info: CACHEALLOC_TAKEOVER=torch: {NEWER}={ASYNC}, as it was"]
    assert log("warn", CACHEALLOC_TAKEOVER="torch") == []


@pytest.mark.parametrize("env, deciding", [
    ({OLDER: "backend:native"}, f"{OLDER}=backend:native"), ({NEWER: "backend:native"}, f"{NEWER}=backend:native"),
    ({OLDER: ASYNC, NEWER: "backend:native"}, f"{NEWER}=backend:native"),
    ({OLDER: "max_split_size_mb:64", NEWER: "backend:native"}, f"{NEWER}=backend:native"),
    ({OFF: "1"}, f"{OFF}=1"), ({OFF: "1", OLDER: "backend:native"}, f"{OFF}=1"),
], ids=str)
def test_what_the_user_chose_stays_and_one_line_says_so(env, deciding):
    assert log("warn", CACHEALLOC_TAKEOVER="torch", **env) == [
        f"warning: CACHEALLOC_TAKEOVER=torch changes nothing: {deciding} is left as it is"]


def test_a_bad_word_is_said_by_the_settings():
    done = run([ENVIRONMENT, "call"], check=0, CACHEALLOC_TAKEOVER="auto")
    assert unmarked(done.stderr) == ("cachealloc: warning: CACHEALLOC_TAKEOVER: 'auto' is ignored: expected off, or a list of torch, jax, "
                           "tensorflow, cudf\n")


def test_a_framework_that_is_taken_over_is_not_taken_for_a_cache():
    """PyTorch's model does not heed the variable; it is recognised by what the variable says."""
    _, said = app("open", "train:1", CACHEALLOC_TAKEOVER="cudf,torch", PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:64")
    assert "PyTorch's own cache is on" in said  # app() sets PYTORCH_NO_CUDA_MEMORY_CACHING to nothing, which counts
    done = run([BUILD / "tests" / "process" / "framework" / "framework_app", ENVIRONMENT.parent, "open", "train:1"], check=0,
               LD_LIBRARY_PATH=f"{BUILD / 'tests' / 'sim'}:{ENVIRONMENT.parent}", CACHEALLOC_LOG="info", CACHEALLOC_TAKEOVER="torch")
    assert f"PyTorch's own cache is off ({OLDER})" in done.stderr


@pytest.mark.parametrize("env, allocations", [
    ({"CACHEALLOC_TAKEOVER": "torch"}, 2), ({"CACHEALLOC_TAKEOVER": "torch", "CACHEALLOC_CONF": "async:driver"}, 1000),
    ({"CACHEALLOC_TAKEOVER": "jax"}, 1000), ({}, 1000)], ids=str)
def test_what_a_taken_over_pytorch_allocates_is_cached(tmp_path, env, allocations):
    """A program that allocates and frees in a stream, and synchronises, a thousand times."""
    stats = tmp_path / "sim.json"
    run([BUILD / "tests" / "process" / "told" / "told_cases", "pairs"], check=0, SIMCUDA_STATS=stats, **env)
    calls = json.loads(stats.read_text())["calls"]
    found = sum(calls.get(name, 0) for name in ("cuMemAllocAsync", "cuMemAllocFromPoolAsync"))
    assert found == allocations if allocations == 1000 else found <= allocations
