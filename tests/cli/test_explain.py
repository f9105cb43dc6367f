# SPDX-License-Identifier: MIT
"""`cachealloc explain`: each cause, the figures, and that the program lives with what is advised."""

import json
import os
import shutil
import struct
import subprocess
import sys
import types

import pytest
from command import COMMAND, ROOT, environment
from conftest import BUILD, run
from schema import check

sys.path.insert(0, str(ROOT / "tests" / "traces"))
from cachealloc_cli import causes, oom_text, record  # noqa: E402
from workloads import catalogue  # noqa: E402

QUICK_EVERY = 4  # conftest.py

PROGRAM = BUILD / "tests" / "traces" / "trace_program"
SCHEMA = json.loads((ROOT / "scripts" / "schema" / "explain.schema.json").read_text())
MIB, GIB = 1 << 20, 1 << 30


@pytest.fixture(autouse=True)
def _built():
    if not PROGRAM.exists():
        pytest.skip(f"not built: {PROGRAM.name}")


def explain(*words, stdin=subprocess.DEVNULL, **env):
    return subprocess.run([sys.executable, COMMAND, "explain", *map(str, words)], stdin=stdin, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=600, check=False,
                          env=environment(**{"CACHEALLOC_BUILD": BUILD, **env}))


def explained(*words):
    """The answer as JSON, and as text."""
    done = explain("--json", *words)
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    check(data, SCHEMA)
    return data


def recorded(folder, trc, memory, status=1, **env):
    """The trace of trace_program on a device of that size, and what it said."""
    path = folder / "oom.trace"
    done = run([PROGRAM, trc], SIMCUDA_MEM=memory, CACHEALLOC_TRACE=path, **env)
    assert (done.returncode != 0) == bool(status), done.stderr
    return path, done.stderr


@pytest.fixture(scope="module")
def checkerboard(tmp_path_factory):
    path = tmp_path_factory.mktemp("explain") / "w10d.trc"
    path.write_text(catalogue.make("W10d", 1, 0.03))
    return path


# ------------------------------------------------------------------------------------------- from a recording ---


def test_fragmentation_is_proved_and_the_program_lives_with_the_advice(tmp_path, checkerboard):
    path, said = recorded(tmp_path, checkerboard, "7200M")
    answer = explained("--lag", "0", path)
    assert (answer["cause"], answer["proved"]) == ("fragmentation", True)
    figures = answer["figures"]
    assert figures["device_memory_bytes"] == 7200 * MIB and figures["live_bytes"] < figures["reserved_bytes"] <= 7200 * MIB
    assert f"{figures['request_bytes']} bytes were asked for" in said
    proofs = {(each["conf"], each["lives"]) for each in answer["proofs"]}
    assert proofs == {("", False), (answer["conf"], True)}
    assert answer["min_capacity_bytes"] > 7200 * MIB
    # the simulated device is not the replay's: the program itself gets past the point with the advice
    done = run([PROGRAM, checkerboard], SIMCUDA_MEM="7200M", CACHEALLOC_CONF=answer["conf"])
    assert done.returncode == 0, done.stderr
    with path.open("rb") as file:
        piped = explain("--lag", "0", "--json", "-", stdin=file)
    assert json.loads(piped.stdout)["commands"] == answer["commands"]
    (command,) = answer["commands"]
    assert command == f"{COMMAND} run --conf {answer['conf']} -- FOLDER/trace_program ARGUMENTS"
    assert "its folder, its arguments and its other variables" in answer["notes"][-1] and "PYTORCH" not in str(answer["notes"])
    text = explain("--lag", "0", path).stdout
    assert text.startswith("fragmentation: ") and "would have lived" in text.splitlines()[0] and command in text
    assert "as it is: runs out with" in text and f"{answer['conf']}: lives with" in text


@pytest.mark.parametrize("env, before, after", [
    ({}, "PYTORCH_NO_CUDA_MEMORY_CACHING=1 ", ""), ({"CACHEALLOC_TAKEOVER": "torch"}, "", "--take-over torch ")])
