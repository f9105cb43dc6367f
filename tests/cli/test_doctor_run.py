# SPDX-License-Identifier: MIT
"""`cachealloc doctor --run` on programs of every kind, on the simulated driver: what it says, how it exits, and that
nothing of the program is left behind."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid

import pytest
from command import COMMAND, ROOT, compiler, environment, left as counts_left, script  # noqa: F401  (fixtures)
from conftest import BUILD, LIBRARY, SIM
from schema import check

QUICK_EVERY = 4  # conftest.py

pytestmark = pytest.mark.skipif(not (LIBRARY.is_file() and (SIM / "libcuda.so.1").is_file()) or "CACHEALLOC_TEST_SANITIZER" in os.environ,
                                reason="no library and simulator that Python and a shell can preload")
SCHEMA = json.loads((ROOT / "scripts" / "schema" / "doctor.schema.json").read_text())
APP = BUILD / "tests" / "process" / "shim" / "cases_shim"
FRAMEWORK = BUILD / "tests" / "process" / "framework"
MARK = "DOCTOR_MARK"


def left(mark):
    """Processes that have the mark in their environment."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if f"{MARK}={mark}".encode() in file.read():
                    found.append(int(name))
        except OSError:
            pass
    return found


def start(words, env):
    mark = uuid.uuid4().hex
    full = environment(CACHEALLOC_BUILD=BUILD, **{MARK: mark}, **env)
    return mark, subprocess.Popen([sys.executable, COMMAND, "doctor", "--run", "--sim", *map(str, words)], env=full, text=True,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))  # nohup ignores it


def doctor(*words, **env):
    """(exit status, stdout, stderr); nothing is left."""
    mark, child = start(words, env)
    out, errors = child.communicate(timeout=60)
    behind = left(mark)
    for pid in behind:  # a test that fails leaves nothing, either
        os.kill(pid, signal.SIGKILL)
    assert not behind
    assert "Traceback" not in errors, errors
    return child.returncode, out, errors


def tried(*words, **env):
    """(exit status, the `run` of the JSON)."""
    status, out, _ = doctor("--json", *words, **env)
    data = json.loads(out)
    check(data, SCHEMA)
    return status, data["run"]


# ---- served

def test_a_program_that_is_served():
    status, run = tried("--", APP, "ten")
    assert (status, run["verdict"]) == (0, "served") and run["served"] >= 1
    assert run["reason"].startswith("the first allocation, 1000 bytes, after ")
    assert "driver of CUDA 13.0" in run["device"] and run["road"] == "linked by name" and not run["problems"]
    status, out, _ = doctor(APP, "ten")
    assert status == 0 and out.startswith(f"{APP}: served: the first allocation, 1000 bytes")
    assert f"\n  library    {LIBRARY}\n" in out
    assert re.search(r"\n  seen       allocations, at least: \d+ served, 0 straight to the driver, ", out)


@pytest.mark.parametrize("program, road", [("road_dlsym-O2", "dlsym"), ("road_proc_v2-O2", "cuGetProcAddress")])
def test_the_road_is_the_one_that_was_taken(program, road):
    status, run = tried(BUILD / "tests" / "process" / "programs" / program, "9")
    assert status == 0 and run["road"] == f"looked up by {road}"


def test_it_ends_at_the_first_served_allocation_in_a_child(script):
    """With all that lives; the program's own output does not reach stdout."""
    program = script(f"echo noise; {APP} ten; sleep 1000 & setsid sleep 1000 & exec sleep 1000")
    status, run = tried(program)
    assert (status, run["end"]) == (0, "it was ended by SIGTERM") and ", in its process " in run["reason"]
    served = [one for one in run["processes"] if one["calls"]]
    assert len(served) == 1 and f"in its process {served[0]['pid']}" in run["reason"]


def test_no_counts_are_left_of_a_program_that_was_ended(tmp_path):
    (tmp_path / "done").write_bytes(bytes(4096))
    (tmp_path / "t").mkdir()
    status, out, _ = doctor(BUILD / "tests" / "process" / "death" / "die", "loop", 1, tmp_path / "done", TMPDIR=tmp_path / "t")
    assert status == 0 and "ended by SIGTERM" in out and not counts_left(tmp_path) and not os.listdir(tmp_path / "t"), out


def test_for_watches_past_the_first_allocation(script):
    program = script(f"{APP} ten; {APP} ten; {APP} ten")
    status, run = tried("--for", "1m", program)  # its own end comes first
    assert status == 0 and run["served"] == 30 and run["end"] == "it exited with 0"


# ---- passed through

@pytest.mark.parametrize("env, change", [
    ({"CACHEALLOC_DISABLE": "count"}, "unset CACHEALLOC_DISABLE"), ({"CACHEALLOC_CONF": "min_size:2M"}, "CACHEALLOC_CONF=under_framework:cache,min_size:0"),
])
def test_what_passes_through_and_what_changes_that(env, change):
    status, run = tried(APP, "ten", **env)
    assert (status, run["verdict"], run["served"], run["passed"]) == (3, "passed", 0, 10)
    assert change in run["changes"][0]


