# SPDX-License-Identifier: MIT
"""The commands that README, the pages in docs and --help show do what is said of them: each is run as it stands, with ./app and the files
it names in place, on the simulated driver."""

import lzma
import os
import re
import shlex
import subprocess

import pytest

from conftest import BUILD, LIBRARY, ROOT, SIM, clean_env
from command import COMMAND

QUICK_EVERY = 4  # conftest.py

pytestmark = pytest.mark.skipif(not LIBRARY.is_file() or "CACHEALLOC_TEST_SANITIZER" in os.environ,
                                reason="no library that Python and a shell can preload")

PROGRAM = BUILD / "tests" / "process" / "shim" / "cases_shim"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
#: these have a test of their own: test_packaging.py, test_snapshots_page.py
ELSEWHERE = ("install", "snapshots")
#: what a build or a whole test run would be, and what needs the reader's own file
NOT_RUN = re.compile(r"^(scripts/(demo|test|gpu_check)\.sh|meson |LD_LIBRARY_PATH=build/tests/sim .*your\.so)")
#: the first line of a block whose commands need what a test machine lacks: they are run with stand-ins
TAG = re.compile(r"^# needs-(gpu|cluster|container|framework)$")


def blocks():
    """(page, tag or None, commands) of each shell block, without comments."""
    for page in PAGES:
        for block in re.findall(r"^```sh\n(.*?)^```$", page.read_text(), re.S | re.M):
            lines = block.splitlines()
            tag = TAG.match(lines[0])
            yield page, tag and tag[1], [line for line in (re.sub(r"(^|\s+)#.*", "", one) for one in lines) if line]


def fenced(tagged=False):
    """The commands that are run here."""
    return [line for page, tag, lines in blocks() if page.stem not in ELSEWHERE and bool(tag) == tagged
            for line in lines if not NOT_RUN.match(line)]


def shown(*words):
    """The examples of a --help: what stands before two spaces."""
    text = subprocess.run([COMMAND, *words, "--help"], stdout=subprocess.PIPE, text=True, check=True, timeout=60,
                          env=clean_env(CACHEALLOC_BUILD=BUILD)).stdout
    lines = text[text.index("Examples:"):].splitlines()[1:]
    lines = lines[:lines.index("")]
    return [re.split(r"  +", line.strip())[0] for line in lines]


HELP = [line for words in ([], ["run"], ["compare"], ["doctor"], ["tune"], ["explain"], ["version"], ["report"], ["convert"]) for line in shown(*words)] \
    if LIBRARY.is_file() else []


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with ./app, and recordings of it under the names that the examples use."""
    path = tmp_path_factory.mktemp("examples")
    (path / "app").write_text(f"#!/bin/sh\nexec {shlex.quote(str(PROGRAM))} ten\n")
    (path / "app").chmod(0o755)
    (path / "train.py").write_text("import subprocess\nsubprocess.run(['./app'], check=True)\nprint('tok/s 12.5')\n")
    for name in ("before.json", "after.json"):
        subprocess.run([PROGRAM, "ten"], check=True, timeout=60, cwd=path, env=clean_env(LD_PRELOAD=LIBRARY, CACHEALLOC_STATS=name))
    (path / "build").symlink_to(BUILD)
    (path / "scripts").symlink_to(ROOT / "scripts")
    subprocess.run([PROGRAM, "ten"], check=True, timeout=60, cwd=path,
                   env=clean_env(LD_PRELOAD=LIBRARY, CACHEALLOC_TRACE="app.7841.trace"))
    trace = (path / "app.7841.trace").read_bytes()
    (path / "docs").symlink_to(ROOT / "docs")
    for name in ("step.pickle", "snapshot.pickle", "rank0.trace", "rank1.trace", "run.trace", "oom.pickle", "oom.trace"):
        (path / name).write_bytes(trace)
    for name in ("step.trc.xz", "step.trace.xz"):
        (path / name).write_bytes(lzma.compress(trace))
    (path / "train.log").write_text("CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 23.69 GiB total capacity; 19.51 GiB "
                                    "already allocated; 1.20 GiB free; 21.00 GiB reserved in total by PyTorch)\n")
    (path / "tests").symlink_to(ROOT / "tests")
    return path


def test_there_are_examples():
    assert len(fenced()) >= 10 and len(HELP) >= 10


def test_most_commands_need_nothing_that_is_not_here():
    tags = [tag for _, tag, lines in blocks() for _ in lines]
    assert tags.count(None) * 3 >= len(tags) * 2, tags


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


@pytest.fixture(scope="module")
def launchers(folder):
    (folder / "bin").mkdir()
    for name in ("srun", "mpirun", "mpiexec", "torchrun", "docker", "podman", "apptainer"):
        (folder / "bin" / name).write_text(LAUNCHER)
        (folder / "bin" / name).chmod(0o755)
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
    done = subprocess.run(["/bin/sh", "-c", line], cwd=folder, env=env, text=True, timeout=120, check=False,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    expected = (0, 2) if " doctor " in line else (0,)  # ./app is a shell script, which may do anything
    assert done.returncode in expected, (done.returncode, done.stdout, done.stderr)
    assert "error" not in done.stderr, done.stderr
