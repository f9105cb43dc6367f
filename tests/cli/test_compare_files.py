# SPDX-License-Identifier: MIT
"""Files that `cachealloc compare` writes and reads, and what stays when it is interrupted or a disk is full."""

import csv
import json
import lzma
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from command import COMMAND, ROOT, cli, compiler, environment, script, stub_build  # noqa: F401  (fixtures)
from conftest import BUILD
from schema import check
from test_command import on_terminal
from test_compare import load

QUICK_EVERY = 4  # conftest.py

FILES_SCHEMA = json.loads((ROOT / "scripts" / "schema" / "compare_files.schema.json").read_text())


def exports(folder):
    return [word for form, ending in (("json", "json"), ("csv", "csv"), ("markdown", "md"))
            for word in (f"--export-{form}", folder / f"out.{ending}")]


# ---- written

def test_every_form_has_every_run(cli, script, tmp_path):
    program = script(f'test -n "$CACHEALLOC_DISABLE" && exit 0; echo x >> {tmp_path}/n; test $(wc -l < {tmp_path}/n) != 2')
    done = cli("compare", "-r", "4", "--ignore-failure", *exports(tmp_path), "--env-b", "X=a|b", program)
    assert done.returncode == 0, done.stderr
    data = load(tmp_path / "out.json")
    with open(tmp_path / "out.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["arm"] for row in rows] == [run["arm"] for run in data["runs"]] and len(rows) == 8
    bad, = [row for row in rows if row["failed"] == "1"]
    assert bad["arm"] == "B" and bad["time_ns"] == "" and bad["exit_code"] == "1"
    assert all(int(row["time_ns"]) > 0 for row in rows if row is not bad)
    text = (tmp_path / "out.md").read_text()
    assert re.search(r"^\| B \| cachealloc, X=a\\\|b \| 4 \| 1 \| .* \|$", text, re.M)
    assert "**B failed in 1 of 4 runs (exit status 1), A in none: that may be chance" in text and f"seed {data['seed']}" in text
    cells = {line.count("|") - line.count("\\|") for line in text.splitlines() if line.startswith("|")}
    assert len(cells) == 1


def test_a_full_disk_does_not_cost_the_result(cli, tmp_path):
    """What cannot be written is said, with its file, after the verdict; the other files are there."""
    done = cli("compare", "-r", "2", "--json", "/dev/full", "--export-csv", tmp_path / "o.csv", "true")
    assert done.returncode == 2 and "/dev/full: No space left on device" in done.stderr
    assert "95% CI" in done.stdout and len((tmp_path / "o.csv").read_text().splitlines()) == 5
    assert os.path.exists("/dev/full") and not os.path.isfile("/dev/full")  # not replaced


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize("words", [["compare", "-r", "1", "true"], ["doctor", "sh"], ["version"], ["compare", "--help"]])
def test_a_full_disk_under_stdout(stub_build, words):
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([sys.executable, COMMAND, *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
                              env=environment(CACHEALLOC_BUILD=stub_build), check=False)
    assert done.returncode == (1 if words == ["version"] else 2) and "standard output: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr


def test_a_file_that_goes_away_is_made_anew(cli, script, tmp_path):
    """And a link stays one."""
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    done = cli("compare", "-r", "3", "--json", tmp_path / "link.json", script(f"rm -f {tmp_path}/real.json"))
    assert done.returncode == 0 and (tmp_path / "link.json").is_symlink()
    assert load(tmp_path / "real.json")["pairs_done"] == 3


def test_files_go_to_a_pipe(cli):
    done = cli("compare", "-r", "2", "--export-csv", "/dev/stdout", "true")
    assert done.returncode == 0 and done.stdout.count("arm,pair,place") == 1


@pytest.mark.parametrize("words, message", [
    (["--export-csv", "/no/such/folder/x.csv", "true"], "its folder does not exist"), (["--export-markdown", "/", "true"], "is a folder"),
    (["--export-csv", "x", "--json", "./x", "true"], "named for two exports"),
])
def test_a_file_that_cannot_be_is_said_before_anything_runs(cli, tmp_path, words, message):
    done = cli("compare", *words, cwd=tmp_path)
    assert done.returncode == 2 and message in done.stderr and done.stderr.count("\n") == 1


def test_existing_exports_are_not_overwritten(cli, tmp_path):
    for option in ("--export-csv", "--export-markdown", "--export-json"):
        (tmp_path / "x").write_text("precious")
        done = cli("compare", "-r", "1", option, tmp_path / "x", "true")
        assert done.returncode == 2 and "--force" in done.stderr and (tmp_path / "x").read_text() == "precious"


# ---- interrupted

@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_was_measured_before_an_interrupt_is_reported_and_exported(stub_build, script, tmp_path, number):
    """In the third pair."""
    program = script(f'echo x >> {tmp_path}/n; test $(wc -l < {tmp_path}/n) -lt 5 || exec sleep 1000')
    (tmp_path / "t").mkdir()
    with subprocess.Popen([sys.executable, COMMAND, "compare", "-r", "9", *exports(tmp_path), program], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=environment(CACHEALLOC_BUILD=stub_build, TMPDIR=tmp_path / "t"),
                          preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL)) as child:  # nohup ignores it
        while not (tmp_path / "n").exists() or len((tmp_path / "n").read_text().split()) < 5:
            assert child.poll() is None
            time.sleep(0.01)
        child.send_signal(number)
        out, errors = child.communicate(timeout=60)
    assert child.returncode == 2 and "interrupted after 2 of 9 pairs" in errors and "Traceback" not in errors
    assert "2 pairs, interleaved" in out
    data = load(tmp_path / "out.json")
    assert data["pairs_done"] == 2 and len(data["runs"]) == 4 and data["pairs_wanted"] == 9
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 5
    assert "2 pairs, interleaved" in (tmp_path / "out.md").read_text()
    assert not os.listdir(tmp_path / "t")


def test_no_folder_is_left_into_which_something_still_writes(cli, stub_build, script, tmp_path):
    (tmp_path / "t").mkdir()
    program = script('folder=$(dirname "$CACHEALLOC_STATS")\n(i=0; while [ $i -lt 3000 ]; do : > "$folder/$i"; i=$((i + 1)); done) 2>&- &')
    done = cli("compare", "-r", "1", program, CACHEALLOC_BUILD=stub_build, TMPDIR=tmp_path / "t")
    assert (done.returncode, os.listdir(tmp_path / "t")) == (0, []), done.stderr


def test_a_reader_that_goes_away_leaves_no_folder(stub_build, tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, COMMAND, "compare", "-r", "1", "true"], stdout=writer, stderr=subprocess.PIPE, timeout=60,
                          env=environment(CACHEALLOC_BUILD=stub_build, TMPDIR=tmp_path), check=False)
    os.close(writer)
    assert done.returncode == -signal.SIGPIPE and not os.listdir(tmp_path)


