# SPDX-License-Identifier: MIT
"""Virtual memory management of the simulated driver, as a program calls it. tests/unit/sim/test_vmm.c has the rest."""

import json

import pytest

from test_sim import (INVALID_DEVICE, INVALID_VALUE, NOT_FOUND, NOT_INITIALIZED, NOT_SUPPORTED, OUT_OF_MEMORY, SUCCESS,
                      probe)

READWRITE, FD = 3, 1


def test_life(tmp_path):
    stats = tmp_path / "s.json"
    seen = probe("vmm", "life", SIMCUDA_RACES="abort", SIMCUDA_STATS=stats)
    assert {key: seen.one(key) for key in seen if key not in ("rc", "init", "ctx")} == {
        "early": NOT_INITIALIZED, "supported": 1, "granularity": 1, "access": READWRITE, "props": 1, "same": 1,
        "word": 5, "mapping": 1, "no_mapping": NOT_FOUND, "range": 1, "context": 0, "ipc": 0, "types": FD,
        "free": INVALID_VALUE, "released": INVALID_VALUE, "mapped_still": INVALID_VALUE}
    said = json.loads(stats.read_text())
    assert said["peak_bytes"] == [4 << 20] and said["used_bytes"] == [0], "capacity is counted in the device's"


def test_refusals():
    seen = probe("vmm", "refusals")
    invalid = {"odd", "flags", "nowhere", "type", "no_handle", "offset", "unreserved", "twice", "gap", "access_nobody",
               "export_type", "import", "unmapped"}
    assert {key: seen.one(key) for key in seen if key not in ("rc", "init", "ctx")} == {
        **dict.fromkeys(invalid, INVALID_VALUE), "device": INVALID_DEVICE, "access_device": INVALID_DEVICE,
        "host": NOT_SUPPORTED, "fabric": NOT_SUPPORTED, "much": OUT_OF_MEMORY}
    assert seen.err.count("is not built") == 2


@pytest.mark.parametrize("clock", ["real", "manual"])
@pytest.mark.parametrize("how,races", [("right", 0), ("alias-unordered", 1), ("unmapped-early", 1)])
def test_order(how, races, clock, tmp_path):
    stats = tmp_path / "s.json"
    seen = probe("vmm", how, SIMCUDA_RACES="report", SIMCUDA_CLOCK=clock, SIMCUDA_STATS=stats)
    assert json.loads(stats.read_text())["races"] == races
    assert seen.err.count("simcuda: race on") == races
    assert ("cuMemUnmap" in seen.err) == (how == "unmapped-early")
    if not races:
        assert seen.one("end") == SUCCESS


def test_a_device_without():
    seen = probe("vmm", "none", SIMCUDA_VMM=0)
    assert {key: seen.one(key) for key in seen if key not in ("rc", "init", "ctx")} == {
        "supported": 0, "granularity": NOT_SUPPORTED, "create": NOT_SUPPORTED, "reserve": NOT_SUPPORTED}


def test_another_process(tmp_path):
    seen = probe("vmm", "share", SIMCUDA_IPC=tmp_path)
    assert (seen.one("imported"), seen.one("theirs"), seen.one("ours"), seen.one("child")) == (SUCCESS, 55, 77, 0)


def test_another_process_needs_a_folder():
    assert probe("vmm", "share").one("imported") == NOT_SUPPORTED
