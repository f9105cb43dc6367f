# SPDX-License-Identifier: MIT
"""`cachealloc explain` on logs, as people have them."""

import json
import subprocess
import sys
import textwrap

import pytest
from command import COMMAND, environment
from conftest import BUILD, run
from test_explain import GIB, MIB, NEW, OLD, explain, explained, oom_text

QUICK_EVERY = 4  # conftest.py

PROGRAM = BUILD / "tests" / "traces" / "trace_program"


@pytest.fixture(autouse=True)
def _built():
    if not PROGRAM.exists():
        pytest.skip(f"not built: {PROGRAM.name}")


def log(folder, text):
    path = folder / "train.log"
    path.write_text(text)
    return path


# ------------------------------------------------------------------------------------ refused although free ---


@pytest.mark.parametrize("line", [
    "Tried to allocate 2.26 GiB (GPU 0; 6.00 GiB total capacity; 781.59 MiB already allocated; 3.03 GiB free; 1.24 GiB reserved in "
    "total by PyTorch)",
    "Tried to allocate 12.50 MiB (GPU 0; 10.92 GiB total capacity; 8.57 MiB already allocated; 9.28 GiB free; 4.68 MiB cached)"])
def test_without_a_limit_in_the_line_no_limit_is_blamed(tmp_path, line):
    path = log(tmp_path, f"CUDA out of memory. {line}\n")
    answer = explained(path)
    assert (answer["cause"], answer["proved"]) == ("refused", False) and answer["proof_text"].startswith("none: ")
    said = explain(path).stdout
    assert "fraction" not in said and " cap" not in said and "nvidia-smi" in said and "host" in said and "MIG" in said


def test_with_a_limit_in_the_line_it_is_a_cap(tmp_path):
    answer = explained(log(tmp_path, "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 23.69 GiB of "
                           "which 10.06 GiB is free. 11.84 GiB allowed; Including non-PyTorch memory, this process has 12.54 GiB "
                           "memory in use. Of the allocated memory 11.80 GiB is allocated by PyTorch, and 41.42 MiB is reserved by "
                           "PyTorch but unallocated.\n"))
    assert answer["cause"] == "cap" and "set_per_process_memory_fraction" in answer["notes"][-1]


def test_a_driver_that_refuses_what_is_free_is_the_same_in_the_log_and_in_the_trace(tmp_path):
    trc, trace = tmp_path / "small.trc", tmp_path / "oom.trace"
    trc.write_text("".join(f"A {i} {600 << 10} 0\n" for i in range(12)))
    done = run([PROGRAM, trc], SIMCUDA_FAIL="cuMemAlloc_v2:3+:2", CACHEALLOC_TRACE=trace)
    assert done.returncode and "Tried to allocate" in done.stderr
    assert "free and refused all the same" in done.stderr and "in pieces" not in done.stderr  # the library's own hint
    of_log, of_trace = explained(log(tmp_path, done.stderr)), explained(trace)
    assert of_log["cause"] == of_trace["cause"] == "refused" and not of_trace["proved"]
    assert of_log["figures"]["free_bytes"] > 15 * GIB and of_trace["figures"]["free_bytes"] is None
    assert "no setting" not in of_trace["verdict"] and "explain LOG" in of_trace["notes"][-1]
    assert of_trace["figures"]["request_bytes"] < MIB


# ----------------------------------------------------------------------------------------- whose memory it is ---

VLLM = ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {request} GiB. GPU 0 has a total capacity of 23.52 GiB of which "
        "{free} MiB is free. Including non-PyTorch memory, this process has {process} GiB memory in use. Of the allocated memory 22.03 "
        "GiB is allocated by PyTorch, with 80.00 MiB allocated in private pools (e.g., CUDA Graphs), and 95.63 MiB is reserved by "
        "PyTorch but unallocated.\n")


def test_memory_of_this_process_is_not_that_of_others(tmp_path):
    path = log(tmp_path, VLLM.format(request="1.16", free="945.06", process="22.59"))
    answer = explained(path)
    figures = answer["figures"]
    assert answer["cause"] == "outside" and figures["others_bytes"] == 0
    assert abs(figures["outside_bytes"] - 0.47 * GIB) < 16 * MIB and figures["process_bytes"] == round(22.59 * GIB)
    said = explain(path).stdout
    assert "nvidia-smi" not in said and "other processes" not in said and "held by others" not in said and "NCCL" in said


@pytest.mark.parametrize("process", ["22.59", "21.00"])
def test_private_pools_are_named(tmp_path, process):
    line = VLLM.format(request="1.16", free="945.06", process=process)
    assert sum("80.00 MiB were in private pools" in note for note in explained(log(tmp_path, line))["notes"]) == 1
    assert not any("private" in note for note in explained(log(tmp_path, line.replace(" allocated in private", " in pub")))["notes"])


