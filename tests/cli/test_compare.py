# SPDX-License-Identifier: MIT
"""`cachealloc compare` with a stand-in library whose figures are known."""

import json
import os
import re

import pytest
from conftest import BUILD, LIBRARY, SIM
from command import ROOT, cli, compiler, left, script, stub_build  # noqa: F401  (fixtures)
from schema import check

QUICK_EVERY = 4  # conftest.py

SCHEMA = json.loads((ROOT / "scripts" / "schema" / "compare.schema.json").read_text())
STATS_SCHEMA = json.loads((ROOT / "scripts" / "schema" / "stats.schema.json").read_text())


def load(path):
    data = json.loads(path.read_text())
    check(data, SCHEMA)
    return data


def test_result_table_and_json(cli, tmp_path):
    out = tmp_path / "out.json"
    done = cli("compare", "-r", "5", "--seed", "7", "--json", out, "--", "true", STUB_SLEEP_A_US=400000)  # far above what a busy machine adds
    assert done.returncode == 0, done.stderr
    data = load(out)
    a, b = data["arms"]
    assert (a["driver_calls"], b["driver_calls"]) == (1990, 5)
    assert (a["driver_ns"], b["driver_ns"]) == (5000000, 20000)
    assert (a["peak_reserved_bytes"], b["peak_reserved_bytes"]) == (100 << 20, 110 << 20)
    assert data["pairs_done"] == 5 and len(data["runs"]) == 10 and data["seed"] == 7
    assert data["simulated"] is False
    assert re.search(r"^A +stock, counted +\S+ ± \S+ m?s +100\.0 MiB +1 990 +5 ms$", done.stdout, re.M)
    assert re.search(r"^B +cachealloc +.* 110\.0 MiB +5 +20 us$", done.stdout, re.M)
    assert re.search(r"^B is \S+ times faster than A \(95% CI \S+ to \S+, 5 pairs, interleaved\)$", done.stdout, re.M)
    assert "peak memory +10.0%, driver calls 1 990 -> 5" in done.stdout
    assert "seed 7" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_order_is_abba_and_the_seed_fixes_the_environment_size(cli, tmp_path):
    paddings = []
    for name in ("one.json", "two.json"):
        cli("compare", "-r", "4", "--seed", "42", "--json", tmp_path / name, "true")
        runs = load(tmp_path / name)["runs"]
        assert "".join(run["arm"] for run in runs) == "ABBAABBA"
        paddings.append([run["padding_bytes"] for run in runs])
    assert paddings[0] == paddings[1] and len(set(paddings[0])) > 4


def test_the_environment_of_each_arm(cli, script, tmp_path):
    seen = tmp_path / "seen"
    program = script(f'echo "$CACHEALLOC_DISABLE|$CACHEALLOC_CONF|$CACHEALLOC_STATS_INTERVAL|${{#COMPARE_PADDING}}"'
                     f' >> {seen}')
    cli("compare", "-r", "1", program, CACHEALLOC_CONF="k:0", CACHEALLOC_DISABLE="1", CACHEALLOC_STATS_INTERVAL="1s")
    lines = [line.split("|") for line in seen.read_text().splitlines()]
    assert [line[:3] for line in lines] == [["count", "k:0", ""], ["", "k:0", ""]]
    seen.unlink()
    cli("compare", "-r", "1", "--conf-a", "k:1", "--conf-b", "k:2", "--conf-b", "l:3", program)
    lines = [line.split("|") for line in seen.read_text().splitlines()]
    assert [line[:2] for line in lines] == [["", "k:1"], ["", "k:2,l:3"]]


def test_warmup_pairs_are_run_but_not_counted(cli, script, tmp_path):
    program = script(f"echo run >> {tmp_path}/runs")
    out = tmp_path / "out.json"
    cli("compare", "-r", "2", "--warmup", "3", "--json", out, program)
    assert len((tmp_path / "runs").read_text().split()) == 10
    assert len(load(out)["runs"]) == 4


