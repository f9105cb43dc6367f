# SPDX-License-Identifier: MIT
"""`cachealloc doctor` on programs of every make, and on files that are none."""

import json
import os
import random
import re
import shutil
import subprocess

import crafted
import pytest
from conftest import LIBRARY, SIM
from command import COMMAND, ROOT, cli, compiler, stub_build  # noqa: F401  (fixtures)
from schema import check

QUICK_EVERY = 4  # conftest.py
SCHEMA = json.loads((ROOT / "scripts" / "schema" / "doctor.schema.json").read_text())
RUNTIME = b"\0libcuda.so.1\0cuGetProcAddress_v2\0cudart\0"


@pytest.fixture
def library(tmp_path):
    """A crafted x86-64 libcachealloc.so, so that the tests mean the same on every machine."""
    path = tmp_path / "libcachealloc.so"
    path.write_bytes(crafted.elf(interpreter=None, soname="libcachealloc.so", payload=b"cachealloc 0.1.0\0"))
    return path


@pytest.fixture
def doctor(cli, library, tmp_path):
    """doctor(program or bytes) -> (exit status, JSON)."""
    def call(program, mode=0o755, **env):
        if isinstance(program, bytes):
            path = tmp_path / "program"
            path.write_bytes(program)
            path.chmod(mode)
            program = path
        env.setdefault("LD_LIBRARY_PATH", tmp_path)
        done = cli("doctor", "--json", "--library", library, program, **env)
        assert not done.stderr, done.stderr
        data = json.loads(done.stdout)
        check(data, SCHEMA)
        assert {"yes": 0, "no": 1, "unknown": 2}[data["will_intercept"]] == done.returncode
        return done.returncode, data
    return call


def kinds(data):
    return [(road["kind"], road["binds"]) for road in data["roads"]]


# ---- roads

def test_linked_with_the_driver(doctor):
    status, data = doctor(crafted.elf(needed=["libcuda.so.1", "libc.so.6"], imported=["cuMemAlloc_v2"]))
    assert status == 0 and kinds(data) == [("direct", True)]


def test_linked_with_the_shared_runtime(doctor):
    for name in ("libcudart.so.11.0", "libcudart.so.12", "libcudart.so.13"):
        status, data = doctor(crafted.elf(needed=[name]))
        assert status == 0 and kinds(data) == [("shared-runtime", True)]


def test_contains_the_static_runtime(doctor):
    status, data = doctor(crafted.elf(imported=["dlopen", "dlsym", "dlmopen"], payload=RUNTIME))
    assert status == 0 and kinds(data) == [("static-runtime", True)]
    assert not any("dlmopen" in note["text"] for note in data["notes"])


@pytest.mark.parametrize("name", [b"libcuda.so.1", b"libcudart.so.13"])
def test_loads_cuda_by_name(doctor, name):
    status, data = doctor(crafted.elf(needed=["libc.so.6"], imported=["dlopen", "dlsym"], payload=name))
    assert status == 0 and kinds(data) == [("dlopen", True)]
    assert doctor(crafted.elf(needed=["libc.so.6"], payload=name))[0] == 1  # a mere string


def test_may_load_cuda_later(doctor):
    status, data = doctor(crafted.elf(needed=["libc.so.6"], imported=["dlopen", "dlsym"]))
    assert status == 2 and kinds(data) == [("run-time", True)]


def test_no_cuda_at_all(doctor):
    status, data = doctor(crafted.elf(imported=["puts"]))
    assert status == 1 and data["roads"] == []


@pytest.mark.parametrize("name", ["execve", "execvp", "posix_spawnp"])
def test_what_only_starts_other_programs_cannot_be_told(doctor, name):
    """A shell, a launcher: the programs that it starts inherit LD_PRELOAD."""
    status, data = doctor(crafted.elf(imported=["puts", name]))
    assert status == 2 and data["roads"] == [] and "starts other programs" in data["reason"]


