# SPDX-License-Identifier: MIT
"""The folders are ranked: each includes and calls those below it only. Each check is seen to fail.

Calls are the undefined symbols of the build's objects (nm), so what goes through a pointer is no call.
"""

import functools
import json
import re
import subprocess
from pathlib import Path

import pytest

from conftest import BUILD, ROOT

# part -> its folders, top to bottom
RANKS = {
    "allocator": ["replay", "fake", "api", "policy", "tcache", "deferred", "told", "block", "order", "trace", "core", "util"],
    "shim": ["hooks", "process", "pinned", "driver", "track", "framework", "state", "bind"],
}
# (file, the folder above that it needs) -> why; for all parts together
EXCEPTIONS = {
    ("shim/bind/names.c", "shim/hooks"): "a table of data: the address of every hook, as dlsym answers with it",
}
EXCEPTIONS_MAX = 4
# part/folder -> the headers that other folders may include
PUBLIC = {
    "allocator/replay": [],
    "allocator/fake": ["cost.h", "fake.h"],
    "allocator/api": ["heap.h", "heap_snapshot.h", "oom_report.h", "stats_text.h"],
    "allocator/policy": ["policy.h"],
    "allocator/tcache": ["fast.h", "tcache.h"],
    "allocator/deferred": ["deferred.h"],
    "allocator/told": ["fast.h", "told.h"],
    "allocator/block": ["block.h", "lease.h"],
    "allocator/order": ["order.h", "order_told.h"],
    "allocator/trace": ["format.h", "trace.h"],
    "allocator/core": ["backoff.h", "counts_file.h", "driver.h", "lock.h", "order_types.h", "stats.h", "thread.h", "types.h"],
    "allocator/util": ["arena.h", "list.h", "size_index.h", "slab.h", "ticks.h", "tree.h", "yield.h"],
    "shim/hooks": [],
    "shim/process": ["cachealloc.h", "lifecycle.h"],
    "shim/pinned": ["pinned.h"],
    "shim/driver": ["driver_table.h", "pool_calls.h", "pools.h", "told_pools.h", "vmm.h"],
    "shim/track": ["assumptions.h", "captures.h", "contexts.h", "events.h", "graphs.h", "stream_cache.h", "streams.h"],
    "shim/framework": ["framework.h", "take_over.h"],
    "shim/state": ["finished_only.h", "handle_table.h", "leaf_lock.h", "pitch_table.h", "process.h", "record_arena.h"],
    "shim/bind": ["cuda_abi.h", "hooks.def", "hooks.h", "libcuda.h", "links.h", "loader.h", "object.h", "registrations.def",
                  "registrations.h", "scope.h", "unseen_calls.h"],
}
RING_MAX = 8  # files that call each other in a circle
NAMED_ONCE = ["config", *RANKS]  # no two .c files of these have one name
NOT_NAMED_ONCE = "allocator/replay/"  # a tool of its own

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)
SOURCES = (".c", ".h", ".def", ".S")


def folder_of(path):
    """shim/bind/names.c -> shim/bind; None outside the ranked parts."""
    part, _, rest = path.partition("/")
    return f"{part}/{rest.split('/')[0]}" if part in RANKS and "/" in rest else None


def is_upward(source, target):
    """Neither inside one folder nor down the list of one part."""
    part = source.split("/")[0]
    if part != target.split("/")[0] or not folder_of(source) or not folder_of(target):
        return False
    order = [f"{part}/{name}" for name in RANKS[part]]
    return order.index(folder_of(target)) < order.index(folder_of(source))


def is_excepted(source, target):
    return (source, folder_of(target)) in EXCEPTIONS


def ranked_files(root):
    for part in RANKS:
        for path in sorted((root / part).rglob("*")):
            if path.suffix in SOURCES:
                yield path.relative_to(root).as_posix()


def includes(root):
    """(including, included) of ranked files."""
    for name in ranked_files(root):
        for target in INCLUDE.findall((root / name).read_text(encoding="utf-8")):
            if folder_of(target):
                yield name, target


def library_objects(root, build):
    """{source: object} of the ranked parts, as they go into the library (tests compile some once more)."""
    found = {}
    for command in json.loads((build / "compile_commands.json").read_text()):
        source = Path(build / command["file"]).resolve().relative_to(root).as_posix()
        part = source.split("/")[0]
        if part in RANKS and command["output"].startswith(part + "/"):
            found[source] = build / command["output"]
    return found


@functools.lru_cache(maxsize=None)
def symbols(path):
    """(defined, undefined) global symbols of an object."""
    defined, undefined = set(), set()
    done = subprocess.run(["nm", path], check=True, text=True, stdout=subprocess.PIPE, timeout=60)
    for line in done.stdout.splitlines():
        kind, name = line.split()[-2:]
        if kind in "Uwv":
            undefined.add(name)
        elif kind.isupper():
            defined.add(name)
    return defined, undefined


def calls(root, build):
    """(calling file, file that defines the symbol, symbol), inside each part."""
    read = {source: symbols(path) for source, path in library_objects(root, build).items()}
    owner = {(source.split("/")[0], name): source for source, (defined, _) in read.items() for name in defined}
    for source, (_, undefined) in sorted(read.items()):
        for name in sorted(undefined):
            target = owner.get((source.split("/")[0], name))
            if target:
                yield source, target, name


def upward_includes(root):
    return [f"{source} includes {target}" for source, target in includes(root)
            if is_upward(source, target) and not is_excepted(source, target)]


