# SPDX-License-Identifier: MIT
"""`cachealloc stats`: tables, merged ranks, and text that Prometheus' own parser reads."""

import json
import os
import signal
import subprocess
import sys

import pytest
from command import COMMAND, ROOT, cli, compiler, environment, stub_build  # noqa: F401 (fixtures)
from schema import check

SCHEMA = json.loads((ROOT / "scripts" / "schema" / "stats.schema.json").read_text())
NAMES = SCHEMA["properties"]["devices"]["items"]["required"]


def gauge(current):
    return {"current": current, "peak": 2 * current, "total": 3 * current}


def report(rank, **extra):
    device = {name: gauge(1 << 20) if name.endswith("_bytes") and name != "largest_free_block_bytes" else 10 + rank
              for name in NAMES if name != "index"}
    data = {"format": "stats", "format_version": 1, "pid": 100 + rank, "rank": rank, "host": "node1", "program": 'a"b\\c',
            "elapsed_ns": 1500000000, "devices": [{"index": 0, "name": "GPU", "uuid": None, **device}], **extra}
    check(data, SCHEMA)
    return data


@pytest.fixture
def ranks(tmp_path):
    paths = []
    for rank in range(8):
        paths.append(tmp_path / f"s.{rank}.json")
        paths[-1].write_text(json.dumps(report(rank)) + "\n")
    return paths


def test_a_table_of_the_last_whole_object(cli, tmp_path):  # noqa: F811
    path = tmp_path / "s.json"
    older, newer = report(1), report(3)
    path.write_text(json.dumps(older) + "\n" + json.dumps(newer) + "\n" + json.dumps(newer)[:200])
    done = cli("stats", path)
    assert done.returncode == 0 and done.stderr == ""
    assert "pid 103  rank 3  node1" in done.stdout and "13 alloc, 13 free; 100.00% served from cache" in done.stdout
    assert "2.00 MiB" in done.stdout and json.loads(cli("stats", "--json", path).stdout) == newer


def test_what_may_still_be_in_use_has_a_row(cli, tmp_path):  # noqa: F811
    path = tmp_path / "s.json"
    data = report(0)
    data["devices"][0].update(allocated_bytes=gauge(1 << 20), active_bytes=gauge(3 << 20))
    path.write_text(json.dumps(data))
    assert "\n  freed, may still be in use       2.00 MiB\n" in cli("stats", path).stdout
    data["devices"][0].update(active_bytes=gauge(1 << 20))
    path.write_text(json.dumps(data))
    assert "in use" not in cli("stats", path).stdout


def test_stream_ordered_memory_has_a_row(cli, tmp_path):  # noqa: F811
    path = tmp_path / "s.json"
    data = report(0)
    data["devices"][0].update(async_alloc_calls=1000, async_free_calls=990, async_cache_hits=995)
    path.write_text(json.dumps(data))
    assert "async   1000 alloc, 990 free; 99.50% served from cache" in cli("stats", path).stdout
    data["devices"][0].update(async_alloc_calls=0)
    path.write_text(json.dumps(data))
    assert "async" not in cli("stats", path).stdout


def test_merged_ranks_are_added_up(cli, ranks):  # noqa: F811
    data = json.loads(cli("stats", "--merge", "--json", *ranks).stdout)
    device, = data["devices"]
    assert data["processes"] == 8 and data["ranks"] == list(range(8)) and data["hosts"] == ["node1"]
    assert device["index"] == 0 and device["alloc_calls"] == sum(range(10, 18))
    assert device["reserved_bytes"] == gauge(8 << 20)
    assert "8 processes, 8 ranks on 1 host\n" in cli("stats", "--merge", *ranks).stdout
    assert "1 process, 1 rank on 1 host\n" in cli("stats", "--merge", ranks[0]).stdout