def test_the_command_for_a_recorded_python_has_an_effect_under_pytorch(tmp_path, checkerboard, env, before, after):
    """A recording does not have the variable by which PyTorch lets the library in."""
    python = tmp_path / "python3"
    shutil.copy(PROGRAM, python)
    path = tmp_path / "oom.trace"
    run([python, checkerboard], SIMCUDA_MEM="7200M", CACHEALLOC_TRACE=path, **env)
    answer = explained("--lag", "0", path)
    (command,) = answer["commands"]
    assert command == f"{before}{COMMAND} run --conf {answer['conf']} {after}-- python3 ARGUMENTS"
    assert ("PYTORCH_NO_CUDA_MEMORY_CACHING=1 is for PyTorch" in answer["notes"][-1]) == bool(before)


def test_a_command_can_be_copied_into_a_shell():
    from cachealloc_cli.answer import _run_line
    case = types.SimpleNamespace(is_framework=False, may_be_pytorch=False, program="my app", variables={})
    assert _run_line(case, "roundup_power2_divisions:[256:1,>:8]").endswith(
        " run --conf 'roundup_power2_divisions:[256:1,>:8]' -- 'FOLDER/my app' ARGUMENTS")


def test_a_command_is_shown_as_its_user_starts_it(tmp_path):
    """By its name only where PATH finds it."""
    (tmp_path / "cachealloc").symlink_to(COMMAND)
    log = tmp_path / "log"
    log.write_text(OLD)
    for path, said in ((os.environ["PATH"], COMMAND), (f"{tmp_path}:{os.environ['PATH']}", "cachealloc")):
        assert f" {said} run -- PROGRAM" in explain(log, PATH=path).stdout
    done = subprocess.run([sys.executable, "-m", "cachealloc_cli", "explain", log], stdout=subprocess.PIPE, text=True, check=True,
                          env=environment(PYTHONPATH=ROOT / "scripts", PYTHONDONTWRITEBYTECODE="1"))
    assert f" {sys.executable} -m cachealloc run -- PROGRAM" in done.stdout


def test_too_much_is_too_much_and_no_setting_is_named(tmp_path):
    trc = tmp_path / "large.trc"
    trc.write_text("".join(f"A {i} {100 * MIB} 0\n" for i in range(12)))
    path, _ = recorded(tmp_path, trc, "1G")
    answer = explained(path)
    assert (answer["cause"], answer["proved"], answer["conf"]) == ("too_much", True, None)
    assert answer["figures"]["live_bytes"] == 1000 * MIB and answer["figures"]["request_bytes"] == 100 * MIB
    assert "no setting helps" in answer["verdict"]


@pytest.mark.parametrize("env", [{"CACHEALLOC_LIMIT": "512M"}, {"CACHEALLOC_CONF": "per_process_memory_fraction:0.5"}])
def test_a_cap_is_named_and_lives_without_it(tmp_path, env):
    trc = tmp_path / "large.trc"
    trc.write_text("".join(f"A {i} {100 * MIB} 0\n" for i in range(7)))
    path, _ = recorded(tmp_path, trc, "1G", **env)
    answer = explained(path)
    assert answer["cause"] == "cap" and answer["figures"]["allowed_bytes"] == 512 * MIB
    assert answer["conf"] is None and "512.00 MiB" in answer["verdict"]
    assert answer["proved"] and answer["proofs"][-1]["memory_bytes"] == GIB and answer["proofs"][-1]["lives"]


KINDS = {"alloc": 1, "free": 3, "failed": 5, "taken": 6, "refused": 8, "device": 11, "end": 15}


def made_trace(path, *records, program=b""):
    """A trace of our own with such records: (kind, a, b)."""
    name = struct.pack("<II", 2, len(program)) + program + b"\0" * (-len(program) % 8)
    header = struct.pack("<8sIHHIIIIQQII", b"\x89CAtr\r\n\n", 0x01020304, 1, 1, 56 + len(name), 56, 24, 1, 0, 0, 7, 1) + name
    path.write_bytes(header + b"".join(struct.pack("<BBHIQQ", KINDS[kind], 0, 0xffff, 0, a, b) for kind, a, b in records))
    return path


