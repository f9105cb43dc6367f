# SPDX-License-Identifier: MIT
"""The commands that README, the pages in docs and --help show do what is said of them: each is run as it stands, with ./app and the files
it names in place, on the simulated driver."""

import functools
import lzma
import os
import re
import subprocess

import pytest

from conftest import BUILD, LIBRARY, ROOT, SIM, clean_env
from command import COMMAND
from pages import PAGES, TAG, blocks, commands, fences, stand_ins

QUICK_EVERY = 4  # conftest.py

pytestmark = pytest.mark.skipif(not LIBRARY.is_file() or "CACHEALLOC_TEST_SANITIZER" in os.environ,
                                reason="no library that Python and a shell can preload")

PROGRAM = BUILD / "tests" / "process" / "shim" / "cases_shim"
#: these have a test of their own: test_packaging.py, test_snapshots_page.py
ELSEWHERE = ("install", "snapshots")
#: a build or a whole test run: test_newcomer.py
NOT_RUN = re.compile(r"^(scripts/(demo|test)\.sh|meson )")


def fenced(tagged=False):
    """The commands that are run here."""
    return [line for page in PAGES if page.stem not in ELSEWHERE for line in commands(page, tagged) if not NOT_RUN.match(line)]


@functools.cache
def help_of(*words):
    return subprocess.run([COMMAND, *words, "--help"], stdout=subprocess.PIPE, text=True, check=True, timeout=60,
                          env=clean_env(CACHEALLOC_BUILD=BUILD)).stdout


def shown(*words):
    """The examples of a --help: what stands before two spaces."""
    text = help_of(*words)
    lines = text[text.index("Examples:"):].splitlines()[1:]
    lines = lines[:lines.index("")]
    return [re.split(r"  +", line.strip())[0] for line in lines]


HELP = [line for words in ([], ["run"], ["compare"], ["doctor"], ["tune"], ["explain"], ["version"], ["report"], ["convert"], ["stats"]) for line in shown(*words)] \
    if LIBRARY.is_file() else []


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with ./app, and recordings of it under the names that the examples use."""
    path = tmp_path_factory.mktemp("examples")
    (path / "build").symlink_to(BUILD)
    (path / "scripts").symlink_to(ROOT / "scripts")
    (path / "docs").symlink_to(ROOT / "docs")
    (path / "your.so").symlink_to(LIBRARY)
    stand_ins(path, PROGRAM, lambda **env: subprocess.run(["./app"], check=True, timeout=60, cwd=path,
                                                          env=clean_env(LD_PRELOAD=LIBRARY, **env)))
    (path / "tests").symlink_to(ROOT / "tests")
    for line in fenced():  # each example has the files that an earlier one makes, where it runs alone, too
        if re.search(r" > [\w.]+$", line):
            subprocess.run(["/bin/sh", "-c", line], cwd=path, check=True, timeout=60)
    return path


def test_there_are_examples():
    assert len(fenced()) >= 10 and len(HELP) >= 10


def test_most_commands_need_nothing_that_is_not_here():
    tags = [tag for page in PAGES for tag, lines in blocks(page) for _ in lines]
    assert tags.count(None) * 3 >= len(tags) * 2, tags


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_fence_is_of_a_kind_that_is_tested(page):
    """Commands (sh), programs (python), a piece of a file (yaml), or what a command prints."""
    for word, text in fences(page):
        assert word in ("sh", "python", "yaml", ""), word
        assert word != "sh" or "needs-" not in text.partition("\n")[2], text
        assert word or not text.startswith("scripts/"), text


def written():
    """(page, subcommand, option) of each option of ours that a page's command has: in a fence or between backquotes."""
    for page in PAGES:
        inline = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.S | re.M))
        for line in [*commands(page), *commands(page, True), *inline]:
            for word, rest in re.findall(r"\bcachealloc (\w+)((?: [^|;]*)?)", line):
                for option in re.findall(r"(?<= )--[a-z][a-z0-9-]*", re.sub(r"'[^']*'|\"[^\"]*\"", "TEXT", re.split(r" -- | \./", rest)[0])):
                    yield page.stem, word, option


def test_every_option_that_a_page_shows_is_in_the_help():
    found = set(written())
    assert len(found) > 20
    for page, word, option in sorted(found):
        assert re.search(rf"(?<![\w-]){option}(?![\w-])", help_of(word)), (page, word, option)


#: what a page asks of PyTorch: a function that a library lacks is an error here, too
TORCH = """import ctypes
from types import SimpleNamespace as Space

def allocator(path, *names):
    assert all(getattr(ctypes.CDLL(path), name) for name in names)
    return Space(allocator=lambda: Space(set_record_stream_fn=nonnull, set_reset_fn=nonnull))

def nonnull(address):
    assert address

cuda = Space(memory=Space(CUDAPluggableAllocator=allocator, change_current_allocator=lambda chosen: print("changed")))
"""


def test_the_python_of_the_pages_runs(tmp_path):
    (tmp_path / "torch.py").write_text(TORCH)
    programs = [text for page in PAGES for word, text in fences(page) if word == "python"]
    assert len(programs) >= 2
    for text in programs:
        needs = TAG.match(text.partition("\n")[0])
        assert bool(needs) == ("import torch" in text)
        text = text.replace("/opt/cachealloc/lib/libcachealloc.so", str(LIBRARY))
        done = subprocess.run(["/usr/bin/python3", "-c", text], env=clean_env(LD_PRELOAD=LIBRARY), cwd=tmp_path, text=True, timeout=60,
                              check=True, stdout=subprocess.PIPE)
        assert re.fullmatch("changed\n" if needs else r"\d+\.\d+\.\d+\n", done.stdout)


