# SPDX-License-Identifier: MIT
"""A function of a driver newer than the library that a program or a library is linked to: a call of it restricts reuse to
finished memory, as it does if the function was looked up, and the link alone restricts nothing."""

import json
import os
import subprocess

import pytest

from conftest import BUILD, SIM, run

HERE = BUILD / "tests" / "process" / "order"
PROGRAMS = ["order_linked_lazy", "order_linked_now"]
CALLS = ["call", "call_by_table", "call_by_copy", "call_by_plugin_lazy", "call_by_plugin_now"]
PLUGIN = """
int cuFutureFill(unsigned long long dst, unsigned value, unsigned long n_words, void *stream);
int plugin_fill(unsigned long long dst, unsigned value, unsigned long n_words, void *stream)
{ int code = cuFutureFill(dst, value, n_words, stream); return code; }
"""
WRAPPER = """
#include <dlfcn.h>
int cuFutureFill(unsigned long long dst, unsigned value, unsigned long n_words, void *stream)
{ return ((int (*)(unsigned long long, unsigned, unsigned long, void *))dlsym(RTLD_NEXT, "cuFutureFill"))(dst, value, n_words, stream); }
"""


def library(folder, name, source, *arguments):
    path = folder / name
    subprocess.run([os.environ.get("CC", "cc"), "-D_GNU_SOURCE", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", path, "-xc", "-",
                    *arguments], input=source, text=True, check=True)
    return path


@pytest.fixture(name="plugin", scope="module", params=["-z,lazy", "-z,now,-z,relro", "-z,lazy,--hash-style=sysv"])
def _plugin(request, tmp_path_factory):
    return library(tmp_path_factory.mktemp("plugin"), "libplugin.so", PLUGIN, f"-L{SIM}", "-lcuda", f"-Wl,{request.param}")


def device_after(tmp_path, program, case, **env):
    stats = tmp_path / "stats.json"
    stats.unlink(missing_ok=True)
    done = run([HERE / program, case], CACHEALLOC_LOG="info", SIMCUDA_RACES="abort", SIMCUDA_DEADLOCK=20000, CACHEALLOC_STATS=stats,
               **env)
    assert done.returncode == 0, (done.returncode, done.stderr[-3000:])
    said = [line for line in done.stderr.splitlines() if "only finished memory" in line]
    return json.loads(stats.read_text())["devices"][0], said


@pytest.mark.parametrize("case", [*CALLS, "plugin_beside", "no_call"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_native(plugin, program, case):
    run([HERE / program, case], preload=False, check=0, ORDER_PLUGIN=plugin, SIMCUDA_RACES="abort")


@pytest.mark.parametrize("conf", ["reuse_slack_mb:0", "reuse_slack_mb:256"])
@pytest.mark.parametrize("clock", ["real", "manual"])
@pytest.mark.parametrize("case", CALLS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_call_is_noticed(tmp_path, plugin, program, case, clock, conf):
    device, said = device_after(tmp_path, program, case, ORDER_PLUGIN=plugin, SIMCUDA_CLOCK=clock, CACHEALLOC_CONF=conf)
    assert device["finished_only_reasons"] == ["unseen_call"] and device["unseen_calls"] == 3, device
    assert len(said) == 1 and said[0].endswith("from now on: an unknown driver function was called"), said


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_link_alone_restricts_nothing(tmp_path, program):
    device, said = device_after(tmp_path, program, "no_call")
    assert not device["finished_only_reasons"] and device["unseen_calls"] == 0 and not said, (device, said)


def test_calls_of_the_drivers_own_libraries_are_the_drivers(tmp_path):
    for name, reasons in ("libplugin.so.1", ["unseen_call"]), ("libnvidia-plugin.so.1", []), ("libcudadebugger.so.1", []):
        path = library(tmp_path, name, PLUGIN, f"-L{SIM}", "-lcuda")
        device, said = device_after(tmp_path, PROGRAMS[0], "plugin_beside", ORDER_PLUGIN=path)
        assert device["finished_only_reasons"] == reasons and len(said) == len(reasons), (name, device, said)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_wrapper_is_called_and_its_look_up_is_noticed(tmp_path, program):
    wrapper = library(tmp_path, "libwrapper.so", WRAPPER, "-ldl")
    for case, lookups in ("no_call", 0), ("call", 3):
        device, _ = device_after(tmp_path, program, case, LD_PRELOAD=wrapper, ORDER_WRAPPED=1)
        assert device["unseen_calls"] == lookups, (case, device)