@pytest.mark.parametrize("memory, cause", [(1024, "refused"), (500, "others"), (250, "too_much")])
def test_others_on_the_device(tmp_path, memory, cause):
    """The driver refused 200 MiB although the program held 100 MiB of the device."""
    answer = explained(made_trace(
        tmp_path / "t.trace", ("device", memory * MIB, 0), ("taken", 1 << 32, 100 * MIB), ("alloc", 1 << 32, 90 * MIB),
        ("refused", 200 * MIB, 2), ("failed", 200 * MIB, 2), ("end", 0, 0)))
    assert (answer["cause"], answer["proved"], answer["conf"]) == (cause, cause != "refused", None)
    if cause != "too_much":
        assert answer["figures"]["others_bytes"] == (memory - 100 - 200 + 2) * MIB
        assert answer["proofs"][-1] == {"conf": "", "lag_us": None, "memory_bytes": memory * MIB, "lives": True}


def test_a_program_that_went_on_is_said_to_have(tmp_path):
    answer = explained(made_trace(
        tmp_path / "t.trace", ("device", 64 * MIB, 0), ("taken", 1 << 32, 20 * MIB), ("alloc", 1 << 32, 9 * MIB),
        ("refused", 60 * MIB, 2), ("failed", 60 * MIB, 2), ("alloc", 1 << 40, MIB), ("end", 0, 0)))
    assert answer["cause"] == "too_much" and "went on allocating" in answer["notes"][-1]


def test_others_in_a_report(tmp_path):
    report = tmp_path / "log"
    report.write_text("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity "
                      "of 22.00 GiB of which 1.00 GiB is free. Process 7 has 9.00 GiB memory in use. Of the allocated memory "
                      "10.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated.\n")
    answer = explained(report)
    assert answer["cause"] == "others" and answer["figures"]["others_bytes"] == 10 * GIB


def snapshot(folder, device_free, size):
    """20 MiB live at the end in two segments of 20, of which `size` was refused."""
    def event(action, size, address, **more):
        return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": 1, **more}
    events = [event("segment_alloc", 20 * MIB, 0), event("alloc", 10 * MIB, 0), event("alloc", 10 * MIB, 10 * MIB),
              event("segment_alloc", 20 * MIB, 32 * MIB), event("free", 10 * MIB, 10 * MIB), event("alloc", 10 * MIB, 32 * MIB),
              {"action": "oom", "size": size, "stream": 0, "device_free": device_free}]
    path = folder / "snapshot.json"
    path.write_text(json.dumps({"segments": [
        {"total_size": 20 * MIB, "blocks": [{"address": address, "size": 10 * MIB, "state": "active_allocated"}]}
        for address in (0, 32 * MIB)], "device_traces": [events]}))
    return path


def test_a_snapshot_that_our_cache_would_have_served(tmp_path):
    """Two halves free in two segments: PyTorch's cache can give back neither; ours never takes the second."""
    answer = explained(snapshot(tmp_path, device_free=2 * MIB, size=20 * MIB))
    assert answer["cause"] == "framework_cache" and answer["proved"] and answer["source"] == "PyTorch snapshot (JSON)"
    assert answer["figures"]["capacity_bytes"] == 42 * MIB and answer["figures"]["reserved_bytes"] == 40 * MIB
    assert all(each["lives"] and each["memory_bytes"] == 42 * MIB for each in answer["proofs"])
    assert answer["commands"] == [f"PYTORCH_NO_CUDA_MEMORY_CACHING=1 {COMMAND} run -- python train.py ARGUMENTS"]
    expandable, = answer["notes"]
    assert "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in expandable
    snap = json.loads((tmp_path / "snapshot.json").read_text())
    snap["device_traces"][0].pop(1)  # the recording began later
    (tmp_path / "snapshot.json").write_text(json.dumps(snap))
    assert explained(tmp_path / "snapshot.json")["notes"] == [
        expandable, "1 blocks were there when the recording began: the replay lays them out anew"]