def test_a_failing_program_stops_it_with_2(cli, script):
    done = cli("compare", "-r", "2", script("echo its last words >&2; exit 5"))
    assert done.returncode == 2
    assert "exited with 5" in done.stderr and "under A" in done.stderr and "its last words" in done.stderr
    done = cli("compare", "-r", "2", script("kill -9 $$"))
    assert done.returncode == 2 and "died by SIGKILL" in done.stderr


def test_failure_under_b_only_is_told_as_such(cli, script):
    done = cli("compare", "-r", "2", script('test -n "$CACHEALLOC_DISABLE"'))
    assert done.returncode == 2 and "under B" in done.stderr


@pytest.mark.parametrize("option", ["--conf-a", "--conf-b"])
def test_bad_keys_are_refused_before_the_first_run(cli, script, tmp_path, option):
    if not LIBRARY.is_file() or "CACHEALLOC_TEST_SANITIZER" in os.environ:
        pytest.skip("the library cannot be asked")
    done = cli("compare", "-r", "1", "--library", LIBRARY, option, "reuse:never", script(f"touch {tmp_path}/started"))
    assert done.returncode == 2 and "reuse: 'never' is refused" in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "started").exists()


NO_TIME = re.compile(r"faster|slower|no difference|95% CI|one pair")


def test_runs_that_failed_give_no_time_and_lead_the_verdict(cli, script, tmp_path):
    """A dies at once of out of memory, B works: that B took longer says nothing."""
    out = tmp_path / "out.json"
    program = script('test -z "$CACHEALLOC_DISABLE" && exec sleep 0.05; echo "CUDA error: out of memory" >&2; exit 1')
    done = cli("compare", "-r", "3", "--ignore-failure", "--json", out, program)
    assert done.returncode == 0, done.stderr
    assert ("A ran out of memory in 3 of 3 runs (exit status 1), B in none: that may be chance (exact test, p = 0.1); "
            "no time is compared" in done.stdout.splitlines())
    assert not NO_TIME.search(done.stdout + done.stderr)
    data = load(out)
    a, b = data["arms"]
    assert (a["runs"], a["failed_runs"], b["runs"], b["failed_runs"]) == (3, 3, 3, 0)
    assert a["time_mean_ns"] is None and a["driver_calls"] is None and b["time_mean_ns"] > 0
    assert data["time_ratio"] == {"pairs": 0, "estimate_ppm": None, "low_ppm": None, "high_ppm": None}
    assert {run["exit_code"] for run in data["runs"]} == {0, 1}


def test_when_both_fail_both_are_counted(cli, script):
    program = script('test -n "$CACHEALLOC_DISABLE" && kill -9 $$; exit 5')
    done = cli("compare", "-r", "2", "--ignore-failure", program, STUB_SILENT=1)
    assert done.returncode == 0
    assert "A failed in 2 of 2 runs (SIGKILL), B failed in 2 of 2 runs (exit status 5); no time is compared" in done.stdout
    assert "intercepted" not in done.stderr  # they may have failed before the first CUDA call
    assert cli("compare", "-r", "2", "--ignore-failure", "--fail-above", "5", script("exit 5")).returncode == 3


def test_times_are_compared_where_both_worked(cli, script, tmp_path):
    """B fails in its second and third run, which belong to pairs that are then left out."""
    out = tmp_path / "out.json"
    program = script(f'test -n "$CACHEALLOC_DISABLE" && exit 0; echo x >> {tmp_path}/n; n=$(wc -l < {tmp_path}/n); '
                     'test $n != 2 && test $n != 3')
    done = cli("compare", "-r", "5", "--ignore-failure", "--json", out, program)
    assert done.returncode == 0
    assert ("B failed in 2 of 5 runs (exit status 1), A in none: that may be chance (exact test, p = 0.44); of the pairs "
            "in which neither failed: " in done.stdout)
    assert "3 pairs" in done.stdout
    data = load(out)
    assert data["time_ratio"]["pairs"] == 3 and data["pairs_done"] == 5
    assert [arm["failed_runs"] for arm in data["arms"]] == [0, 2]


