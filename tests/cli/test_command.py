# SPDX-License-Identifier: MIT
"""What holds for every verb: help, wrong words, colour, streams, versions."""

import json
import os
import re
import subprocess
import sys

import pytest
from command import COMMAND, ROOT, cli, compiler, environment, stub_build  # noqa: F401  (fixtures)
from schema import check

QUICK_EVERY = 4  # conftest.py
VERBS = ("run", "compare", "doctor", "report", "convert", "stats", "tune", "explain", "version")


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"], ["help", "help"]])
def test_help_goes_to_stdout_and_leads_with_examples(cli, words):
    done = cli(*words)
    assert done.returncode == 0 and not done.stderr
    assert done.stdout.index("Examples:") < done.stdout.index("Verbs:")
    assert all(verb in done.stdout for verb in VERBS)


@pytest.mark.parametrize("folder", ["/", "scripts"])
def test_help_names_the_library_so_that_the_line_works_from_anywhere(cli, stub_build, folder):
    """A relative name in LD_PRELOAD is looked up anew from the folder of each program that starts."""
    line, = [line for line in cli("help", cwd=ROOT / folder).stdout.splitlines() if "LD_PRELOAD=" in line]
    assert line.strip() == f"LD_PRELOAD={stub_build}/shim/libcachealloc.so ./app"


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb_both_ways(cli, verb):
    one, two = cli(verb, "--help"), cli("help", verb)
    assert one.returncode == two.returncode == 0 and one.stdout == two.stdout
    assert one.stdout.startswith("Examples:") and f"Usage: cachealloc {verb}" in one.stdout
    assert "Exit status" in one.stdout
    assert max(map(len, one.stdout.splitlines())) <= 90


def test_no_words_is_help_on_stderr_and_2(cli):
    done = cli()
    assert done.returncode == 2 and not done.stdout and "Examples:" in done.stderr


@pytest.mark.parametrize("word, close", [("rnu", "'run'"), ("comapre", "'compare'"), ("docter", "'doctor'"),
                                         ("xyzzy", "cachealloc help")])
def test_unknown_verb_names_the_nearest(cli, word, close):
    for words in ([word], ["help", word]):
        done = cli(*words)
        assert done.returncode == 2 and close in done.stderr and done.stderr.count("\n") == 1 and not done.stdout


def test_colour_only_when_wanted(cli):
    assert "\033" not in cli("rnu").stderr
    assert "\033[31merror\033[0m" in cli("rnu", FORCE_COLOR=1).stderr
    assert "\033" not in cli("rnu", FORCE_COLOR=1, NO_COLOR=1).stderr
    assert "\033" not in cli("rnu", FORCE_COLOR=0).stderr


def on_terminal(words, **env):
    """What the command writes when stdout and stderr are a terminal."""
    main, other = os.openpty()
    with subprocess.Popen([sys.executable, COMMAND, *words], stdout=other, stderr=other, stdin=subprocess.DEVNULL,
                          env=environment(TERM="xterm", **env)) as child:
        os.close(other)
        text = b""
        while True:
            try:
                part = os.read(main, 4096)
            except OSError:
                break
            if not part:
                break
            text += part
        child.wait(60)
    os.close(main)
    return text.decode()


def test_colour_on_a_terminal_unless_no_color():
    assert "\033[31m" in on_terminal(["rnu"])
    assert "\033" not in on_terminal(["rnu"], NO_COLOR="1")


@pytest.mark.parametrize("words", [["help"], ["compare", "--help"], ["doctor", "sh"], ["compare", "-r", "1", "true"]])
def test_a_broken_pipe_is_quiet(stub_build, words):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, COMMAND, *words], stdout=writer, stderr=subprocess.PIPE, text=True,
                          env=environment(CACHEALLOC_BUILD=stub_build), timeout=60)
    os.close(writer)
    assert "Traceback" not in done.stderr and "BrokenPipe" not in done.stderr
    assert done.returncode != 0