def test_memory_of_others_is_not_that_of_this_process(tmp_path):
    path = log(tmp_path, VLLM.format(request="1.16", free="100.00", process="22.30"))
    answer = explained(path)
    assert answer["cause"] == "others" and answer["figures"]["others_bytes"] > answer["figures"]["outside_bytes"] > 0
    said = explain(path).stdout
    assert "held by other processes;" in said and "this process, outside PyTorch" in said and "nvidia-smi" in said


@pytest.mark.parametrize("process, room", [
    ("", "18.29 GiB, the device's 79.14 GiB less 60.85 GiB that other processes, libraries and contexts held, but"),
    ("Including non-PyTorch memory, this process has 18.80 GiB memory in use. ", "18.29 GiB, the device's 79.14 GiB less 60.34 GiB that "
     "other processes held and 522.24 MiB of this process outside PyTorch, but")])
def test_fragmentation_is_of_what_the_others_left(tmp_path, process, room):
    path = log(tmp_path, f"CUDA out of memory. Tried to allocate 880.00 MiB. GPU 0 has a total capacity of 79.14 GiB of which 0 bytes is "
               f"free. Process 7 has 60.34 GiB memory in use. {process}Of the allocated memory 17.42 GiB is allocated by PyTorch, and "
               "890.88 MiB is reserved by PyTorch but unallocated.\n")
    answer = explained(path)
    assert answer["cause"] == "fragmentation" and f"17.42 GiB live and 880.00 MiB asked for would fit into {room}" in answer["verdict"]


# ----------------------------------------------------------------------------------------------- broken lines ---


def broken_hard(text, width):
    return "\n".join(text[at:at + width] for at in range(0, len(text), width))


def in_a_box(text, width):
    return "\n".join(f"│ {line:{width}} │" for line in textwrap.wrap(text, width))


def labelled(text, width):
    return "\n".join(f"3: {line}" for line in textwrap.wrap(text, width))


def wrapped(text, width):
    return "\r\n".join(textwrap.wrap(text, width))


@pytest.mark.parametrize("break_up", [wrapped, in_a_box, labelled, broken_hard])
@pytest.mark.parametrize("line", [OLD, NEW.format(allowed="20.00 GiB allowed; "), VLLM.format(request="1.16", free="945.06",
                                                                                            process="22.59")])
def test_a_broken_line_has_the_figures_of_a_whole_one(line, break_up):
    whole = oom_text.parse(line)
    assert None not in (whole.request, whole.live, whole.reserved, whole.free, whole.device_memory)
    lines = line[line.index("CUDA"):]
    for width in (40, 79, 100):
        found = oom_text.parse("epoch 1\n" + OLD + break_up(lines, width) + "\nWARNING 3.00 GiB allowed; 2.00 GiB free; this process "
                               "has 1.00 GiB memory in use\n")
        assert found.as_json() == whole.as_json() and (found.device, found.reports) == (whole.device, 2), width


@pytest.mark.parametrize("text", [NEW.format(allowed=""), NEW.format(allowed="").replace("CUDA out", "HIP out"),
                                  "RuntimeError: Allocation on device 3 would exceed allowed memory. (out of memory)\nCurrently allocated     : "
                                  "20.33 GiB\nRequested               : 1.00 GiB\nDevice limit            : 23.69 GiB\n"],
                         ids=["CUDA", "HIP", "pools"])
def test_a_line_that_is_broken_within_its_first_words_is_read(tmp_path, text):
    """A terminal breaks by width alone, behind whatever a logger writes in front."""
    whole = oom_text.parse(text)
    first, rest = text.split("\n", 1)
    for before in range(80):
        found = oom_text.parse(broken_hard("x" * before + " " + first, 80) + "\n" + rest)
        assert found and (found.as_json(), found.device, found.platform) == (whole.as_json(), whole.device, whole.platform), before
    broken = explained(log(tmp_path, broken_hard("2025-01-01 10:00:00 ERROR rank0 " + OLD, 80)))
    assert broken["figures"] == explained(log(tmp_path, OLD))["figures"]


@pytest.mark.parametrize("unit", [" bytes", ""], ids=["today", "older"])
def test_our_report_that_is_broken_has_the_figures_of_its_second_line(unit):
    text = ("cachealloc[7841]: warning: CUDA out of memory. Tried to allocate 156.25 MiB. GPU 0 has a total capacity of 21.97 GiB of which "
            "66.00 MiB is free. Of the allocated memory 21.69 GiB is allocated by the program, and 221.96 MiB is reserved by cachealloc but "
            f"unallocated.\ncachealloc[7841]: warning: out of memory: 163840000 bytes were asked for; the largest free block has 77594624{unit}. "
            "Free: 221.96 MiB for every stream, 0 B still in use\n")
    for width in range(60, 140):
        found = oom_text.parse("\n".join(broken_hard(line, width) for line in text.splitlines()))
        assert (found.request, found.largest) == (163840000, 77594624), width