def test_different_ends_are_told_apart(cli, script, tmp_path):
    program = script(f'test -z "$CACHEALLOC_DISABLE" && exit 0; echo x >> {tmp_path}/n; exit $(wc -l < {tmp_path}/n)')
    done = cli("compare", "-r", "2", "--ignore-failure", program)
    assert "A failed in 2 of 2 runs (1 with exit status 1; 1 with exit status 2), B in none" in done.stdout


def test_labels_that_begin_alike_are_told_apart_in_the_table(cli):
    keys = "large_segment_size_mb:32,reuse_slack_mb:"
    done = cli("compare", "-r", "1", "--conf-a", keys + "0", "--conf-b", keys + "64", "true")
    labels = re.findall(r"^[AB] +(\S.*?)  ", done.stdout, re.M)
    assert labels == ["...reuse_slack_mb:0", "...reuse_slack_mb:64"], done.stdout


@pytest.mark.parametrize("first, second", [
    ("cachealloc " + "k" * 60 + ":1", "cachealloc " + "k" * 60 + ":2"),
    ("cachealloc key:[" + "1:2," * 30 + "4:8]", "cachealloc key:[" + "1:2," * 30 + "4:16]"),
    ("cachealloc " + "k" * 60, "cachealloc " + "k" * 61), ("cachealloc a:1," + "b" * 40, "cachealloc a:2," + "b" * 40),
    ("stock, counted", "cachealloc " + "k" * 60),
])
def test_cut_labels_differ(first, second):
    from cachealloc_cli.layout import LABEL_WIDTH, short_labels
    cut = short_labels(first, second)
    assert cut[0] != cut[1] and max(map(len, cut)) <= LABEL_WIDTH


def test_results_are_flushed_after_every_pair(cli, script, tmp_path):
    """The third pair fails; the two before it are in the file."""
    program = script(f'echo x >> {tmp_path}/n; test $(wc -l < {tmp_path}/n) -lt 5')
    out = tmp_path / "out.json"
    done = cli("compare", "-r", "4", "--json", out, program)
    assert done.returncode == 2
    assert load(out)["pairs_done"] == 2
    assert "A failed in 0" not in done.stdout and " failed in 1 of 3 runs (exit status 1)" in done.stdout
    assert done.stdout.count("B is") + done.stdout.count("no difference") == 1


def test_nothing_intercepted_is_said_plainly(cli):
    done = cli("compare", "-r", "2", "true", STUB_SILENT=1)
    assert done.returncode == 0
    assert "nothing was intercepted" in done.stderr and "cachealloc doctor true" in done.stderr


def test_work_that_differs_is_noticed(cli):
    done = cli("compare", "-r", "1", "true", STUB_ALLOCS=7, STUB_ALLOCS_A=9)
    assert "9 times under A and 7 times under B" in done.stderr


def test_no_difference_is_said_so(cli, tmp_path):
    """Two arms that are the same: the interval nearly always holds 1; three tries make failing absurd."""
    for _ in range(3):
        done = cli("compare", "-r", "6", "--conf-a", "x:1", "true")
        if "no difference shown: 95% CI" in done.stdout:
            return
    pytest.fail(done.stdout)


@pytest.mark.parametrize("sleeps, limit, status", [
    ({"STUB_SLEEP_B_US": 300000}, "5", 1),
    ({"STUB_SLEEP_A_US": 300000}, "5%", 0),
])
def test_fail_above(cli, sleeps, limit, status):
    """A machine that is busy with something else may make three pairs too few to tell: three tries."""
    for _ in range(3):
        done = cli("compare", "-r", "3", "--fail-above", limit, "true", **sleeps)
        if done.returncode == status:
            return
    pytest.fail(f"{done.returncode}: {done.stderr}")


def test_fail_above_is_inconclusive_with_one_pair(cli):
    assert cli("compare", "-r", "1", "--fail-above", "5", "true").returncode == 3


