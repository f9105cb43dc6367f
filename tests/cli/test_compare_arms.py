# SPDX-License-Identifier: MIT
"""What each arm of `cachealloc compare` gets, and what is refused before anything is run."""

import json
import re

import pytest
from command import cli, compiler, environment, script, stub_build  # noqa: F401  (fixtures)
from test_compare import load

QUICK_EVERY = 4  # conftest.py

SHOW = 'echo "$CACHEALLOC_DISABLE|$CACHEALLOC_CONF|$CACHEALLOC_TAKEOVER|$PYTORCH_CUDA_ALLOC_CONF|$X|$*"'


@pytest.fixture
def seen(cli, script, tmp_path):
    """seen(words..., env...) -> (what each run of the first round saw, CompletedProcess); the program is ./show.sh."""
    def call(*words, program=True, **env):
        log = tmp_path / "seen"
        log.unlink(missing_ok=True)
        path = script(f"{SHOW} >> {log}", "show.sh")
        done = cli("compare", "-r", "1", *words, *([path, "one", "two"] if program else []), cwd=tmp_path, **env)
        return [line.split("|") for line in log.read_text().splitlines()] if log.exists() else [], done
    return call


def test_variables_and_commands_of_each_arm(seen):
    lines, done = seen("--env-a", "X=a b", "--env-b", "X=2", "--env-b", "Y=3", "--command-b", "./show.sh 'three four' five")
    assert lines == [["count", "", "", "", "a b", "one two"], ["", "", "", "", "2", "three four five"]]
    assert "A = stock, counted, X=a b\n" not in done.stdout  # it fits into the table
    assert re.search(r"^A +stock, counted, X=a b  ", done.stdout, re.M)
    assert "\nB = cachealloc, X=2, Y=3: ./show.sh 'three four' five\n" in "\n" + done.stdout
    assert "differ in allocator and in command" in done.stderr


def test_both_commands_need_no_program(seen):
    lines, done = seen("--conf-a", "", "--command-a", "./show.sh a", "--command-b", "./show.sh b", program=False)
    assert lines == [["", "", "", "", "", "a"], ["", "", "", "", "", "b"]]
    assert "differ in allocator" not in done.stderr


def test_the_users_own_choice_of_allocator_counts(seen):
    lines, _ = seen("--env-a", "CACHEALLOC_DISABLE=0", "--env-b", "CACHEALLOC_DISABLE=1")
    assert [line[0] for line in lines] == ["", "1"]


def test_preset_pytorch(seen, tmp_path):
    """A as shipped: what decides where memory comes from is left out of the environment, and named."""
    lines, done = seen("--preset", "pytorch", "--json", tmp_path / "o.json", PYTORCH_CUDA_ALLOC_CONF="backend:native",
                       PYTORCH_NO_CUDA_MEMORY_CACHING=1)
    assert lines == [["count", "", "", "", "", "one two"], ["", "", "torch", "", "", "one two"]]
    assert "PYTORCH_CUDA_ALLOC_CONF=backend:native is left out" in done.stderr
    assert "PYTORCH_NO_CUDA_MEMORY_CACHING=1 is left out" in done.stderr
    a, b = load(tmp_path / "o.json")["arms"]
    assert a["label"] == "stock, counted, PyTorch as shipped" and b["label"] == "cachealloc, CACHEALLOC_TAKEOVER=torch"
    assert "PYTORCH_CUDA_ALLOC_CONF" in a["unset"] and b["environment"] == {"CACHEALLOC_TAKEOVER": "torch"}
    lines, done = seen("--preset", "pytorch", "--env-a", "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64", PYTORCH_CUDA_ALLOC_CONF="x:1")
    assert [line[3] for line in lines] == ["max_split_size_mb:64", ""]


@pytest.mark.parametrize("word, variable, value", [("jax", "CACHEALLOC_TAKEOVER", "jax"), ("rmm", "CUDF_PANDAS_RMM_MODE", "cuda")])
def test_the_other_presets(cli, tmp_path, word, variable, value):
    cli("compare", "-r", "1", "--preset", word, "--json", tmp_path / "o.json", "true", **{variable: "other"})
    a, b = load(tmp_path / "o.json")["arms"]
    assert b["environment"] == {variable: value} and variable in a["unset"] and "as shipped" in a["label"]


def test_presets_name_what_a_take_over_knows():
    """Of the words of CACHEALLOC_TAKEOVER, with every variable that the library would leave alone if the user had set it."""
    from cachealloc_cli import settings
    from cachealloc_cli.arms import PRESETS
    for removed, _, recommended in PRESETS.values():
        assert "CACHEALLOC_TAKEOVER" in removed and set(removed) <= {*settings.TAKEN, "CACHEALLOC_TAKEOVER"}
        assert set(recommended) <= set(removed)