def test_a_report_that_broke_off_does_not_take_the_figures_of_the_next():
    text = "Tried to allocate 2.00 GiB. GPU 0 has a total\n" + OLD + "Tried to allocate 2.00 GiB. GPU 0 has a total\n"
    found = oom_text.parse(text)
    assert found.live is None and found.reports == 3


# ------------------------------------------------------------------------------------------------- long files ---


def test_a_report_that_a_long_log_follows_is_found(tmp_path):
    path = log(tmp_path, OLD)
    figures = explained(path)["figures"]
    with path.open("r+b") as file:
        file.truncate(70 << 20)  # zeros, as in a log that was truncated while a program appended to it
    assert explained(path)["figures"] == figures
    path.write_text("step 1\ncudaMalloc failed: out of memory\n")
    with path.open("r+b") as file:
        file.truncate(70 << 20)
    assert "it says that memory ran out" in explain(path).stderr


def test_each_report_of_a_text_in_pieces_is_found_once_and_whole():
    whole = oom_text.parse(OLD)
    for before in range(65000, 66000, 30):
        text = "x" * before + " " + OLD + "y" * 70000 + OLD
        found = oom_text.reports(text[at:at + 4096] for at in range(0, len(text), 4096))
        assert [each.as_json() for each in found] == 2 * [whole.as_json()], before


# --------------------------------------------------------------------------------------------------- options ---


def test_the_device_that_was_asked_for_is_explained(tmp_path):
    new = NEW.format(allowed="")
    path = log(tmp_path, new + new.replace("GPU 0", "GPU 3").replace("19.00 GiB", "18.00 GiB") + new)
    last, third = explained(path), explained("--device", "3", path)
    assert (last["device"], last["figures"]["live_bytes"]) == (0, 19 * GIB)
    assert last["notes"][:2] == ["3 reports are in the file; this is the last", "other devices have reports, too: --device 3"]
    assert (third["device"], third["figures"]["live_bytes"]) == (3, 18 * GIB)
    done = explain("--device", "7", path)
    assert done.returncode == 1 and "there is no device 7 in it; it has 0, 3" in done.stderr and not done.stdout


def test_a_device_that_statistics_do_not_have(tmp_path):
    path = tmp_path / "stats.json"
    path.write_text('{"format": "stats", "format_version": 1, "devices": [{"index": 0, "ooms": 0}]}')
    done = explain("--device", "7", path)
    assert done.returncode == 1 and "there is no device 7 in it; it has 0" in done.stderr


@pytest.mark.parametrize("peaks, said", [
    ((2.8, 4), "2.80 GiB were live and 4.00 GiB reserved, 42.9 % more than was used"), ((4, 4), "4.00 GiB were live and 4.00 GiB reserved"),
    ((0, 4), "0 B were live and 4.00 GiB reserved"), ((None, 4), "an unknown number of bytes were live and 4.00 GiB reserved")])
def test_statistics_say_how_much_more_than_was_used_is_reserved(tmp_path, peaks, said):
    live, reserved = ({} if peak is None else {"peak": round(peak * GIB)} for peak in peaks)
    path = tmp_path / "stats.json"
    path.write_text(json.dumps({"format": "stats", "format_version": 1, "devices": [
        {"index": 0, "ooms": 1, "requested_bytes": live, "reserved_bytes": reserved}]}))
    assert explained(path)["verdict"].endswith(said)


@pytest.mark.parametrize("words", [("--memory", "80G"), ("--lag", "20")])
def test_what_only_a_replay_uses_is_refused_with_a_log(tmp_path, words):
    done = explain(*words, log(tmp_path, OLD))
    assert done.returncode == 2 and f"{words[0]} is for recordings" in done.stderr and not done.stdout


# ------------------------------------------------------------------------ a device that others have filled ---


@pytest.mark.parametrize("line, cause", [
    # 2 MiB asked of a device of which others left 4.75 MiB; pieces there are none
    ("Tried to allocate 2.00 MiB (GPU 0; 10.76 GiB total capacity; 0 bytes already allocated; 4.75 MiB free; 0 bytes reserved in "
     "total by PyTorch)", "others"),
    ("Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 23.65 GiB of which 25.00 MiB is free. Process 99 has 23.60 GiB "
     "memory in use. Of the allocated memory 10.00 MiB is allocated by PyTorch, and 12.00 MiB is reserved by PyTorch but "
     "unallocated.", "others"),
    ("Tried to allocate 32.00 MiB. GPU 0 has a total capacty of 4.00 GiB of which 41.56 MiB is free. Including non-PyTorch memory, "
     "this process has 3.44 GiB memory in use. Of the allocated memory 2.58 GiB is allocated by PyTorch, and 1.90 MiB is reserved "
     "by PyTorch but unallocated.", "outside"),
    # as one piece, what was free would have served
    ("Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 23.65 GiB of which 25.00 MiB is free. Process 99 has 23.60 GiB "
     "memory in use. Of the allocated memory 22.80 GiB is allocated by PyTorch, and 800.00 MiB is reserved by PyTorch but "
     "unallocated.", "fragmentation")])