def test_through_a_library_of_the_program(doctor, tmp_path):
    (tmp_path / "libmine.so").write_bytes(crafted.elf(interpreter=None, soname="libmine.so", needed=["libdeep.so"]))
    (tmp_path / "libdeep.so").write_bytes(crafted.elf(interpreter=None, payload=RUNTIME))
    status, data = doctor(crafted.elf(needed=["libmine.so"]))
    assert status == 0 and [(r["kind"], r["file"]) for r in data["roads"]] == [("static-runtime", "libdeep.so")]
    status, data = doctor(crafted.elf(needed=["libmine.so"], runpath="$ORIGIN"), LD_LIBRARY_PATH="/nowhere")
    assert any("libdeep.so was not found" in note["text"] for note in data["notes"])  # RUNPATH is not inherited


def test_libraries_that_need_each_other_end(doctor, tmp_path):
    (tmp_path / "liba.so").write_bytes(crafted.elf(interpreter=None, needed=["libb.so"]))
    (tmp_path / "libb.so").write_bytes(crafted.elf(interpreter=None, needed=["liba.so", "libcuda.so.1"]))
    status, data = doctor(crafted.elf(needed=["liba.so"]))
    assert status == 0 and kinds(data) == [("direct", True)]


def test_libraries_on_the_same_road_share_a_line(cli, tmp_path):
    names = [f"lib{letter}.so" for letter in "abcde"]
    for name in names:
        (tmp_path / name).write_bytes(crafted.elf(interpreter=None, imported=["dlopen"]))
    program = tmp_path / "program"
    program.write_bytes(crafted.elf(needed=["libcuda.so.1", *names], runpath="$ORIGIN"))
    program.chmod(0o755)
    lines = [line for line in cli("doctor", program).stdout.splitlines() if line.startswith("  road")]
    assert len(lines) == 2 and "run-time, liba.so, libb.so, libc.so and 2 more: can load CUDA" in lines[1]


# ---- why not

def test_names_of_the_program_stand_before_ours(doctor):
    status, data = doctor(crafted.elf(needed=["libcuda.so.1"], exported=["cuMemAlloc_v2"]))
    assert status == 1 and kinds(data) == [("direct", False)] and "cuMemAlloc_v2" in data["reason"]
    status, data = doctor(crafted.elf(needed=["libcudart.so.13"], exported=["dlsym"]))
    assert status == 1 and "dlsym" in data["reason"]


@pytest.mark.parametrize("program", [
    crafted.elf(kind=crafted.EXEC, interpreter=None, dynamic=False, payload=RUNTIME),
    crafted.elf(kind=crafted.DYN, interpreter=None, flags_1=0x08000000, payload=RUNTIME),  # static-pie
])
def test_static_programs(doctor, program):
    status, data = doctor(program)
    assert status == 1 and "statically linked" in data["reason"]


@pytest.mark.parametrize("what", [
    {"machine": crafted.AARCH64, "interpreter": "/lib/ld-linux-aarch64.so.1"},
    {"bits": 32, "machine": crafted.I386, "interpreter": "/lib/ld-linux.so.2"},
    {"bits": 32, "machine": crafted.X86_64, "interpreter": "/libx32/ld-linux-x32.so.2"},
    {"little": False, "machine": 21, "interpreter": "/lib64/ld64.so.1"},
    {"bits": 32, "little": False, "machine": 2, "interpreter": "/lib/ld.so.1"},
])
def test_other_architectures(doctor, what):
    status, data = doctor(crafted.elf(needed=["libcudart.so.13"], **what))
    assert status == 1 and "x86-64" in data["reason"]


def test_musl(doctor):
    status, data = doctor(crafted.elf(interpreter="/lib/ld-musl-x86_64.so.1", needed=["libcudart.so.13"]))
    assert status == 1 and "musl" in data["reason"]


@pytest.mark.parametrize("kind", [crafted.REL, crafted.CORE])
def test_not_a_program(doctor, kind):
    assert doctor(crafted.elf(kind=kind))[0] == 1


@pytest.mark.parametrize("mode, word", [(0o4755, "set-uid"), (0o2755, "set-gid")])
def test_privileged_programs(doctor, mode, word):
    status, data = doctor(crafted.elf(needed=["libcudart.so.13"]), mode=mode)
    assert status == 1 and word in data["reason"]