#: launchers that a test machine lacks: what is left behind their own options is the program, and a variable that they are
#: told to set is set. An option that is not known here ends them.
LAUNCHER = """#!/bin/sh
while [ $# -gt 0 ]; do
	case ${0##*/}:$1 in
	*:-n | *:-np | docker:-v | docker:--gpus | podman:-v | podman:--device | apptainer:--bind) shift 2 ;;
	docker:-e | podman:-e | apptainer:--env | mpirun:-x) export "${2?}"; shift 2 ;;
	mpiexec:-genv) export "${2?}=${3?}"; shift 3 ;;
	torchrun:--nproc-per-node=* | torchrun:--no-python | apptainer:--nv | *:run | *:exec | *:image | *:image.sif) shift ;;
	*:-*) echo "error: ${0##*/} $1"; exit 9 ;;
	*) break ;;
	esac
done
LD_PRELOAD=$(echo "$LD_PRELOAD" | sed "s|/opt/cachealloc/lib/libcachealloc.so|$STAND_IN_LIBRARY|") exec "$@"
"""


def of_any_run(text):
    """Without numbers, and units of time: how many segments there are depends a little on the time that passes."""
    return re.sub(r" *[\d.]+", " N", re.sub(r"[\d.]+ (ns|us|ms|s)\b", "0 s", text)).splitlines()


def test_the_report_of_the_page_has_the_words_of_today(tmp_path):
    """docs/out-of-memory.md: "this program" is a replay of a recorded training step on a device of 22,500 MiB."""
    page = next(page for page in PAGES if page.stem == "out-of-memory").read_text()
    shown = page[page.index("$ CACHEALLOC_STATS=1"):page.index("Rows follow where")]
    (tmp_path / "app").symlink_to(BUILD / "tests" / "traces" / "trace_program")
    trace = tmp_path / "step.trc"
    trace.write_bytes(lzma.decompress((ROOT / "tests" / "traces" / "recorded" / "med1024.trc.xz").read_bytes()))
    done = subprocess.run(["./app", trace], stderr=subprocess.PIPE, text=True, timeout=60, cwd=tmp_path,
                          env=clean_env(LD_PRELOAD=LIBRARY, SIMCUDA_MEM="22500M", SIMCUDA_CLOCK="manual:16", CACHEALLOC_STATS=1))
    lines = [line for line in of_any_run(done.stderr) if not line.startswith("trace_program:")]
    assert [line for line in of_any_run(shown) if line[:10] in {line[:10] for line in lines}] == lines


@pytest.fixture(scope="module")
def launchers(folder):
    (folder / "bin").mkdir()
    for name in ("srun", "mpirun", "mpiexec", "torchrun", "docker", "podman", "apptainer"):
        (folder / "bin" / name).write_text(LAUNCHER)
        (folder / "bin" / name).chmod(0o755)
    (folder / "bin" / "python").symlink_to("/usr/bin/python3")
    return folder / "bin"


@pytest.mark.parametrize("line", fenced(tagged=True))
def test_a_tagged_example_works_with_a_stand_in(folder, launchers, line):
    env = clean_env(PATH=f"{launchers}:{ROOT / 'scripts'}:{os.environ['PATH']}", CACHEALLOC_BUILD=BUILD, LD_LIBRARY_PATH=SIM,
                    STAND_IN_LIBRARY=LIBRARY, CACHEALLOC_LOG="info")
    done = subprocess.run(["/bin/sh", "-c", line], cwd=folder, env=env, text=True, timeout=60, check=False,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == 0 and "error" not in done.stderr + done.stdout, done
    assert "cachealloc" in done.stderr and "info: device 0" in done.stderr, done.stderr


@pytest.mark.parametrize("line", [*fenced(), *HELP])
def test_an_example_works_as_it_stands(folder, line):
    for made in ("run.html", "app.html", "step.html", "ranks.html", "memory.svg", "map.svg"):  # by an example of the same output
        (folder / made).unlink(missing_ok=True)
    env = clean_env(PATH=f"{ROOT / 'scripts'}:{os.environ['PATH']}", CACHEALLOC_BUILD=BUILD, LD_LIBRARY_PATH=SIM)
    line = f"timeout 2 {line}" if "--watch" in line else line  # it goes on until it is interrupted
    done = subprocess.run(["/bin/sh", "-c", line], cwd=folder, env=env, text=True, timeout=120, check=False,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    expected = (0, 2) if " doctor " in line else (124,) if "--watch" in line else (0,)  # ./app is a shell script, which may do anything
    assert done.returncode in expected, (done.returncode, done.stdout, done.stderr)
    assert "error" not in done.stderr, done.stderr
    if line.endswith(" -o medvar.svg"):  # the README's picture; its figures are those of the allocator as it is
        made, kept = (re.findall(r">(medvar.trc, [^<]*)<", path.read_text())
                      for path in (folder / "medvar.svg", ROOT / "docs" / "report" / "medvar.svg"))
        assert made == kept != []