@pytest.mark.parametrize("conf, verdict", [("async:pool", "served"), ("async:keep", "passed")])
def test_stream_ordered_memory(conf, verdict):
    _, run = tried(BUILD / "tests" / "process" / "told" / "told_cases", "pairs", CACHEALLOC_CONF=conf)
    assert run["verdict"] == verdict and (run["served"] > 0) == (verdict == "served")


def test_a_disabled_library_passes_everything():
    status, run = tried(APP, "ten", CACHEALLOC_DISABLE="1")
    assert status == 3 and run["reason"] == "every call goes straight to the driver: CACHEALLOC_DISABLE is set; unset it"


def test_a_framework_with_its_own_cache_is_named_with_its_variable(script):
    program = script(f"LD_LIBRARY_PATH={FRAMEWORK}:$LD_LIBRARY_PATH {FRAMEWORK}/framework_app_linked {FRAMEWORK} open train:3; sleep 1")
    status, run = tried(program)
    assert status == 3 and run["passed"] >= 1 and run["frameworks"] == [{"name": "PyTorch", "version": None}]
    assert run["changes"][0].startswith("PyTorch's own cache is on: ") and "PYTORCH_NO_CUDA_MEMORY_CACHING=1" in run["changes"][0]
    status, run = tried(program, PYTORCH_NO_CUDA_MEMORY_CACHING="1")
    assert status == 0 and run["changes"][0].startswith("PyTorch's own cache is off (PYTORCH_NO_CUDA_MEMORY_CACHING)")


def test_a_framework_that_is_only_installed_is_not_named(tmp_path):
    """A Python that has JAX beside it runs a program without."""
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python3"
    python.symlink_to(sys.executable)
    plugin = tmp_path / "lib" / "python3.11" / "site-packages" / "jax_plugins" / "xla_cuda12" / "xla_cuda_plugin.so"
    plugin.parent.mkdir(parents=True)
    plugin.write_bytes(b"")
    code = "import ctypes; cuda = ctypes.CDLL('libcuda.so.1'); cuda.cuInit(0)"
    _, out, _ = doctor(python, "-c", code)
    assert "JAX" not in out and "own cache" not in out
    _, out, _ = doctor("--json", python, "-c", code)
    assert "JAX" not in out


# ---- not bound

@pytest.fixture
def sleeper(compiler, tmp_path):
    """sleeper(flags) -> a program that sleeps."""
    def make(*flags):
        source, program = tmp_path / "sleeper.c", tmp_path / "sleeper"
        source.write_text("#include <unistd.h>\nint main(void) { return (int)sleep(2); }\n")
        if subprocess.run([compiler, *flags, "-o", program, source], check=False).returncode:
            pytest.skip(f"nothing can be linked with {flags}")
        return program
    return make


def test_a_static_program(sleeper, script):
    """Itself, or what a shell starts: there at a glance."""
    program = sleeper("-static")
    status, run = tried(program)
    assert (status, run["verdict"]) == (1, "not_bound") and "statically linked" in run["reason"]
    status, run = tried(script(f"{program}; true", "starter.sh"))
    assert status == 1 and f"({program}) runs without the library: it is statically linked" in run["reason"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a program away")
def test_a_set_uid_program(sleeper, script, tmp_path):
    program = sleeper()
    os.chown(program, 65534, -1)
    program.chmod(0o4755)
    for words in ([program], [script(f"{program}; true", "starter.sh")]):
        status, run = tried(*words)
        assert status == 1 and "set-uid" in run["reason"], run


def test_a_dlsym_of_the_programs_own_is_not_bound(compiler, tmp_path):
    source, program = tmp_path / "p.c", tmp_path / "p"
    source.write_text("""#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
void *dlsym(void *handle, const char *name) { (void)handle; (void)name; return NULL; }
int main(int count, char **words) { (void)words; return count > 1 ? !dlopen("libcuda.so.1", RTLD_NOW) : usleep(300000); }
""")
    subprocess.run([compiler, "-D_GNU_SOURCE", "-rdynamic", "-o", program, source, "-ldl"], check=True)
    for words in ([program, "load"], [program]):  # the second one is never seen with a driver
        status, run = tried(*words)
        assert status == 1 and "dlsym of its own" in run["reason"]


# ---- nothing allocated, failed

def test_programs_that_allocate_nothing(script):
    for words in (["true"], [script("exit 0")], [sys.executable, "-c", "pass"]):
        status, run = tried(*words)
        assert (status, run["verdict"], run["end"]) == (4, "nothing_allocated", "it exited with 0"), words
        assert "it has made no CUDA call" in run["reason"]


#: the first thread ends at once, and the program with another half a second later
FIRST_THREAD_ENDS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=[0.5]).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_program_runs_as_long_as_any_of_its_threads():
    status, run = tried(sys.executable, "-c", FIRST_THREAD_ENDS)
    assert (status, run["verdict"], run["end"]) == (4, "nothing_allocated", "it exited with 0") and run["elapsed_ms"] >= 500