def test_a_refusal_can_be_tried_on_another_device(tmp_path):
    path = snapshot(tmp_path, device_free=2 * MIB, size=30 * MIB)
    answer = explained("--memory", "64M", path)
    assert answer["cause"] == "nothing_failed" and not answer["notes"]
    assert explained("--memory", "40M", path)["cause"] == "too_much"


def test_a_snapshot_whose_device_had_enough_free_may_have_been_capped(tmp_path):
    answer = explained(snapshot(tmp_path, device_free=5 * GIB, size=20 * MIB))
    assert (answer["cause"], answer["proved"]) == ("refused", False) and "does not tell" in answer["proof_text"] + answer["notes"][-1]


def test_a_recording_in_which_nothing_failed_says_what_is_missing(checkerboard):
    answer = explained(checkerboard)
    assert answer["cause"] == "nothing_failed" and not answer["proofs"] and "--memory SIZE" in answer["proof_text"]
    assert "is not in it" in answer["verdict"]
    lives = explained("--memory", "12G", checkerboard)
    assert lives["cause"] == "nothing_failed" and all(each["lives"] for each in lives["proofs"])
    dies = explained("--memory", "2G", checkerboard)
    assert dies["cause"] == "too_much" and dies["conf"] is None


def test_a_recording_in_which_nothing_failed_says_how_large_the_device_was(tmp_path):
    path = made_trace(tmp_path / "t.trace", ("device", 64 * MIB, 0), ("taken", 1 << 32, 20 * MIB), ("alloc", 1 << 32, 9 * MIB),
                      ("end", 0, 0))
    answer, said = explained(path), explain(path).stdout
    assert answer["cause"] == "nothing_failed" and "the device had 64.00 MiB: --memory SIZE" in answer["verdict"]
    assert answer["proof_text"] == "none is needed: no request was refused"
    assert "not in it" not in said and "does not say" not in said


# ------------------------------------------------------------------------------- from a report or statistics ---

OLD = ("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 1; 23.69 GiB total capacity; 19.51 GiB already "
       "allocated; 1.20 GiB free; 22.00 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting "
       "max_split_size_mb to avoid fragmentation.\n")
OLDEST = ("RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.79 GiB total capacity; 7.78 GiB already "
          "allocated; 2.00 MiB free; 512.00 MiB cached)\n")
NEW = ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.69 GiB of which "
       "1.20 GiB is free. Including non-PyTorch memory, this process has 22.49 GiB memory in use. {allowed}Of the allocated "
       "memory 19.00 GiB is allocated by PyTorch, and 3.00 GiB is reserved by PyTorch but unallocated. If reserved but "
       "unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n")


POOL = ("Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 54.00 GiB\n"
        "Requested               : {request} GiB\nDevice limit            : 79.00 GiB\nFree (according to CUDA): 27.00 MiB\n"
        "PyTorch limit (set by user-supplied memory fraction)\n                        : {limit} GiB\n")


@pytest.mark.parametrize("text, cause, figures", [
    (POOL.format(request="1.00", limit="17179869184.00"), "unknown", (GIB, 54, None, 79)),
    (POOL.format(request="8.00", limit="60.00"), "cap", (8 * GIB, 54, None, 79)),
    (OLD + POOL.format(request="30.00", limit="90.00"), "too_much", (30 * GIB, 54, None, 79)),
    (OLD, "fragmentation", (2 * GIB, 19.51, 22, 23.69)),
    (OLDEST, "too_much", (20 * MIB, 7.78, 8.28, 7.79)),
    (NEW.format(allowed=""), "fragmentation", (2 * GIB, 19, 22, 23.69)),
    (NEW.format(allowed="20.00 GiB allowed; ").replace("total capacity", "total capacty"), "cap", (2 * GIB, 19, 22, 23.69)),
    (NEW.format(allowed="").replace("allocate 2.00", "allocate 9.00"), "too_much", (9 * GIB, 19, 22, 23.69))])