def test_gate_decides_by_the_bounds():
    from cachealloc_cli.compare import gate

    def with_bounds(low, high):
        return {"estimate_ppm": 1, "low_ppm": round(1e6 * low), "high_ppm": round(1e6 * high)}
    assert gate(5, with_bounds(0.80, 0.90)) == 1   # B 11 % to 25 % slower
    assert gate(5, with_bounds(0.80, 0.99)) == 3   # 1 % to 25 %
    assert gate(5, with_bounds(0.98, 1.10)) == 0   # at most 2 %
    assert gate(None, with_bounds(0.1, 0.2)) == 0


def test_on_the_simulator_exact_figures_lead(cli, tmp_path):
    out = tmp_path / "out.json"
    done = cli("compare", "-r", "2", "--json", out, "true", STUB_SIMULATOR=1, SIMCUDA_LATENCY="published")
    assert done.stdout.startswith("simulated times, source: SIMCUDA_LATENCY=published")
    assert "driver calls 1 000 -> 3" in done.stdout
    header = done.stdout.splitlines()[1]
    assert header.index("driver calls") < header.index("peak reserved") < header.index("time")
    data = load(out)
    assert data["simulated"] is True and data["simulated_latency"] == "published"
    assert [arm["driver_calls"] for arm in data["arms"]] == [1000, 3]
    assert data["arms"][0]["peak_reserved_bytes"] == 64 << 20
    done = cli("compare", "-r", "2", "true", STUB_SIMULATOR=1, STUB_RACES=2)
    assert "say nothing about a GPU" in done.stdout and "races" in done.stderr


def test_processes_of_one_run_are_summed(cli, script, tmp_path):
    """Two programs under a shell (which may leave by _exit), in a folder whose name looks like a pattern."""
    out = tmp_path / "out.json"
    (tmp_path / "100%p").mkdir()
    done = cli("compare", "-r", "1", "--json", out, script("cat /dev/null; cat /dev/null; exit 0"), STUB_SIMULATOR=1,
               TMPDIR=tmp_path / "100%p")
    assert done.returncode == 0, done.stderr
    a, b = load(out)["runs"]
    n = a["processes"]
    assert n == b["processes"] >= 2
    assert (a["alloc_calls"], a["driver_calls"], a["simulator"]["driver_calls"]) == (1000 * n, 1990 * n, 1000 * n)
    assert b["simulator"]["calls"]["cuMemAlloc_v2"] == 3 * n