def test_prometheus_reads_it(cli, ranks, tmp_path):  # noqa: F811
    parser = pytest.importorskip("prometheus_client.parser")
    out = tmp_path / "c.prom"
    out.write_text("older")
    assert cli("stats", "--prometheus", out, *ranks).returncode == 0
    families = {family.name: family for family in parser.text_string_to_metric_families(out.read_text())}
    calls = families["cachealloc_alloc_calls"]
    assert calls.type == "counter" and len(calls.samples) == 8
    assert [sample.value for sample in calls.samples] == list(range(10, 18))
    assert calls.samples[3].labels == {"host": "node1", "rank": "3", "pid": "103", "program": 'a"b\\c', "device": "0"}
    assert calls.documentation == "successful allocations (cuMemAlloc, cuMemAllocPitch)"
    assert families["cachealloc_reserved_bytes_peak"].documentation == "peak: held from the driver"
    assert families["cachealloc_reserved_bytes"].type == "gauge" and "cachealloc_reserved_bytes_peak" in families
    assert families["cachealloc_reserved_bytes_increases"].type == "counter"
    assert families["cachealloc_driver_seconds"].samples[0].value == pytest.approx(1e-8)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["c.prom", *(path.name for path in ranks)])
    assert cli("stats", "--prometheus", "-", *ranks).stdout == out.read_text()


def test_one_bad_file_does_not_cost_the_others_metrics(cli, ranks, tmp_path):  # noqa: F811
    out = tmp_path / "c.prom"
    out.write_text("older")
    done = cli("stats", "--prometheus", out, tmp_path / "none.json")
    assert done.returncode == 1 and out.read_text() == "older"
    ranks[3].write_text("")
    for where in (out, "-"):
        done = cli("stats", "--prometheus", where, *ranks)
        text = done.stdout or out.read_text()
        assert done.returncode == 1 and "s.3.json: no statistics in it" in done.stderr and done.stderr.count("\n") == 1
        assert 'rank="2"' in text and 'rank="4"' in text and 'rank="3"' not in text
    done = cli("stats", "--merge", *ranks)
    assert done.returncode == 1 and not done.stdout


def test_statistics_are_no_file_for_metrics(cli, ranks, tmp_path):  # noqa: F811
    """The output's name was forgotten, so that it is the first rank's."""
    plain, before = tmp_path / "s.plain", ranks[0].read_bytes()
    plain.write_bytes(before)
    for first in (ranks[0], tmp_path / "new.json", plain):
        done = cli("stats", "--prometheus", first, *ranks[1:])
        assert done.returncode == 2 and f"{first.name}: statistics are not overwritten" in done.stderr, done.stderr
    assert ranks[0].read_bytes() == plain.read_bytes() == before and not (tmp_path / "new.json").exists()


def test_a_failed_write_leaves_the_old_file(cli, ranks, tmp_path):  # noqa: F811
    out = tmp_path / "c.prom"
    out.write_text("older")
    done = subprocess.run(["sh", "-c", f"ulimit -f 0; exec {sys.executable} {COMMAND} stats --prometheus {out} {ranks[0]}"], text=True,
                          env=environment(), stderr=subprocess.PIPE, timeout=60, check=False)
    assert done.returncode and out.read_text() == "older"


@pytest.mark.parametrize("words, status, text", [
    ((), 2, "no file"), (("--watch=x", "f"), 2, "expected seconds"), (("--merge", "--prometheus", "o", "f"), 2, "neither"),
    (("/dev/null",), 1, "no statistics"),
])
def test_bad_input(cli, words, status, text):  # noqa: F811
    done = cli("stats", *words)
    assert done.returncode == status and text in done.stderr and done.stdout == ""


def test_watch_shows_what_is_new(ranks):
    process = subprocess.Popen([sys.executable, COMMAND, "stats", "--watch=0.1s", "--json", ranks[0]], env=environment(),
                               stdout=subprocess.PIPE, text=True)
    try:
        assert json.loads(process.stdout.readline())["pid"] == 100
        fresh = ranks[0].with_suffix(".new")
        fresh.write_text(json.dumps(report(0, pid=7)))
        os.replace(fresh, ranks[0])
        assert any(json.loads(line)["pid"] == 7 for line in process.stdout)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
    finally:
        process.kill()
        process.communicate()