def test_sentences_of_pytorch_old_and_new(tmp_path, text, cause, figures):
    path = tmp_path / "train.log"
    path.write_text("epoch 1\n" + text)
    answer = explained(path)
    assert answer["cause"] == cause and answer["conf"] is None
    found = [answer["figures"][f"{name}_bytes"] for name in ("request", "live", "reserved", "device_memory")]
    assert found == [figures[0], *(value and round(value * GIB) for value in figures[1:])]
    assert answer["proved"] is False
    if cause == "fragmentation":
        assert "a recording of the program is needed" in answer["proof_text"]
        assert "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in answer["notes"][-1]
        assert answer["commands"][0].startswith("PYTORCH_NO_CUDA_MEMORY_CACHING=1 CACHEALLOC_TRACE=oom.trace ")


def test_our_own_report_as_the_library_wrote_it(tmp_path, checkerboard):
    trace, said = recorded(tmp_path, checkerboard, "7200M")
    log = tmp_path / "log"
    log.write_text(OLD + "step 7\n" + said)
    answer, of_trace = explained(log), explained("--lag", "0", trace)
    assert answer["source"] == "out-of-memory report of cachealloc" and answer["cause"] == "fragmentation"
    assert answer["figures"]["request_bytes"] == of_trace["figures"]["request_bytes"]
    assert abs(answer["figures"]["live_bytes"] - of_trace["figures"]["live_bytes"]) < 16 * MIB
    assert answer["figures"]["largest_bytes"] and "2 reports" in answer["notes"][0]
    assert answer["commands"] == [f"CACHEALLOC_TRACE=oom.trace {COMMAND} run -- PROGRAM ARGUMENTS",
                                  f"{COMMAND} explain oom.trace"]


@pytest.mark.parametrize("lines", [False, True])
def test_statistics_say_what_they_do_not_hold(tmp_path, lines):
    trc = tmp_path / "large.trc"
    trc.write_text("".join(f"A {i} {100 * MIB} 0\n" for i in range(12)))
    path = tmp_path / "stats.json"
    run([PROGRAM, trc], SIMCUDA_MEM="1G", CACHEALLOC_STATS=path)
    if lines:
        path.write_text('{"format": "stats", "devices": []}\n' + path.read_text())
    answer = explained(path)
    assert answer["cause"] == "unknown" and "statistics have neither" in answer["proof_text"]
    assert explained("--memory", "1G", path)["cause"] == "too_much"
    path.write_text(path.read_text().replace('"ooms":1', '"ooms":0'))
    assert explained(path)["cause"] == "nothing_failed"
    said = explain(path).stdout  # peaks only: not beside what was free at exit
    assert "live, at its peak" in said and "reserved, at its peak" in said and "the largest" not in said and "pieces" not in said


# -------------------------------------------------------------------------------------------------- the parts ---


@pytest.mark.parametrize("known, cause", [
    ({}, causes.UNKNOWN), ({"request": 5, "live": 5}, causes.UNKNOWN),
    ({"request": 5, "live": 6, "device_memory": 10, "reserved": 6}, causes.TOO_MUCH),
    ({"request": 2, "live": 6, "device_memory": 100, "reserved": 9, "allowed": 10}, causes.CAP),
    ({"request": 20, "live": 60, "device_memory": 100, "reserved": 65, "free": 5}, causes.OTHERS),
    ({"request": 20, "live": 60, "device_memory": 100, "reserved": 90, "free": 5}, causes.FRAGMENTATION),
    ({"request": 20, "live": 60, "reserved": 90, "free": 20 + causes.SLACK}, causes.REFUSED),
    ({"request": 20, "live": 60, "reserved": 90, "free": 20 + causes.SLACK, "allowed": 200}, causes.CAP)])
def test_the_cause_that_explains_most(known, cause):
    assert causes.cause(causes.Figures(**known)) == cause


def test_caps_of_recorded_settings():
    assert record.allowed_bytes({}, GIB) is None
    assert record.allowed_bytes({"CACHEALLOC_LIMIT": "1.5G"}, 4 * GIB) == 1.5 * GIB
    assert record.allowed_bytes({"CACHEALLOC_LIMIT": "50%", "CACHEALLOC_CONF": "per_process_memory_fraction:0.25"},
                                4 * GIB) == GIB
    assert record.size("22G") == 22 * GIB and record.size("512MiB") == 512 * MIB and record.size("77") == 77
    for text in ("", "x", "0", "5X", "-1G", "G", "nan"):
        with pytest.raises(ValueError):
            record.size(text)


