# SPDX-License-Identifier: MIT
"""Libraries that keep the driver's functions in exported variables with the driver's names (slangpy, cuew, NVIDIA's
cuda_drvapi_dynlink.c): what they write goes into their variables, and the functions there are ours."""

import json

import pytest

from conftest import SIM, run
from loader_fixtures import compile_c
from loader_fixtures import fixtures  # noqa: F401 (a pytest fixture)

QUICK_EVERY = 4  # conftest.py
LINKS = {"lazy": ["-Wl,-z,lazy,-z,norelro"], "relro": ["-Wl,-z,now,-z,relro"]}
HOLDERS = {"constructor": "libearly.so", "loads": "libholder.so"}


@pytest.fixture(scope="session", params=sorted(LINKS))
def folder(request, fixtures, tmp_path_factory):
    place = tmp_path_factory.mktemp(f"variables-{request.param}")
    shared = ["-O2", "-shared", *LINKS[request.param]]
    here = [f"-L{place}", "-Wl,--no-as-needed", f"-Wl,-rpath,{place}"]
    compile_c(place / "libcaller.so", "variables.c", *shared, "-DKIND_CALLER", "-fno-plt", "-Wl,--no-as-needed",
              str(fixtures / "driver" / "libcuda.so.1"))
    for case, name in HOLDERS.items():
        early = ["-DEARLY"] if case == "constructor" else []
        compile_c(place / name, "variables.c", *shared, "-DKIND_HOLDER", *early)
        link = [*here, f"-l{name[3:-3]}"]
        compile_c(place / f"libreader_{case}.so", "variables.c", *shared, "-DKIND_READER", *link)
        compile_c(place / f"linked_{case}", "variables_probe.c", "-DLINKED", *here, f"-lreader_{case}", *link[-1:])
    compile_c(place / "libsecond.so", "variables.c", *shared, "-DKIND_HOLDER")
    compile_c(place / "liblate.so", "variables.c", *shared, "-DKIND_HOLDER", "-DEARLY", "-DLATE")
    compile_c(place / "libreader_late.so", "variables.c", *shared, "-DKIND_READER", *here, "-llate")
    compile_c(place / "opened", "variables_probe.c")
    # libraries that have no name of the holder's own, in a folder, by its path; and of each other only by who needs them
    compile_c(place / "libbare.so", "variables.c", *shared, "-DKIND_READER")
    compile_c(place / "libmiddle.so", "variables.c", *shared, "-DKIND_NOTHING", *here, "-lholder")
    compile_c(place / "libreader_middle.so", "variables.c", *shared, "-DKIND_READER", *here, "-lmiddle",
              "-Wl,--unresolved-symbols=ignore-all")
    compile_c(place / "libreader_beside.so", "variables.c", *shared, "-DKIND_NOTHING", *here, "-lbare", "-lholder")
    compile_c(place / "libreader_path.so", "variables.c", *shared, "-DKIND_READER", "-Wl,--no-as-needed",
              str(place / "libholder.so"))
    compile_c(place / "libreader_root.so", "variables.c", *shared, "-DKIND_HOLDER", *here, "-lbare")
    compile_c(place / "libwrapper.so", "variables.c", "-O2", "-shared", "-DKIND_WRAPPER")
    return place


def probe(folder, driver, case, program="opened", more=(), **env):
    late = case == "constructor" and program == "opened"
    holder = "liblate.so" if late else HOLDERS.get(case, "libholder.so")
    reader = f"libreader_{'late' if late else 'loads' if case == 'turns' else case}.so"
    done = run([folder / program, case, holder, reader, *more], LD_LIBRARY_PATH=f"{folder}:{driver}", **env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def program_of(case, how):
    return f"linked_{case}" if how == "linked" else "opened"


both = pytest.mark.parametrize("how", ["linked", "opened"])
each = pytest.mark.parametrize("case", sorted(HOLDERS))


@pytest.mark.loader
@both
@each
def test_disabled(folder, fixtures, case, how):
    probe(folder, fixtures / "driver", case, program_of(case, how), CACHEALLOC_DISABLE=1)


@pytest.mark.loader
@both
@each
def test_natively(folder, fixtures, case, how):
    """The cases hold without us: they test what they should."""
    probe(folder, fixtures / "driver", case, program_of(case, how), preload=False)


@pytest.mark.loader
@pytest.mark.parametrize("preload", [True, False])
@pytest.mark.parametrize("how", ["middle", "beside", "path", "root"])
def test_related(folder, fixtures, how, preload):
    """The library with the variables is found as the loader finds it: among all that was opened together."""
    env = {"CACHEALLOC_DISABLE": 1} if preload else {}
    holder, reader = "libreader_root.so" if how == "root" else "libholder.so", f"libreader_{how}.so"
    done = run([folder / "opened", "loads", holder, reader], LD_LIBRARY_PATH=f"{folder}:{fixtures / 'driver'}",
               preload=preload, **env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.loader
@pytest.mark.parametrize("preload", [True, False])
def test_opened_in_turns(folder, fixtures, preload):
    env = {"CACHEALLOC_DISABLE": 1} if preload else {}
    probe(folder, fixtures / "driver", "turns", preload=preload, **env)


@pytest.mark.loader
@pytest.mark.parametrize("preload", [True, False])
def test_asked_within_dlopen(folder, fixtures, preload):
    """By a wrapper of malloc that calls dlsym each time."""
    env = {"CACHEALLOC_DISABLE": 1} if preload else {}
    done = run([folder / "opened", "loads", "libholder.so", "libreader_loads.so"], preload=preload,
               LD_PRELOAD=folder / "libwrapper.so", LD_LIBRARY_PATH=f"{folder}:{fixtures / 'driver'}", **env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.loader
@pytest.mark.parametrize("preload", [True, False])
@pytest.mark.parametrize("case,library", [("two", "libsecond.so"), ("caller", "libcaller.so")])
def test_others(folder, fixtures, case, library, preload):
    env = {"CACHEALLOC_DISABLE": 1} if preload else {}
    probe(folder, fixtures / "driver", case, more=[library], preload=preload, **env)


@both
@each
@pytest.mark.parametrize("disable", [{}, {"CACHEALLOC_DISABLE": "count"}], ids=["cached", "count"])
def test_served(folder, tmp_path, case, how, disable):
    stats = tmp_path / "stats.json"
    probe(folder, SIM, case, program_of(case, how), CACHEALLOC_STATS=stats, **disable)
    device = json.loads(stats.read_text())["devices"][0]
    assert (device["alloc_calls"], device["driver_alloc_calls"]) == (3, 3 if disable else 1)