def test_progress_on_a_terminal_only(cli, stub_build, script):
    """After two seconds; the whole takes about three."""
    words = ["compare", "-r", "1", script("exec sleep 1.5")]
    assert "pair 1 of 1" in on_terminal(words, CACHEALLOC_BUILD=str(stub_build))
    done = cli(*words)
    assert "pair 1 of" not in done.stdout + done.stderr and "\r" not in done.stderr


def test_no_color_on_a_terminal(stub_build):
    words = ["compare", "-r", "1", "true"]
    assert "\033[1m" in on_terminal(words, CACHEALLOC_BUILD=str(stub_build))
    assert "\033" not in on_terminal(words, CACHEALLOC_BUILD=str(stub_build), NO_COLOR="1")


# ---- recorded files

def files(cli, *words, **env):
    """(CompletedProcess, the result)."""
    done = cli("compare", *words, "--json", "/dev/stderr", **env)
    data = json.loads(done.stderr) if done.returncode == 0 else None
    if data:
        check(data, FILES_SCHEMA)
    return done, data


def test_two_results_of_compare(cli, tmp_path):
    """B takes four times as long in the second session: by Welch's interval, as these runs are no pairs."""
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    for path, pairs, words, slow in ((one, 4, [], 1), (two, 3, ["--conf-b", "k:1"], 4)):
        cli("compare", "-r", pairs, "--json", path, *words, "true")
        data = load(path)
        for run in data["runs"]:
            run["time_ns"] = (200 + run["pair"]) * 10**6 * (slow if run["arm"] == "B" else 1)
        path.write_text(json.dumps(data))
    done, data = files(cli, one, two)
    assert done.returncode == 0, done.stderr
    a, b = data["intervals"]
    assert (a["arm"], b["arm"], b["runs"]) == ("A", "B", [4, 3]) and b["high_ppm"] < 1000000
    assert re.search(r"^B: \S+ times slower in the second file \(95% CI \S+ to \S+, 4 and 3 runs of two sessions, not paired, "
                     r"corrected for 2 claims\)$", done.stdout, re.M)
    assert "B: not the same arm in both files" in done.stdout and "A: not the same" not in done.stdout
    assert re.search(r"^B, median time +\d+ ms +\d+ ms +\+\d+\.\d%$", done.stdout, re.M)