def test_without_the_library(cli, tmp_path):
    path = tmp_path / "program"
    path.write_bytes(crafted.elf(needed=["libcudart.so.13"]))
    path.chmod(0o755)
    done = cli("doctor", path, CACHEALLOC_BUILD=tmp_path)
    assert done.returncode == 1 and "libcachealloc.so was not found" in done.stdout


def test_a_library_that_cannot_be_preloaded(cli, stub_build, tmp_path):
    """`run` refuses it; --help does not show it as all that is needed."""
    path = tmp_path / "program"
    path.write_bytes(crafted.elf(needed=["libcudart.so.13"]))
    path.chmod(0o755)
    build = tmp_path / "cl one"
    shutil.copytree(stub_build, build)
    done = cli("doctor", path, CACHEALLOC_BUILD=build)
    assert done.returncode == 1 and "will not intercept: the library cannot be preloaded" in done.stdout
    assert "\n  problem  " in done.stdout and "LD_PRELOAD cannot name a path with a space or a colon" in done.stdout
    assert "LD_PRELOAD=/path/to/libcachealloc.so ./app" in cli("help", CACHEALLOC_BUILD=build).stdout
    assert f"LD_PRELOAD={stub_build}/shim/libcachealloc.so ./app" in cli("help").stdout
    done = cli("doctor", "--library", path, path)
    assert done.returncode == 1 and f"{path} is not libcachealloc.so" in done.stdout


def test_a_simulated_driver_is_spoken_of_only_where_there_is_one(stub_build, tmp_path, monkeypatch):
    from cachealloc_cli import surroundings
    build = tmp_path / "build"
    shutil.copytree(stub_build, build)
    monkeypatch.setenv("CACHEALLOC_BUILD", str(build))
    assert surroundings.describe_libcuda(None, "") == "libcuda.so.1 was not found: no NVIDIA driver here"
    (build / "tests" / "sim").mkdir(parents=True)
    (build / "tests" / "sim" / "libcuda.so.1").write_bytes(b"SIMCUDA_MEM")
    assert surroundings.describe_libcuda(None, "").endswith(" run --sim has a simulated one)")


# ---- scripts

def test_scripts_are_followed_to_the_binary(doctor, tmp_path):
    binary = tmp_path / "interp"
    binary.write_bytes(crafted.elf(needed=["libcuda.so.1"]))
    binary.chmod(0o755)
    for line in (f"#!{binary}", f"#!/usr/bin/env {binary}", f"#! /usr/bin/env -S A=1 {binary} -x"):
        status, data = doctor(line.encode() + b"\nbody\n")
        assert status == 0 and data["path"] == str(binary)
    status, data = doctor(b"#!/no/such/interpreter\n")
    assert status == 1 and "interpreter" in data["reason"]


def test_a_script_that_is_its_own_interpreter(doctor, tmp_path):
    status, data = doctor(f"#!{tmp_path}/program\n".encode())
    assert status == 2 and "deep" in data["reason"]


# ---- surroundings

def test_nodeflib_and_runpath(doctor, tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "libcuda.so.1").write_bytes(crafted.elf(interpreter=None, soname="libcuda.so.1"))
    status, data = doctor(crafted.elf(needed=["libcuda.so.1"], flags_1=0x800, runpath="$ORIGIN/own"))
    texts = " ".join(note["text"] for note in data["notes"])
    assert status == 0 and "nodeflib" in texts and "libcuda.so.1 of its own" in texts
    assert data["libcuda_path"] == str(tmp_path / "own" / "libcuda.so.1")
    status, data = doctor(crafted.elf(needed=["libcuda.so.1"], flags_1=0x800))
    assert data["libcuda_path"] is None


def test_rpath_counts_only_without_runpath(doctor, tmp_path):
    for name in ("r", "rr"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "libcuda.so.1").write_bytes(crafted.elf(interpreter=None))
    origin = str(tmp_path)
    _, data = doctor(crafted.elf(rpath=f"{origin}/r", runpath=f"{origin}/rr"))
    assert data["libcuda_path"] == f"{origin}/rr/libcuda.so.1"
    _, data = doctor(crafted.elf(rpath="${ORIGIN}/r"))
    assert data["libcuda_path"] == f"{origin}/r/libcuda.so.1"