def test_processes_that_end_without_a_word_are_counted(cli, script, tmp_path):
    """By _exit, under the simulator, which tells nothing of them: their figures are where they have counted, and no such file is left."""
    die = BUILD / "tests" / "process" / "death" / "die"
    if not (LIBRARY.is_file() and (SIM / "libcuda.so.1").is_file() and die.is_file()) or "CACHEALLOC_TEST_SANITIZER" in os.environ:
        pytest.skip("no library and simulator that a shell can preload")
    figures = {}
    for way in ("exit", "underscore"):
        out, program = tmp_path / f"{way}.json", script(f"{die} exit 1; {die} {way} 1; {die} {way} 1; exit 0")
        done = cli("compare", "--sim", "-r", "1", "--json", out, program, CACHEALLOC_BUILD=BUILD, TMPDIR=tmp_path)
        assert done.returncode == 0 and "intercepted" not in done.stderr, done.stderr
        assert ("are exact" in done.stdout) == (way == "exit") == ("ended by _exit" not in done.stderr), done.stderr
        data = load(out)
        assert data["simulated"] and [run["processes"] for run in data["runs"]] == [3, 3]
        figures[way] = [(run["alloc_calls"], run["driver_calls"], run["peak_reserved_bytes"]) for run in data["runs"]]
        assert [run["simulator"]["unknown_processes"] for run in data["runs"]] == [2 * (way != "exit")] * 2
        for arm, run in zip(data["arms"], data["runs"]):
            assert arm["driver_calls"] == (run["simulator"] if way == "exit" else run)["driver_calls"]
    assert figures["exit"] == figures["underscore"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["exit.json", "program.sh", "underscore.json"]
    assert not left(tmp_path)


def test_processes_whose_figures_are_gone_are_named(cli, script):
    """The library has made the file, and nobody has written into it."""
    done = cli("compare", "-r", "1", script(': > "${CACHEALLOC_STATS%%.%p.json}.1.json"'), STUB_SILENT=1)
    assert done.returncode == 0 and "2 processes ended by _exit, exec or a signal and left no figures" in done.stderr
    assert "intercepted" not in done.stderr


def test_few_pairs_warn(cli, script, tmp_path):
    assert "2 pairs only; use -r 5 or more" in cli("compare", "-r", "2", "true").stderr
    assert "pairs only" not in cli("compare", "-r", "5", "true").stderr
    # pairs in which a run failed do not count
    program = script(f'test -n "$CACHEALLOC_DISABLE" && exit 0; echo x >> {tmp_path}/n; '
                     f'test $(wc -l < {tmp_path}/n) -gt 2')
    assert "3 pairs only; 5 were asked for" in cli("compare", "-r", "5", "--ignore-failure", program).stderr
    assert "pairs only" not in cli("compare", "-r", "2", "--ignore-failure", "false").stderr


def test_an_arm_that_was_not_run_did_not_succeed(cli):
    done = cli("compare", "-r", "2", "false")
    assert done.returncode == 2
    assert "A failed in 1 of 1 runs (exit status 1), B was not run; no time is compared" in done.stdout.splitlines()
    assert "pairs only" not in done.stderr


@pytest.mark.parametrize("words, message", [
    ([], "no program given"),
    (["-r", "0", "true"], "expected 1 or more"),
    (["-r", "many", "true"], "expected a whole number"),
    (["-rx", "true"], "expected a whole number"),
    (["--fail-above", "1e9", "true"], "expected a percentage"),
    (["--fail-above", "abc", "true"], "abc: expected a percentage such as 5"),
    (["--json", "", "true"], "--export-json: the name of a file is missing"),
    (["no-such-program-here"], "not found"),
    (["--json", "/no/such/folder/x.json", "true"], "folder does not exist"),
    (["--jsn", "x", "true"], "did you mean --json?"),
])
def test_wrong_usage_is_2_and_one_line(cli, words, message):
    done = cli("compare", *words)
    assert done.returncode == 2 and message in done.stderr and done.stderr.count("\n") == 1


def test_an_existing_file_is_not_overwritten(cli, tmp_path):
    out = tmp_path / "out.json"
    out.write_text("precious")
    done = cli("compare", "-r", "1", "--json", out, "true")
    assert done.returncode == 2 and "--force" in done.stderr and out.read_text() == "precious"
    assert cli("compare", "-r", "1", "--force", "--json", out, "true").returncode == 0
    load(out)


def test_the_programs_output_does_not_reach_ours(cli, script):
    done = cli("compare", "-r", "1", script("echo noise; echo noise >&2"))
    assert "noise" not in done.stdout + done.stderr


def test_damaged_statistics_are_not_believed(cli, script):
    program = script('for i in 1 2; do echo "{" > "${CACHEALLOC_STATS%%.%p.json}.$i.json"; done')
    done = cli("compare", "-r", "1", program, STUB_SILENT=1)
    assert done.returncode == 0 and "nothing was intercepted" in done.stderr


def test_stub_statistics_fit_the_schema(cli, tmp_path):
    cli("run", f"--stats={tmp_path}/s.json", "true")
    check(json.loads((tmp_path / "s.json").read_text()), STATS_SCHEMA)


def test_schema_has_every_name_of_the_library():
    text = (ROOT / "allocator" / "core" / "stats.h").read_text()
    names = set(re.findall(r"^\tX\((\w+)\)", text, re.M))
    known = set(STATS_SCHEMA["properties"]["devices"]["items"]["properties"])
    assert names and names <= known, names - known