def test_pieces_that_would_not_have_served_are_not_the_cause(tmp_path, line, cause):
    assert explained(log(tmp_path, f"CUDA out of memory. {line}\n"))["cause"] == cause


@pytest.mark.parametrize("change", [
    lambda text: text.replace("2.00 GiB", "\033[1;36m2.00\033[0m GiB", 1), lambda text: text.replace(" GiB", "\u00a0GiB")])
def test_coloured_figures_and_those_copied_from_a_page_are_read(tmp_path, change):
    assert explained(log(tmp_path, change(OLD)))["figures"] == explained(log(tmp_path, OLD))["figures"]


def test_another_platforms_report_is_not_to_be_recorded(tmp_path):
    text = NEW.format(allowed="").replace("CUDA out of memory", "HIP out of memory").replace("19.00 GiB", "17.00 GiB")
    answer = explained(log(tmp_path, text))
    assert answer["commands"] == [] and "CUDA programs only" in answer["notes"][-1]


def test_a_report_of_pools_is_recorded_with_pools(tmp_path):
    answer = explained(log(tmp_path, "Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : "
                           "20.33 GiB\nRequested               : 1.00 GiB\nDevice limit            : 23.69 GiB\n"
                           "Free (according to CUDA): 19.88 MiB\n"))
    assert answer["commands"][0].startswith("CACHEALLOC_CONF=async:pool CACHEALLOC_TRACE=")


def test_standard_input_that_is_closed_is_one_line():
    code = "import os, sys; os.close(0); os.execv(sys.argv[1], sys.argv[1:])"
    done = subprocess.run([sys.executable, "-c", code, sys.executable, COMMAND, "explain", "-"], capture_output=True, text=True,
                          check=False, env=environment(CACHEALLOC_BUILD=BUILD))
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1 and "Bad file descriptor" in done.stderr


@pytest.mark.parametrize("line", [
    "RuntimeError: CUDA error: out of memory", "CUDA_ERROR_OUT_OF_MEMORY: out of memory", "cudaMalloc failed: out of memory",
    "OOM when allocating tensor with shape[32,64] and type float", "RESOURCE_EXHAUSTED: Out of memory allocating 17179869184 bytes"])
def test_of_a_text_that_says_so_without_figures_the_program_is_to_be_recorded(tmp_path, line):
    done = explain(log(tmp_path, f"step 1\n{line}\n"))
    hint, error = done.stderr.splitlines()
    assert done.returncode == 1 and "hint: " in hint and "CACHEALLOC_TRACE=" in hint and "error: " in error
    assert "hint: " not in explain(log(tmp_path, "step 1\ndone\n")).stderr


def test_a_log_is_explained_without_a_build(tmp_path):
    assert explain(log(tmp_path, OLD), CACHEALLOC_BUILD=tmp_path / "none").stdout == explain(log(tmp_path, OLD)).stdout != ""
    done = explain(log(tmp_path, "hello\n"), CACHEALLOC_BUILD=tmp_path / "none")
    assert done.returncode == 1 and "cachealloc-replay was not found" in done.stderr and "meson setup build" in done.stderr


# ------------------------------------------------------------------------------------- files that are no plain text ---


@pytest.mark.parametrize("change", [
    lambda line: b"\0" * 10000 + line.encode(), lambda line: "step 1 ██\n".encode() + b"\0" * 10 + line.encode(),
    lambda line: ("\ufeff" + line).encode("utf-16-le"), lambda line: ("\ufeff" + "x" * 501 + line).encode("utf-16-be")],
    ids=["zeros first", "zeros between", "utf-16-le", "utf-16-be"])
def test_a_log_with_zeros_or_of_two_bytes_a_letter_is_read(tmp_path, change):
    plain = explained(log(tmp_path, f"CUDA out of memory. {NEW}\n"))
    path = tmp_path / "odd.log"
    path.write_bytes(change(f"CUDA out of memory. {NEW}\n"))
    odd = explained(path)
    assert {**odd, "file": plain["file"]} == plain


@pytest.mark.parametrize("path", ["/proc/self/status", "/proc/self/mem"])
def test_a_file_of_proc_is_one_line(path):
    done = explain(path)
    assert (done.returncode, done.stdout) == (1, "") and done.stderr.count("\n") == 1 and path in done.stderr