def test_a_libcuda_of_another_architecture_is_passed_over(doctor, tmp_path):
    (tmp_path / "libcuda.so.1").write_bytes(crafted.elf(interpreter=None, machine=crafted.AARCH64))
    _, data = doctor(crafted.elf(needed=["libcuda.so.1"], flags_1=0x800))
    assert data["libcuda_path"] is None


def test_the_simulator_and_the_stub_are_named(cli, library, tmp_path):
    program = tmp_path / "program"
    program.write_bytes(crafted.elf(needed=["libcuda.so.1"]))
    program.chmod(0o755)
    for folder, word, payload in (("sim", "simulated driver", b"SIMCUDA_MEM"), ("stubs", "stub", b"")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "libcuda.so.1").write_bytes(crafted.elf(interpreter=None, payload=payload))
        done = cli("doctor", "--library", library, program, LD_LIBRARY_PATH=tmp_path / folder)
        assert done.returncode == 0 and word in done.stdout


def test_environment_typos_and_other_preloads(doctor):
    program = crafted.elf(needed=["libcudart.so.13"])
    _, data = doctor(program, CACHEALLOC_STAT="1", CACHEALLOC_DISABLE="1", LD_AUDIT="")
    problems = [note["text"] for note in data["notes"] if note["problem"]]
    assert any("CACHEALLOC_STAT is set" in text and "CACHEALLOC_STATS?" in text for text in problems)
    assert any("CACHEALLOC_DISABLE=1" in text for text in problems)
    _, data = doctor(program, LD_PRELOAD="libc.so.6")
    assert any("LD_PRELOAD also names libc.so.6" in note["text"] for note in data["notes"])


def test_bad_settings_are_problems_in_the_librarys_own_words(cli, tmp_path):
    if not LIBRARY.is_file() or "CACHEALLOC_TEST_SANITIZER" in os.environ:
        pytest.skip("the library cannot be asked")
    done = cli("doctor", "--json", "--library", LIBRARY, "true", CACHEALLOC_CONF="max_split_size_mb:banana,reuse:finished",
               CACHEALLOC_TRACE="1", CACHEALLOC_STAT="1")
    problems = [note["text"] for note in json.loads(done.stdout)["notes"] if note["problem"]]
    assert [text for text in problems if text.startswith("CACHEALLOC_CONF: max_split_size_mb: 'banana' is ignored: expected")]
    assert [text for text in problems if text.startswith("CACHEALLOC_TRACE: '1' is ignored")]
    assert len([text for text in problems if "CACHEALLOC_STAT:" in text and "CACHEALLOC_STATS?" in text]) == 1
    assert len(problems) == 3, problems