def test_a_broken_sentence_gives_no_figure():
    assert oom_text.parse("Tried to allocate lots") is None
    figures = oom_text.parse("Tried to allocate 1.2.3 GiB")
    assert figures is None or figures.request is None


@pytest.mark.parametrize("make, words", [
    (lambda path: path.write_bytes(b""), "the file is empty"), (lambda path: path.write_text("hello\n"), "neither a recording"),
    (lambda path: path.write_text('{"format": "stats"'), "cut off"), (lambda path: path.mkdir(), "Is a directory"),
    (lambda path: None, "No such file"), (lambda path: path.write_bytes(b"\x89CAtr\r\n\n" + b"x" * 90), "byte order")])
def test_bad_input_is_one_line_and_1(tmp_path, make, words):
    path = tmp_path / "file"
    make(path)
    done = explain(path)
    assert done.returncode == 1 and not done.stdout and words in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("words, said", [
    ([], "no file"), (["a", "b"], "more than one"), (["--memory", "x", "a"], "expected a size"), (["--device", "64", "a"], "63")])
def test_wrong_words_are_2(words, said):
    done = explain(*words)
    assert done.returncode == 2 and said in done.stderr and not done.stdout


def test_a_trace_that_was_cut_is_explained_as_far_as_it_goes(tmp_path, checkerboard):
    path, _ = recorded(tmp_path, checkerboard, "7200M")
    path.write_bytes(path.read_bytes()[:-30])
    done = explain("--lag", "0", path)
    assert done.returncode == 0 and "is cut off" in done.stderr


def test_standard_input_is_a_file_like_any_other(tmp_path):
    (tmp_path / "log").write_text(OLD)
    with (tmp_path / "log").open() as file:
        done = explain("-", stdin=file)
    assert done.returncode == 0 and done.stdout.startswith("fragmentation: ")


# ---------------------------------------------------------------------------------------------------- pools ---


def test_stream_ordered_memory_that_was_too_much(tmp_path):
    """200 MiB are live, and 100 are refused: by the recording up to there, and by the report."""
    path, log = tmp_path / "oom.trace", tmp_path / "oom.log"
    done = run([BUILD / "tests" / "process" / "told" / "told_cases", "out_of_memory"], check=0, SIMCUDA_MEM="256M",
               CACHEALLOC_CONF="async:pool", CACHEALLOC_TRACE=path)
    data, at = path.read_bytes(), struct.unpack_from("<I", path.read_bytes(), 16)[0]
    while data[at] != 21:  # async_failed: cachealloc-trace(5)
        at += 24
    path.write_bytes(data[:at + 24])
    log.write_text(done.stderr)
    for file in (path, log):
        answer = explained(file)
        figures = answer["figures"]
        assert (answer["cause"], figures["live_bytes"], figures["request_bytes"]) == ("too_much", 200 * MIB, 100 * MIB)
        assert figures["reserved_bytes"] == 200 * MIB and figures["device_memory_bytes"] == 256 * MIB


#: stream-ordered memory, which is not recorded unless it is cached here
POOLED = """
import ctypes
driver, block, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64(), ctypes.c_void_p()
assert not driver.cuInit(0) and not driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
assert not driver.cuCtxSetCurrent(context)
assert driver.cuMemAllocAsync(ctypes.byref(block), ctypes.c_size_t(1 << 40), None) == 2
"""


def test_a_recording_without_an_allocation_says_so(tmp_path):
    path = tmp_path / "app.trace"
    done = run([sys.executable, "-c", POOLED], CACHEALLOC_TRACE=path)
    assert done.returncode == 0, done.stderr
    answer = explained(path)
    assert answer["cause"] == "nothing_failed" and answer["verdict"].startswith("nothing was allocated in this record")
    assert "async:pool" in answer["notes"][0] and answer["commands"][0].startswith("CACHEALLOC_CONF=async:pool ")