def test_more_than_two_arms(seen, tmp_path):
    """In the order of the command line, turned every second round; the first is what the others are compared with."""
    lines, done = seen("-r", "6", "--json", tmp_path / "o.json", "--arm", "driver=stock", "--arm", "small=X=1 reuse_slack_mb:0 a:1",
                       "--arm", "own=./show.sh 'x y'")
    assert lines[:3] == [["count", "", "", "", "", "one two"], ["", "reuse_slack_mb:0,a:1", "", "", "1", "one two"],
                         ["", "", "", "", "", "x y"]]
    data = load(tmp_path / "o.json")
    order = [[run["arm"] for run in data["runs"][at:at + 3]] for at in range(0, 18, 3)]
    assert order[0] == ["driver", "small", "own"] and order[1] == ["own", "small", "driver"]
    for place in range(3):
        assert sorted(one[place] for one in order) == ["driver"] * 2 + ["own"] * 2 + ["small"] * 2
    assert [(each["arm"], each["reference"]) for each in data["comparisons"]] == [("small", "driver"), ("own", "driver")]
    assert data["claims"] == 2 and data["time_ratio"] == data["comparisons"][0]["time_ratio"]
    assert len(re.findall(r"^(?:small|own) is|^no difference shown between (?:small|own) and driver", done.stdout, re.M)) == 2
    assert "corrected for 2 claims" in done.stdout and "driver -> own: " in done.stdout


def test_an_arm_whose_every_run_fails_leaves_the_others_their_figures(cli, script, tmp_path):
    program = script('test "$X" = 1 && { echo out of memory >&2; exit 3; }; exit 0')
    done = cli("compare", "-r", "10", "--ignore-failure", "--json", tmp_path / "o.json", "--arm", "driver=stock", "--arm", "bad=X=1",
               "--arm", "good=", program)
    assert done.returncode == 0, done.stderr
    first, second = [line for line in done.stdout.splitlines() if " runs (" in line or " good" in line][:2]
    assert first.startswith("bad ran out of memory in 10 of 10 runs (exit status 3), driver in none, good in none: driver fails less "
                            "often than bad (exact test, p = 1.1e-05); of the rounds")
    assert "good" in second and "driver" in second and "bad is" not in done.stdout
    assert [each["time_ratio"]["pairs"] for each in load(tmp_path / "o.json")["comparisons"]] == [0, 10]


def test_fail_above_with_several_arms(cli):
    words = ["compare", "-r", "3", "--fail-above", "50", "--arm", "driver=stock", "--arm", "same=stock", "--arm", "slow=STUB_SLEEP_A_US=0", "true"]
    for _ in range(3):
        done = cli(*words, STUB_SLEEP_B_US=300000)
        if done.returncode == 1:
            break
    assert done.returncode == 1 and "slow is at least" in done.stderr and "slower than driver" in done.stderr


def test_a_figure_of_the_programs_own(cli, script, tmp_path):
    """From both streams, the last one, with the text around it."""
    program = script('echo "warm-up tok/s 1"; test -n "$CACHEALLOC_DISABLE" && echo "tok/s 1,000.5" || echo "tok/s 2,001"; '
                     'printf "\\rloss=0.25" >&2')
    done = cli("compare", "-r", "2", "--metric", "tok/s ([0-9.,]+)", "--metric-lower", "loss=([0-9.]+)", "--json", tmp_path / "o.json",
               "--export-csv", tmp_path / "o.csv", program)
    assert done.returncode == 0, done.stderr
    data = load(tmp_path / "o.json")
    assert [run["metrics"] for run in data["runs"] if run["arm"] == "B"] == [[2001.0, 0.25]] * 2
    assert [(one["name"], one["better"]) for one in data["metrics"]] == [("tok/s", "higher"), ("loss", "lower")]
    assert "tok/s, higher is better: B is better than A, 2 times as much (95% CI 2 to 2, 2 pairs" in done.stdout
    assert re.search(r"^B +cachealloc +2001 ± 0 +0\.25 ± 0 ", done.stdout, re.M)
    header, first = (tmp_path / "o.csv").read_text().splitlines()[:2]
    assert header.endswith(",metric:tok/s,metric:loss") and first.startswith("A,1,0,0,0,,0,") and first.endswith(",1000.5,0.25")


def test_a_run_without_the_figure_is_said_so(cli, script, tmp_path):
    program = script(f'echo x >> {tmp_path}/n; test $(wc -l < {tmp_path}/n) = 3 && echo "tok/s lots" || echo "tok/s 5"')
    done = cli("compare", "-r", "3", "--metric", "tok/s (.*)", program)
    assert done.returncode == 0 and "tok/s: no figure in 1 of 3 runs of B (pair 2)" in done.stdout
    assert "tok/s, higher is better: no difference shown" in done.stdout and "2 pairs" in done.stdout
    assert "tok/s: 'lots' is not a number" in done.stderr