def test_version(cli, stub_build, tmp_path):
    done = cli("version")
    assert done.returncode == 0
    assert done.stdout == f"cachealloc 0.1.0\nlibrary 0.1.0  {stub_build}/shim/libcachealloc.so\n"
    assert cli("--version").stdout == done.stdout
    data = json.loads(cli("version", "--json").stdout)
    check(data, json.loads((ROOT / "scripts" / "schema" / "version.schema.json").read_text()))
    assert data["library_version"] == "0.1.0"
    done = cli("version", CACHEALLOC_BUILD=tmp_path)
    assert done.returncode == 1 and done.stdout == "cachealloc 0.1.0\n" and "was not found" in done.stderr
    assert cli("version", "extra").returncode == 2


def test_version_is_the_builds():
    from cachealloc_cli import __version__
    text = (ROOT / "meson.build").read_text()
    assert re.search(r"version : '([^']+)'", text).group(1) == __version__


def test_standard_library_only():
    """Every import is ours or Python's own."""
    names = set()
    for path in (ROOT / "scripts" / "cachealloc_cli").glob("*.py"):
        names |= set(re.findall(r"^(?:from|import) (\w+)", path.read_text(), re.M))
    known = getattr(sys, "stdlib_module_names", None)
    if known is None:
        pytest.skip("this Python does not list its standard library")
    assert names <= known, names - known


@pytest.mark.parametrize("word", VERBS)
def test_completions_and_man_page_know_every_option(word):
    from cachealloc_cli import compare, convert, doctor, explain, launch, report, stats, tune, version
    options = {"run": launch, "compare": compare, "doctor": doctor, "report": report, "convert": convert, "tune": tune,
               "explain": explain, "stats": stats, "version": version}[word].OPTIONS
    texts = {path: (ROOT / "scripts" / path).read_text() for path in
             ("completions/cachealloc.bash", "completions/_cachealloc", "completions/cachealloc.fish",
              "man/cachealloc.1")}
    for option in options:
        name = option.names[-1]
        for path, text in texts.items():
            text = text.replace("\\-", "-")
            wanted = f"-l {name[2:]}" if path.endswith(".fish") else name
            assert re.search(re.escape(wanted) + r"\b", text), f"{name} is missing in {path}"


@pytest.mark.parametrize("line", ["version >&-", "stats stats.json >&-", "help 2>&- >&-", "explain train.log >&-", "tune small.trc >&-"])
def test_a_closed_standard_output_is_a_lost_one(tmp_path, line):
    """tune has nothing for it; its replays must not take the file for theirs."""
    if not (ROOT / "build" / "allocator" / "cachealloc-replay").exists() and line.startswith(("tune", "explain")):
        pytest.skip("not built: cachealloc-replay")
    (tmp_path / "stats.json").write_text('{"format": "stats", "format_version": 1, "devices": [{"index": 0, "ooms": 0}]}')
    (tmp_path / "small.trc").write_text("A 1 100 0\n")
    (tmp_path / "train.log").write_text("Tried to allocate 2.00 GiB (GPU 0; 23.69 GiB total capacity; 19.51 GiB already allocated; "
                                        "1.20 GiB free; 21.00 GiB reserved in total by PyTorch)")
    done = subprocess.run(["sh", "-c", f"{sys.executable} {COMMAND} {line}"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=60, check=False, cwd=tmp_path,
                          env=environment(CACHEALLOC_BUILD=ROOT / "build"))
    if line.startswith("tune"):
        assert done.returncode == 0, done.stderr
        return
    assert done.returncode == 1
    assert done.stderr == ("" if "2>&-" in line else "cachealloc: error: standard output: Bad file descriptor\n")


def test_help_of_run_that_cannot_be_written_is_125():
    with open("/dev/full", "w", encoding="ascii") as full:
        done = subprocess.run([sys.executable, COMMAND, "run", "--help"], stdout=full, stderr=subprocess.PIPE, env=environment(),
                              timeout=60, check=False)
    assert done.returncode == 125


@pytest.mark.parametrize("where", ["2>/dev/full", "2>&-"])
@pytest.mark.parametrize("line, status", [("foo", 2), ("", 2), ("run no-such-program", 127), ("compare -r 1 true", 0),
                                          ("compare -r 1 --fail-above 5 true", 3)])
def test_messages_that_cannot_be_written_change_nothing(stub_build, line, status, where):
    done = subprocess.run(["sh", "-c", f"{sys.executable} {COMMAND} {line} {where}"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          text=True, timeout=60, check=False, env=environment(CACHEALLOC_BUILD=stub_build))
    assert done.returncode == status and ("seed " in done.stdout) == line.startswith("compare")