def upward_calls(root, build):
    return [f"{source} needs {name} of {target}" for source, target, name in calls(root, build)
            if is_upward(source, target) and not is_excepted(source, target)]


def private_includes(root):
    return [f"{source} includes {target}" for source, target in includes(root)
            if folder_of(source) != folder_of(target) and Path(target).name not in PUBLIC[folder_of(target)]]


def rings(root, build):
    """Largest sets of files each of which can be reached from each other one."""
    next_of = {}
    for source, target, _ in calls(root, build):
        if not is_excepted(source, target):
            next_of.setdefault(source, set()).add(target)

    def reached(source):
        seen, todo = set(), [source]
        while todo:
            new = next_of.get(todo.pop(), set()) - seen
            seen |= new
            todo += new
        return seen

    reach = {source: reached(source) for source in next_of}
    return {frozenset(other for other in reach[source] if source in reach.get(other, ())) for source in reach}


def named_twice(root):
    files = {}
    for part in NAMED_ONCE:
        for path in sorted((root / part).rglob("*.c")):
            if not path.relative_to(root).as_posix().startswith(NOT_NAMED_ONCE):
                files.setdefault(path.name, []).append(path.relative_to(root).as_posix())
    return [paths for paths in files.values() if len(paths) > 1]


def test_every_file_is_in_a_ranked_folder():
    assert not [name for name in ranked_files(ROOT) if (folder_of(name) or "").split("/")[-1] not in
                RANKS[name.split("/")[0]]]


def test_no_include_goes_up():
    assert not upward_includes(ROOT)


def test_no_call_goes_up(build):
    assert not upward_calls(ROOT, BUILD)


def test_every_object_was_looked_at(build):
    sources = {name for name in ranked_files(ROOT) if name.endswith(".c")}
    assert sources == {name for name in library_objects(ROOT, BUILD) if name.endswith(".c")}


def test_exceptions_are_few_and_needed(build):
    needed = {(source, folder_of(target)) for source, target, _ in calls(ROOT, BUILD) if is_upward(source, target)}
    needed |= {(source, folder_of(target)) for source, target in includes(ROOT) if is_upward(source, target)}
    assert len({source for source, _ in EXCEPTIONS}) <= EXCEPTIONS_MAX
    assert set(EXCEPTIONS) == needed


def test_other_folders_include_public_headers_only():
    assert not private_includes(ROOT)


def test_every_public_header_is_wanted_elsewhere():
    wanted = {target for source, target in includes(ROOT) if folder_of(source) != folder_of(target)}
    assert wanted == {f"{folder}/{header}" for folder, headers in PUBLIC.items() for header in headers}


def test_rings_are_small(build):
    assert not [sorted(ring) for ring in rings(ROOT, BUILD) if len(ring) > RING_MAX]


def test_no_two_files_have_one_name():
    assert not named_twice(ROOT)


# ---- each check is seen to fail, on a tree of a few lines

def plant(root, files):
    """Writes the files, compiles each .c, and says so in root/build/compile_commands.json."""
    commands = []
    for name, text in files.items():
        path, output = root / name, f"{name}.o"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        (root / "build" / output).parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".c":
            subprocess.run(["cc", "-c", f"-I{root}", "-o", root / "build" / output, path], check=True, timeout=60)
            commands.append({"file": f"../{name}", "output": output})
    (root / "build" / "compile_commands.json").write_text(json.dumps(commands))


UP = {"shim/hooks/h.h": "void h(void);\n", "shim/hooks/h.c": "void h(void) {}\n"}


def test_an_upward_include_is_found(tmp_path):
    plant(tmp_path, {**UP, "shim/track/t.c": '#include "shim/hooks/h.h"\n'})
    assert upward_includes(tmp_path) == ["shim/track/t.c includes shim/hooks/h.h"]


@pytest.mark.parametrize("text", ["void h(void); void t(void) { h(); }\n", "void h(void); void (*t)(void) = h;\n",
                                  "void h(void) __attribute__((weak)); void t(void) { h(); }\n"])
def test_an_upward_call_is_found(tmp_path, text):
    plant(tmp_path, {**UP, "shim/track/t.c": text})
    assert upward_calls(tmp_path, tmp_path / "build") == ["shim/track/t.c needs h of shim/hooks/h.c"]


def test_a_downward_call_is_none(tmp_path):
    plant(tmp_path, {"shim/bind/b.c": "void b(void) {}\n", "shim/track/t.c": "void b(void); void t(void) { b(); }\n"})
    assert not upward_calls(tmp_path, tmp_path / "build")


def test_a_private_header_is_found(tmp_path):
    plant(tmp_path, {"shim/bind/early.h": "", "shim/hooks/h.c": '#include "shim/bind/early.h"\n'})
    assert private_includes(tmp_path) == ["shim/hooks/h.c includes shim/bind/early.h"]


@pytest.mark.parametrize("n", [RING_MAX, RING_MAX + 1])
def test_a_ring_is_found(tmp_path, n):
    plant(tmp_path, {f"shim/track/f{i}.c": f"void f{(i + 1) % n}(void); void f{i}(void) {{ f{(i + 1) % n}(); }}\n"
                     for i in range(n)})
    assert {len(ring) for ring in rings(tmp_path, tmp_path / "build")} == {n}


def test_a_name_used_twice_is_found(tmp_path):
    plant(tmp_path, {"shim/track/a.c": "", "allocator/a.c": "", "allocator/replay/b.c": "", "config/b.c": ""})
    assert named_twice(tmp_path) == [["allocator/a.c", "shim/track/a.c"]]