def test_for_is_the_limit_of_one_that_never_allocates():
    status, run = tried("--for", "300ms", "sleep", "1000")
    assert status == 4 and run["end"] == "it was ended by SIGTERM" and run["reason"].startswith("within ")


@pytest.mark.parametrize("line, end", [("kill -SEGV $$", "died by SIGSEGV"), ("kill -ABRT $$", "died by SIGABRT"), ("exit 3", "exited with 3")])
def test_programs_that_crash(script, line, end):
    status, run = tried(script(line))
    assert (status, run["verdict"]) == (5, "failed") and run["reason"] == f"it {end} before it allocated anything"


def test_a_refused_setting_is_told_with_its_line():
    status, run = tried(APP, "ten", CACHEALLOC_STRICT="1", CACHEALLOC_CONF="max_split_size_mb:64,foo:1")
    assert status == 5 and "exited with 125" in run["reason"]


# ---- ending

IGNORES = "trap '' TERM HUP INT; while :; do sleep 0.05; done"


def test_one_that_ignores_sigterm_is_killed_with_all_it_started(script):
    """Children in a session of their own, and orphans, too."""
    program = script(f"{IGNORES} &\nsetsid sh -c \"{IGNORES}\" &\n(setsid sh -c \"{IGNORES}\" &)\n{IGNORES}")
    status, run = tried("--for", "500ms", program)
    assert status == 4 and "did not end by SIGTERM within 2 s, and was killed" in run["end"]


def test_a_process_that_was_started_after_sigterm_is_ended_by_it_too(script):
    """As one is that was being forked when the others were looked for."""
    status, run = tried("--for", "300ms", script("trap 'setsid sleep 1000 & exit 0' TERM\nwhile :; do sleep 0.05; done"))
    assert status == 4 and run["end"].endswith("was ended by SIGTERM")


def test_a_program_that_leaves_a_process_behind(script):
    status, run = tried("--for", "300ms", script("setsid sleep 1000 & exit 0"))
    assert status == 4 and run["end"] == "it exited with 0, and what it had started was ended by SIGTERM"


def test_a_stopped_program_is_ended(script):
    status, run = tried("--for", "300ms", script("kill -STOP $$; sleep 1000"))
    assert status == 4 and "was ended by SIGTERM" in run["end"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_ends_it_all_and_still_reports(script, tmp_path, number):
    mark, child = start([script(f"touch {tmp_path}/begun; setsid sleep 1000 & exec sleep 1000")], {})
    while not (tmp_path / "begun").exists():
        assert child.poll() is None
        time.sleep(0.01)
    child.send_signal(number)
    out, errors = child.communicate(timeout=60)
    assert child.returncode == 4 and "nothing was allocated: interrupted; " in out and "Traceback" not in errors
    assert not left(mark)


def test_its_own_death_takes_the_program_along(script, tmp_path):
    mark, child = start([script(f"touch {tmp_path}/begun; exec sleep 1000")], {})
    while not (tmp_path / "begun").exists():
        time.sleep(0.01)
    child.kill()
    child.communicate(timeout=60)
    until = time.monotonic() + 30
    while left(mark) and time.monotonic() < until:
        time.sleep(0.01)
    assert not left(mark)


# ---- wrong words

@pytest.mark.parametrize("words, message", [
    (["--run"], "one program is needed"), (["--run", "no-such-program-here"], "not found or not executable"),
    (["--for", "1s", "true"], "go with --run"), (["--sim", "true"], "go with --run"), (["--run", "--for", "10", "true"], "expected a duration"),
    (["--run", "--for", "0s", "true"], "expected a duration"), (["true", "x"], "--run takes both"),
    (["--run", "--library", "/no/such", "true"], "was not found"),
])
def test_wrong_words_are_2(words, message):
    done = subprocess.run([sys.executable, COMMAND, "doctor", *words], env=environment(CACHEALLOC_BUILD=BUILD), text=True, timeout=60,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 2 and message in done.stderr and done.stderr.count("\n") == 1 and not done.stdout


def test_a_program_that_cannot_be_executed(tmp_path):
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELFnonsense")
    broken.chmod(0o755)
    status, out, errors = doctor(broken)
    assert status == 2 and not out and errors.count("\n") == 1 and "broken" in errors
    broken.write_text("#!/no/such/interpreter\n")
    status, out, errors = doctor(broken)
    assert status == 2 and errors == f"cachealloc: error: doctor: {broken}: its interpreter or loader was not found\n"