def test_a_figure_that_no_run_has(cli):
    done = cli("compare", "-r", "2", "--metric", "tok/s ([0-9]+)", "true")
    assert done.returncode == 0
    assert "tok/s, higher is better: no pair has it in both A and B" in done.stdout
    assert "tok/s: no figure in 2 of 2 runs of A (pair 1, 2)" in done.stdout


@pytest.mark.parametrize("pattern, name", [("tok/s ([0-9.]+)", "tok/s"), (r"loss\s*=\s*([\d.]+)", "loss"), ("([0-9]+)", "([0-9]+)"),
                                           (r"^(?:time|wall): (\d+) ms$", "time wall: ms")])
def test_the_name_of_a_figure(pattern, name):
    from cachealloc_cli.metric import Metric
    if name.startswith("time"):
        assert Metric(pattern, "lower").name
    else:
        assert Metric(pattern, "lower").name == name


@pytest.mark.parametrize("words, message", [
    (["--metric", "tok/s", "true"], "expected one group in parentheses around the number, such as 'tok/s ([0-9.]+)'"),
    (["--metric", "(a)(b)", "true"], "(?:...) groups without counting"), (["--metric-lower", "(", "true"], "not a regular expression"),
    (["--env-a", "FOO", "true"], "expected NAME=VALUE"), (["--env-b", "=1", "true"], "expected NAME=VALUE"),
    (["--env-b", "CACHEALLOC_STATS=1", "true"], "is set by compare itself"),
    (["--conf-b", "a:1", "--env-b", "CACHEALLOC_CONF=b:1", "true"], "given twice"),
    (["--preset", "torch", "true"], "expected pytorch, jax, rmm"), (["--command-a", "'", "true"], "quote it as for a shell"),
    (["--command-a", "true"], "B has no program"), (["--command-b", "no-such-program", "true"], "no-such-program: not found"),
    (["--arm", "a", "true"], "expected NAME=LINE"), (["--arm", "a=", "true"], "2 to 12 arms"), (["--arm", "a=", "--arm", "a=", "true"], "two arms are called a"),
    (["--arm", "a=", "--arm", "b=stock x:1", "true"], "no tuning keys"), (["--arm", "a=", "--arm", "b=", "--env-a", "X=1", "true"], "--env-a has none"),
    (["--arm", "a=true", "--arm", "b="], "b has no program"), (["--arm", "a=CACHEALLOC_STATS=1", "--arm", "b=", "true"], "set by compare itself"),
])
def test_wrong_arms_are_one_line_and_2(cli, words, message):
    done = cli("compare", *words)
    assert done.returncode == 2 and message in done.stderr and done.stderr.count("\n") == 1 and not done.stdout


def test_labels_stand_in_full_and_tables_fit(monkeypatch):
    """On a terminal of any width no line of figures is wider, and what is cut in the table stands above it."""
    from cachealloc_cli import layout
    arm = {"name": "A", "label": "cachealloc " + "k" * 50 + ":1", "driver_ns": 5, "driver_calls": 1234567, "peak_reserved_bytes": 1 << 30,
           "time_mean_ns": 12 * 10**9, "time_sd_ns": 10**8, "metrics": [{"runs": 1, "mean": 1234.5, "sd": 1.5}]}
    found = {"arms": [arm, {**arm, "name": "B", "label": "stock, counted"}], "metrics": [{"name": "tok/s"}], "simulated": False}
    for width in (None, 200, 110, 90, 60, 20):
        *above, table = layout.figures(found, width)
        assert f"A = {arm['label']}" in above
        assert width is None or max(map(len, table.splitlines())) <= max(width, 25)
        assert all(text in table for text in ("1234.5", "12.00", "1.0 GiB", "1 234 567"))


def test_json_holds_what_the_schema_says_for_every_form(cli, tmp_path):
    out = tmp_path / "o.json"
    assert cli("compare", "-r", "1", "--export-json", out, "--metric", "(x)", "true").returncode == 0
    assert load(out)["comparisons"][0]["metrics"][0]["verdict"] == "unknown"
    assert json.loads(out.read_text())["claims"] == 2


def test_memory_that_the_driver_serves_itself_is_said_to_be_left_out(cli, script, tmp_path):
    """Where it is all that there is, as under a take-over, the peak is unknown, and not the cache's own, which is nothing."""
    out = tmp_path / "o.json"
    program = script('test -n "$CACHEALLOC_DISABLE" || export STUB_OTHER=9; exec true')
    done = cli("compare", "-r", "1", "--json", out, program)
    assert "9 allocations of B were served by the driver itself" in done.stderr and "of A were" not in done.stderr
    assert load(out)["arms"][1]["peak_reserved_bytes"] == 110 << 20
    done = cli("compare", "-r", "1", "--preset", "pytorch", "--force", "--json", out, program, STUB_ALLOCS=0)
    assert load(out)["arms"][1]["peak_reserved_bytes"] is None and "peak memory unknown" in done.stdout
    assert "not the same work" not in done.stderr
