# SPDX-License-Identifier: MIT
"""Memory given to network cards and disks (rule 14, T13): settled where a library is given it, whichever way the
program came to the library's function; finished only from then on; and nothing is restricted by a library's presence.

The stand-in card reads and writes what it was given at moments of its own, and tells the race oracle.
"""

import json
import os
import re
import subprocess

import pytest

from conftest import BUILD, MUTANTS, ROOT, SIM, clean_env, run

QUICK_EVERY = 4  # conftest.py
HERE = BUILD / "tests" / "process" / "register"
PATHS = f"{SIM}:{HERE}"
PROGRAMS = ["register", "register_lazy", "register_now"]
CLOCKS = [{}, {"SIMCUDA_CLOCK": "manual"}]
SETTINGS = {
    "default": {},
    "no_slack": {"CACHEALLOC_CONF": "reuse_slack_mb:0"},
    "finished": {"CACHEALLOC_CONF": "reuse:finished,reuse_slack_mb:0"},
}


def cases(program):
    if not (HERE / program).exists():
        return ["(no build)"]
    listed = subprocess.run([str(HERE / program), "--list"], env=clean_env(LD_LIBRARY_PATH=PATHS), capture_output=True,
                            text=True)
    return listed.stdout.split()


#: what cannot be followed
RESTRICTED = {"two_copies"}
#: everything once, and by direct links what depends on them
ALL = [(PROGRAMS[0], case) for case in cases(PROGRAMS[0])]
ALL += [(program, case) for program in PROGRAMS[1:] for case in cases(program) if case.startswith(("direct", "road", "first"))]


def go(program, case, preload=True, **env):
    knobs = {"SIMCUDA_RACES": "abort", "SIMCUDA_DEADLOCK": "20000", "LD_LIBRARY_PATH": PATHS,
             "NIC_PLUGIN": HERE / "libnic_plugin.so", "NIC_PLUGIN_OLD": HERE / "libnic_plugin_old.so", **env}
    return run([HERE / program, case], preload=preload, timeout=60, **knobs)


def sound(done):
    assert done.returncode == 0 and not done.stderr, (done.returncode, done.stdout[-1000:], done.stderr[-3000:])
    return done


def device_after(tmp_path, *args, **env):
    (tmp_path / "stats.json").unlink(missing_ok=True)
    done = sound(go(*args, CACHEALLOC_STATS=tmp_path / "stats.json", **env))
    return json.loads((tmp_path / "stats.json").read_text())["devices"][0], done


@pytest.mark.parametrize("program, case", ALL)
def test_native(program, case):
    for clock in CLOCKS:
        sound(go(program, case, preload=False, **clock))


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("program, case", ALL)
def test_settled_and_nothing_is_restricted(tmp_path, program, case, setting):
    for clock in CLOCKS:
        device, _ = device_after(tmp_path, program, case, **clock, **SETTINGS[setting])
        assert device["finished_only_reasons"] == (["network_library"] if case in RESTRICTED else []), device
        (tmp_path / "stats.json").unlink()


@pytest.mark.parametrize("program, case", [(p, c) for p, c in ALL if c.startswith(("first", "road", "api", "direct"))
                                           and c != "direct_is_the_same"])
def test_settling_taken_out_is_caught(program, case):
    """The cases prove something: the card meets work that has not finished."""
    if not MUTANTS.exists():
        pytest.skip("no mutants in this build")
    done = go(program, case, CACHEALLOC_TEST_MUTANT="SETTLE_SKIPPED",
              CACHEALLOC_CONF="reuse_slack_mb:0", SIMCUDA_CLOCK="manual")
    assert done.returncode == -6 and "simcuda: race on" in done.stderr and "accessor" in done.stderr, done.stderr[-2000:]


@pytest.mark.parametrize("case", ["outlives_the_free_small", "outlives_the_free_large", "outlives_the_free_part",
                                  "outlives_the_free_two_streams", "outlives_the_free_flag_small",
                                  "outlives_the_free_flag_part", "outlives_the_free_flag_two_streams"])
def test_a_range_that_is_forgotten_is_caught(case):
    if not MUTANTS.exists():
        pytest.skip("no mutants in this build")
    done = go("register", case, CACHEALLOC_TEST_MUTANT="REGISTRATION_LOST",
              CACHEALLOC_CONF="reuse_slack_mb:0", SIMCUDA_CLOCK="manual")
    assert done.returncode == -6 and "simcuda: race on" in done.stderr and "accessor" in done.stderr, done.stderr[-2000:]