def test_two_files_of_statistics(cli, tmp_path):
    """The last line of a file that was repeated."""
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    cli("run", f"--stats={one}", "true", STUB_ALLOCS=5)
    cli("run", f"--stats={two}", "true")
    two.write_text(one.read_text() + two.read_text())
    done, data = files(cli, one, two)
    assert done.returncode == 0 and data["kind"] == "stats"
    assert {row["name"]: (row["first"], row["second"]) for row in data["figures"]}["allocations"] == (5, 1000)
    assert re.search(r"^peak reserved +110\.0 MiB +110\.0 MiB +\+0\.0%$", done.stdout, re.M)
    assert "one run each" in done.stdout and not re.search("CI|faster|slower", done.stdout)


def test_two_traces(cli, tmp_path):
    if not (BUILD / "allocator" / "cachealloc-replay").is_file():
        pytest.skip("cachealloc-replay is not built")
    for name, rounds in (("one.trc", 3), ("two.trc", 30)):
        # four blocks live at a time; the form: tests/traces/README.md
        lines = [(f"F {n - 4}\n" if n >= 4 else "") + f"A {n} 1048576 0\n" for n in range(rounds * 4)]
        (tmp_path / name).write_text("".join(lines))
    done, data = files(cli, tmp_path / "one.trc", tmp_path / "two.trc", CACHEALLOC_BUILD=BUILD)
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: (row["first"], row["second"]) for row in data["figures"]}
    assert rows["allocations"] == (12, 120) and rows["peak live"] == (4 << 20, 4 << 20)