def test_settings_of_pytorchs_allocator_are_reported_and_which_is_in_force(doctor):
    program = crafted.elf(needed=["libcudart.so.13"])
    _, data = doctor(program, PYTORCH_ALLOC_CONF="expandable_segments:True")
    assert [note for note in data["notes"] if note["text"] == "PYTORCH_ALLOC_CONF=expandable_segments:True is for PyTorch's "
            "own cache: cachealloc reads CACHEALLOC_CONF"] and not data["notes"][0]["problem"]
    for cuda in ("backend:native", ""):
        _, data = doctor(program, PYTORCH_ALLOC_CONF="backend:cudaMallocAsync", PYTORCH_CUDA_ALLOC_CONF=cuda)
        problem, = [note["text"] for note in data["notes"] if note["problem"]]
        assert problem.startswith("PYTORCH_ALLOC_CONF=backend:cudaMallocAsync is not in force: PYTORCH_CUDA_ALLOC_CONF is set")
        assert ("to nothing" in problem) == (cuda == "")
    _, data = doctor(program, PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync")
    assert [note for note in data["notes"] if "PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync" in note["text"]]


@pytest.mark.parametrize("text, faults", [
    ("", []), ("max_split_size_mb:64, garbage_collection_threshold:0.8", []), ("roundup_power2_divisions:[256:1,512:2,>:8],backend:native", []),
    ("pinned_use_background_threads:True,max_split_size_mb:64x", []), ("large_segment_size_mb:12,max_split_size_mb:14", []),
    ("max_spilt_size_mb:64", ["PyTorch knows no key 'max_spilt_size_mb'; did you mean max_split_size_mb?"]),
    ("max_split_size_mb=64", ["'max_split_size_mb=64' is no key:value"]), ("max_split_size_mb:", ["'max_split_size_mb:' is no key:value"]),
    ("max_split_size_mb:10", ["max_split_size_mb: '10' is no number of MB of at least 20"]), ("max_split_size_mb:big,x:[1:2,3:4]",
     ["max_split_size_mb: 'big' is no number of MB of at least 20", "PyTorch knows no key 'x'"]),
    ("backend:cuda", ["PyTorch knows no backend 'cuda', only native and cudaMallocAsync"]),
])
def test_what_pytorch_would_not_understand(doctor, text, faults):
    """In the variable that is in force."""
    program = crafted.elf(needed=["libcudart.so.13"])
    for name, others in (("PYTORCH_CUDA_ALLOC_CONF", {"PYTORCH_ALLOC_CONF": ""}), ("PYTORCH_ALLOC_CONF", {})):
        _, data = doctor(program, LD_LIBRARY_PATH=SIM, **{name: text}, **others)
        problems = [note["text"] for note in data["notes"] if note["problem"]]
        assert problems == [f"{name}: {fault}" for fault in faults]


# ---- frameworks with a cache of their own

def texts(data):
    return [note["text"] for note in data["notes"]]


def test_frameworks_of_the_program_are_named_with_their_take_over_setting(doctor, tmp_path):
    (tmp_path / "libc10_cuda.so").write_bytes(crafted.elf(interpreter=None, soname="libc10_cuda.so",
                                                          needed=["libcudart.so.13"]))
    program = crafted.elf(needed=["libc10_cuda.so", "libcuda.so.1"])
    clean = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "", "PYTORCH_CUDA_ALLOC_CONF": ""}
    _, data = doctor(program, **clean)
    said, = [text for text in texts(data) if "own cache" in text]
    assert said.startswith("PyTorch's own cache is on: requests go straight to the driver; to let cachealloc take over, "
                           "set PYTORCH_NO_CUDA_MEMORY_CACHING=1; or, for stream-ordered memory, CACHEALLOC_TAKEOVER=torch: ")
    for off in ({"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, {"PYTORCH_CUDA_ALLOC_CONF": "a:1, backend: cudaMallocAsync"}):
        _, data = doctor(program, **{**clean, **off})
        assert any("PyTorch's own cache is off" in text for text in texts(data)), texts(data)
    _, data = doctor(program, **clean, PYTORCH_ALLOC_CONF="backend:cudaMallocAsync")
    assert any("PyTorch's own cache is on" in text for text in texts(data)), texts(data)
    _, data = doctor(program, PYTORCH_ALLOC_CONF="backend:cudaMallocAsync")
    assert any("PyTorch's own cache is off (PYTORCH_ALLOC_CONF)" in text for text in texts(data)), texts(data)
    _, data = doctor(program, **clean, CACHEALLOC_CONF="reuse:finished,under_framework:cache")
    assert any("cached like any other request" in text for text in texts(data))


@pytest.mark.skipif("CACHEALLOC_TEST_SANITIZER" in os.environ, reason="Python cannot load a library with a sanitizer")
def test_what_a_take_over_keeps_and_loses(cli, tmp_path, monkeypatch):
    """By the library's own decision, as a program under it would find its environment."""
    if not LIBRARY.is_file():
        pytest.skip(f"{LIBRARY} is not built")
    for name in ("PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "libc10_cuda.so").write_bytes(crafted.elf(interpreter=None, soname="libc10_cuda.so"))
    program = tmp_path / "program"
    program.write_bytes(crafted.elf(needed=["libc10_cuda.so", "libcuda.so.1"]))
    program.chmod(0o755)

    def doctor(**env):
        done = cli("doctor", "--json", "--library", LIBRARY, program, LD_LIBRARY_PATH=tmp_path, CACHEALLOC_TAKEOVER="torch", **env)
        return json.loads(done.stdout)

    data = doctor(PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:64")
    assert any("counts where CACHEALLOC_CONF lacks a key" in text for text in texts(data))
    said, = [text for text in texts(data) if text.startswith("PyTorch's own cache")]
    assert said.startswith("PyTorch's own cache is off (PYTORCH_CUDA_ALLOC_CONF): its memory is stream-ordered")
    assert "empty_cache" in said.split("stay;")[0] and "memory_snapshot" in said.split("stay;")[1]
    data = doctor(PYTORCH_CUDA_ALLOC_CONF="backend:native")
    assert any(text.startswith("PyTorch's own cache is on") for text in texts(data))


def test_frameworks_of_a_python_are_found_where_it_keeps_its_packages(doctor, tmp_path):
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    for file in ("torch/lib/libc10_cuda.so", "cupy/cuda/memory.cpython-311-x86_64-linux-gnu.so"):
        (packages / file).parent.mkdir(parents=True)
        (packages / file).write_bytes(b"")
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python3.11"
    python.write_bytes(crafted.elf(needed=["libc.so.6"], imported=["dlopen", "dlsym"]))
    python.chmod(0o755)
    _, data = doctor(python, PYTORCH_NO_CUDA_MEMORY_CACHING="", PYTHONPATH="")
    named = [text for text in texts(data) if "own cache" in text]
    for text, name in zip(named, ("PyTorch", "CuPy"), strict=True):
        assert text.startswith(f"{name} is installed beside it; if the program uses it: {name}'s own cache is on")


@pytest.mark.parametrize("version, word", [("0.9.2", "off"), ("0.10.0", "on"), ("0.10.1", "on"), (None, "on")])
def test_jaxs_platform_counts_by_the_version_beside_the_plugin(doctor, tmp_path, version, word):
    plugin = tmp_path / "lib" / "python3.11" / "site-packages" / "jax_plugins" / "xla_cuda12" / "xla_cuda_plugin.so"
    plugin.parent.mkdir(parents=True)
    plugin.write_bytes(b"")
    if version:
        (plugin.parent / "version.py").write_text(f'# words\n_version = "{version}"\n')
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python3.11"
    python.write_bytes(crafted.elf(needed=["libc.so.6"], imported=["dlopen", "dlsym"]))
    python.chmod(0o755)
    _, data = doctor(python, XLA_PYTHON_CLIENT_ALLOCATOR="platform", PYTHONPATH="")
    text, = [text for text in texts(data) if "JAX's own cache is " in text]
    assert f": JAX's own cache is {word}" in text and ("=address" in text) == (word == "on")
    _, data = doctor(python, XLA_PYTHON_CLIENT_ALLOCATOR="address", PYTHONPATH="")
    assert [text for text in texts(data) if "JAX's own cache is off" in text]


@pytest.mark.parametrize("name, owner", [("libmpi.so.40", "MPI"), ("libucp.so.0", "UCX"), ("libother.so.1", None)])
def test_what_auto_decides_about_mapping(doctor, tmp_path, name, owner):
    (tmp_path / name).write_bytes(crafted.elf(interpreter=None, soname=name))
    program = crafted.elf(needed=[name, "libcuda.so.1"])
    for conf in ("", "expandable_segments:True", "expandable_segments:False"):
        _, data = doctor(program, CACHEALLOC_CONF=conf)
        assert not [text for text in texts(data) if "expandable_segments:auto" in text]
    _, data = doctor(program, CACHEALLOC_CONF="reuse_slack_mb:0, expandable_segments : auto")
    said, = [text for text in texts(data) if text.startswith("expandable_segments:auto: ")]
    assert (f"segments are as ever, since {owner} is loaded ({name})" if owner else "memory is mapped if") in said


def test_doctor_and_the_library_know_the_same_libraries_that_share_memory():
    from cachealloc_cli.mapping import SHARERS
    table = (ROOT / "shim" / "driver" / "vmm_trial.c").read_text()
    assert SHARERS == dict(re.findall(r'^\t\{ "(.*)", "auto: (.*) is loaded" \},$', table, re.M)) and SHARERS


def test_doctor_and_the_library_know_the_same_frameworks():
    from cachealloc_cli.frameworks import FRAMEWORKS
    table = (ROOT / "shim" / "framework" / "frameworks.def").read_text()
    ids = dict(re.findall(r'^CA_FRAMEWORK\((\w+), "(.*?)", ".*"\)$', table, re.M))
    take_over = dict(re.findall(r'^CA_FRAMEWORK\((\w+), ".*?", "(.*)"\)$', table, re.M))
    files = re.findall(r'^CA_FRAMEWORK_FILE\((\w+), "(.*)"\)$', table, re.M)
    switches = re.findall(r'^CA_FRAMEWORK_OFF\((\w+), "(.*?)", "(.*)"\)$', table, re.M)
    assert FRAMEWORKS == {
        name: (tuple(pattern for owner, pattern in files if owner == id_), take_over[id_],
               tuple((variable, value) for owner, variable, value in switches if owner == id_))
        for id_, name in ids.items()}
    assert len(FRAMEWORKS) == 4


@pytest.mark.parametrize("library, file, text, version", [
    ("torch/lib/libc10_cuda.so", "torch/version.py", "# words\n__version__ = '2.7.1+cu126'\n", "2.7.1+cu126"),
    ("jax_plugins/xla_cuda12/xla_cuda_plugin.so", "jax_plugins/xla_cuda12/version.py", '_version = "0.9.2"\n', "0.9.2"),
    ("torch/lib/libc10_cuda.so", "torch/version.py", "x = 1\n", None), ("torch/lib/libc10_cuda.so", "other", "", None),
])
def test_the_version_of_a_framework(tmp_path, library, file, text, version):
    from cachealloc_cli import frameworks
    for path in (tmp_path / library, tmp_path / file):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert frameworks.version(str(tmp_path / library)) == version


# ---- real compilers' output

def test_what_the_compiler_here_makes(cli, compiler, tmp_path):
    source = tmp_path / "p.c"
    source.write_text("#include <dlfcn.h>\nint main(int c, char **v) { return !dlopen(v[0], c); }\n")
    dynamic, static = tmp_path / "dynamic", tmp_path / "static"
    subprocess.run([compiler, "-o", dynamic, source, "-ldl"], check=True)
    done = cli("doctor", dynamic)
    assert done.returncode == 2 and "imports dlopen" in done.stdout
    source.write_text("int main(void) { return 0; }\n")
    subprocess.run([compiler, "-o", dynamic, source], check=True)
    assert cli("doctor", dynamic).returncode == 1
    if subprocess.run([compiler, "-static", "-o", static, source], check=False).returncode == 0:
        done = cli("doctor", static)
        assert done.returncode == 1 and "statically linked" in done.stdout


def test_names_in_a_gnu_hash_table(compiler, tmp_path):
    """The reader finds every exported and imported name of a real library, as nm does."""
    if not shutil.which("nm"):
        pytest.skip("no nm")
    from cachealloc_cli.elf import Elf
    source, library = tmp_path / "l.c", tmp_path / "l.so"
    source.write_text("extern int puts(const char *);\n"
                      + "\n".join(f"int name_{i}(void) {{ return puts(\"\") + {i}; }}" for i in range(300)))
    for style in ("gnu", "sysv", "both"):
        subprocess.run([compiler, "-shared", "-fPIC", f"-Wl,--hash-style={style}", "-o", library, source], check=True)
        read = Elf(library)
        out = subprocess.run(["nm", "-D", "--defined-only", library], stdout=subprocess.PIPE, text=True, check=True)
        assert read.exported == {line.split()[-1].split("@")[0] for line in out.stdout.splitlines()}
        assert "puts" in read.imported


def nvcc():
    return shutil.which("nvcc") or (os.path.isfile("/usr/local/cuda/bin/nvcc") and "/usr/local/cuda/bin/nvcc") or None


@pytest.mark.skipif(not nvcc(), reason="no nvcc: the toolkit's own runtimes are not examined")
@pytest.mark.parametrize("which, road", [("static", "static-runtime"), ("shared", "shared-runtime")])
def test_nvcc_programs(cli, tmp_path, which, road):
    source, program = tmp_path / "p.cu", tmp_path / "p"
    source.write_text("int main() { void *p; return cudaMalloc(&p, 4); }\n")
    subprocess.run([nvcc(), "-cudart", which, "-o", program, source], check=True)
    done = cli("doctor", program)
    assert done.returncode == 0 and f"road     {road}" in done.stdout


# ---- garbage

def test_missing_and_odd_targets(cli, tmp_path):
    assert cli("doctor", "no-such-program-here").returncode == 2
    assert cli("doctor", tmp_path).returncode == 2
    os.mkfifo(tmp_path / "fifo")
    assert cli("doctor", tmp_path / "fifo", timeout=20).returncode == 2
    assert cli("doctor").returncode == 2
    done = cli("doctor", "sh", "-c", "true")
    assert done.returncode == 2 and "not its arguments" in done.stderr


def test_a_file_that_is_no_program_by_itself(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sl.py").write_text("print()\n")
    (tmp_path / "app").write_bytes(b"")
    assert f"not found; `{COMMAND} doctor --run -- python3 sl.py` runs that file" in cli("doctor", "sl.py").stdout
    assert f"`{COMMAND} doctor --run -- python3 ./sl.py` runs that file" in cli("doctor", "./sl.py").stdout
    assert "not found; a file of that name lies here: ./app" in cli("doctor", "app").stdout
    done = cli("doctor", "--run", "sl.py", "a b")
    assert done.returncode == 2 and f"`{COMMAND} doctor --run -- python3 sl.py 'a b'`" in done.stderr


def examine(path):
    """In this process, since a process for each of thousands of files would take minutes."""
    from cachealloc_cli import doctor as module
    return module.examine(str(path), environ={})


@pytest.fixture
def quick(monkeypatch):
    """Without asking ldconfig, nvidia-smi and the library thousands of times."""
    from cachealloc_cli import libraries, settings, surroundings
    monkeypatch.setattr(settings, "faults", lambda *_: [])
    monkeypatch.setattr(settings, "site_notes", lambda *_: [])
    monkeypatch.setattr(libraries, "cache", dict)
    monkeypatch.setattr(surroundings, "driver_version", lambda: None)


def test_random_bytes_never_raise(quick, tmp_path):
    seed = random.SystemRandom().randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    path = tmp_path / "garbage"
    for _ in range(500):
        path.write_bytes(rng.choice([b"", b"#!", b"\x7fELF", b"\x7fELF\2\1\1"]) + rng.randbytes(rng.randrange(300)))
        report = examine(path)
        assert report.verdict in (0, 1, 2) and report.reason


def test_damaged_programs_never_raise(quick, tmp_path):
    """Bytes changed at random, and every length of a cut."""
    seed = random.SystemRandom().randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    path = tmp_path / "damaged"
    with open(shutil.which("true"), "rb") as file:
        real = file.read()
    goods = [crafted.elf(needed=["libcuda.so.1"], imported=["a", "dlopen"], exported=["b"], runpath="$ORIGIN"),
             crafted.elf(bits=32, machine=crafted.I386, little=False, needed=["x"]), real]
    for _ in range(20000 if os.environ.get("CACHEALLOC_TEST_LONG") else 500):
        data = bytearray(rng.choice(goods))
        for _ in range(rng.choice([1, 2, 8, 40])):
            at = rng.randrange(min(len(data), 2000) if rng.random() < 0.8 else len(data))
            data[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        path.write_bytes(data)
        assert examine(path).verdict in (0, 1, 2)
    for length in range(len(goods[0])):
        path.write_bytes(goods[0][:length])
        assert examine(path).verdict in (0, 1, 2)