def test_presence_changes_nothing(tmp_path, pauses_unseen):
    device, _ = device_after(tmp_path, "register", "presence", SIMCUDA_CLOCK="manual", **pauses_unseen)
    assert device["taken_same_stream"] >= 300, device
    assert (device["order_marks"], device["settles"], device["host_syncs"], device["driver_alloc_calls"]) == (0, 0, 0, 1)


def test_plain_queries_settle_nothing(tmp_path, pauses_unseen):
    device, _ = device_after(tmp_path, "register", "plain_queries", **pauses_unseen)
    assert (device["settles"], device["order_marks"]) == (0, 0)


def test_what_lies_beside_a_range_is_reused_at_once(tmp_path):
    device, _ = device_after(tmp_path, "register", "beside_a_range", CACHEALLOC_CONF="reuse_slack_mb:0",
                             SIMCUDA_CLOCK="manual")
    assert device["taken_same_stream"] >= 20 and device["settles"] == 0, device


def test_missing_names_are_answered_as_natively():
    native, ours = (sound(go("register", "names_that_are_missing", preload=p)) for p in (False, True))
    assert ours.stdout == native.stdout and "undefined symbol: ibv_reg_mr" in native.stdout


@pytest.mark.parametrize("program, case", [("register_lazy", "direct_call"), ("register_now", "direct_call"),
                                           ("register_lazy", "direct"), ("register_now", "road_plugin")])
def test_a_profiler_that_wraps_the_function(tmp_path, program, case):
    done = go(program, case, LD_PRELOAD=HERE / "libnic_profiler.so", CACHEALLOC_STATS=tmp_path / "stats.json", NIC_PROFILED=1)
    assert done.returncode == 0 and done.stderr == "profiler: ibv_reg_mr\n", (done.returncode, done.stderr[-2000:])
    device = json.loads((tmp_path / "stats.json").read_text())["devices"][0]
    assert device["finished_only_reasons"] == [] and device["settles"] == 1


@pytest.mark.skipif("CACHEALLOC_TEST_PRELOAD_FIRST" in os.environ, reason="a sanitizer binds at once")
def test_both_ways_of_binding_are_there():
    for program, flag in (("register_lazy", False), ("register_now", True)):
        dynamic = subprocess.run(["readelf", "-dW", HERE / program], capture_output=True, text=True, check=True).stdout
        assert ("BIND_NOW" in dynamic or "NOW" in dynamic) == flag


def test_the_table_is_in_order():
    names = re.findall(r"^CA_REGISTRATION\((\w+),", (ROOT / "shim" / "bind" / "registrations.def").read_text(encoding="utf-8"), re.M)
    assert len(names) > 15 and names == sorted(names)


def test_inlined_registrations_are_a_reason(tmp_path):
    """The libibverbs of an old MLNX_OFED, whose ibv_exp_reg_mr nobody sees."""
    library = tmp_path / "libibverbs.so.1"
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", f"-Wl,-soname,{library.name}", "-o", library, "-xc", "-"],
                   input="int ibv_cmd_exp_reg_mr(void) { return 0; }", text=True, check=True)
    stats = tmp_path / "stats.json"
    done = go("register", "presence", LD_LIBRARY_PATH=f"{tmp_path}:{PATHS}", CACHEALLOC_STATS=stats, CACHEALLOC_LOG="info")
    said = [line for line in done.stderr.splitlines() if "only finished memory" in line]
    assert done.returncode == 0 and len(said) == 1 and said[0].endswith("a network or storage library is used in a way not followed")
    assert json.loads(stats.read_text())["devices"][0]["finished_only_reasons"] == ["network_library"]


def test_page_locked_memory_of_a_card_is_not_kept(tmp_path):
    for conf, frees in (("pinned:cache", 1), ("pinned:driver", 2)):
        path = tmp_path / f"{frees}.json"
        sound(go("register", "page_locked", CACHEALLOC_CONF=conf, SIMCUDA_STATS=path))
        assert json.loads(path.read_text())["calls"]["cuMemFreeHost"] == frees