def test_a_name_and_a_locale_of_any_bytes(cli, tmp_path):
    """The name as it is; what the locale lacks as an escape."""
    if not (BUILD / "allocator" / "cachealloc-replay").is_file():
        pytest.skip("cachealloc-replay is not built")
    path = os.fsencode(tmp_path) + b"/t\xff.trc"
    with open(path, "wb") as file:
        file.write(b"A 1 100 0\n")
    done = subprocess.run([sys.executable, COMMAND, "compare", path, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60,
                          env=environment(CACHEALLOC_BUILD=BUILD), check=False)
    assert done.returncode == 0 and path in done.stdout, done.stderr
    done = cli("compare", "-r", "2", "--export-markdown", tmp_path / "o.md", "true", os.fsdecode(b"\xff"), PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and " \\xb1 " in done.stdout and b"\xff" in (tmp_path / "o.md").read_bytes(), done.stderr
    for verb in ("stats", "tune", "doctor"):
        done = subprocess.run([sys.executable, COMMAND, verb, b"no\xff"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60,
                              env=environment(CACHEALLOC_BUILD=BUILD), check=False)
        assert b"no\xff: " in done.stdout, done.stdout


def test_files_that_cannot_be_compared(cli, tmp_path):
    one, two, text = tmp_path / "one.json", tmp_path / "two.json", tmp_path / "text"
    cli("compare", "-r", "1", "--json", one, "true")
    cli("run", f"--stats={two}", "true")
    text.write_text("nothing\n")
    for words, message in (([one, two], "has results of compare and"), ([one, tmp_path / "none.json"], "none.json: no such file"),
                           ([one], "is no program"), ([one, one, one], "compared in twos"),
                           (["--metric", "(x)", one, one], "--metric means nothing with recorded files"),
                           (["--sim", one, one], "--sim means nothing"), (["-r", "10", one, one], "--runs means nothing"),
                           ([two, two, "--json", two, "--force"], "two.json is one of the files to compare")):
        done = cli("compare", *words)
        assert done.returncode == 2 and message in done.stderr and done.stderr.count("\n") == 1, (words, done.stderr)
    done = cli("compare", text, text, CACHEALLOC_BUILD=BUILD)
    assert done.returncode == 2 and "text" in done.stderr and done.stderr.count("\n") == 1
    (tmp_path / "one.trc.xz").write_bytes(lzma.compress(b"A 1 100 0\n"))
    done = cli("compare", tmp_path / "one.trc.xz", tmp_path / "one.trc.xz", CACHEALLOC_BUILD=BUILD)
    assert done.returncode == 2 and done.stderr.endswith("one.trc.xz: the file is compressed; unpack it first\n")


@pytest.mark.parametrize("change", [{"arms": None}, {"runs": [{}]}, {"runs": 5}, {"arms": [{"name": "A", "label": "x"}]}, {"runs": []}])
def test_damaged_results_are_refused(cli, tmp_path, change):
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    cli("compare", "-r", "2", "--json", good, "true")
    bad.write_text(json.dumps({**json.loads(good.read_text()), **change}))
    done = cli("compare", good, bad)
    assert (done.returncode == 2 and done.stderr.count("\n") == 1) or change["arms"], done.stderr
    assert "Traceback" not in done.stderr


def test_a_program_beside_a_file_of_its_name_is_run(cli, script, tmp_path):
    program = script("exit 0", "one.json")
    done = cli("compare", "-r", "1", program, program)
    assert done.returncode == 0 and "one pair only" in done.stdout


def test_an_interrupt_while_a_program_starts_leaves_none(monkeypatch):
    """Between the program's start and the wait for it."""
    from cachealloc_cli import measure
    started, real = [], subprocess.Popen

    def popen(*words, **settings):
        started.append(real(*words, **settings))
        measure.Interrupts.handle()
        return started[0]
    monkeypatch.setattr(measure.Interrupts, "wanted", False)
    monkeypatch.setattr(measure.subprocess, "Popen", popen)
    with pytest.raises(KeyboardInterrupt):
        measure._timed(["sleep", "1000"], dict(os.environ), subprocess.DEVNULL, subprocess.DEVNULL)
    assert started[0].poll() == -signal.SIGKILL


def test_no_room_for_a_run_keeps_what_was_measured(cli, script, tmp_path):
    """The folder for the runs' files goes away in the third pair."""
    program = script(f'echo x >> {tmp_path}/n; test $(wc -l < {tmp_path}/n) -lt 5 || rm -r {tmp_path}/t/*')
    (tmp_path / "t").mkdir()
    done = cli("compare", "-r", "9", "--json", tmp_path / "o.json", program, TMPDIR=tmp_path / "t")
    assert done.returncode == 2 and "2 pairs, interleaved" in done.stdout and "No such file" in done.stderr
    assert load(tmp_path / "o.json")["pairs_done"] == 2 and "Traceback" not in done.stderr
