# SPDX-License-Identifier: MIT
"""`cachealloc explain` on logs, as people have them."""

import pytest
from conftest import BUILD, run
from test_explain import GIB, MIB, explain, explained

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


def test_memory_of_others_is_not_that_of_this_process(tmp_path):
    path = log(tmp_path, VLLM.format(request="1.16", free="100.00", process="22.30"))
    answer = explained(path)
    assert answer["cause"] == "others" and answer["figures"]["others_bytes"] > answer["figures"]["outside_bytes"] > 0
    said = explain(path).stdout
    assert "held by other processes;" in said and "this process, outside PyTorch" in said and "nvidia-smi" in said
