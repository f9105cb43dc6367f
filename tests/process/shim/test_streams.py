# SPDX-License-Identifier: MIT
"""Streams that come and go, of threads, contexts and captures: reuse stays ordered, which the race oracle judges."""

import json
import os

import pytest

from conftest import BUILD, MUTANTS, run

PROGRAM = BUILD / "tests" / "process" / "shim" / "cases_streams"
SANITIZER = os.environ.get("CACHEALLOC_TEST_SANITIZER")
SLACK = ["0", "64"]  # without slack, memory is reused as early as the rules allow


def run_case(tmp_path, case, **env):
    ours, theirs = tmp_path / "ours.json", tmp_path / "sim.json"
    done = run([PROGRAM, case], check=0, CACHEALLOC_STATS=ours, SIMCUDA_STATS=theirs, CACHEALLOC_LOG="debug",
               SIMCUDA_RACES="abort", SIMCUDA_DEADLOCK="on", **env)
    assert "every invariant of the records holds" in done.stderr
    assert "poisoned" not in done.stderr
    return json.loads(ours.read_text())["devices"], json.loads(theirs.read_text())


@pytest.mark.parametrize("slack", SLACK)
def test_a_handle_that_comes_back_is_another_stream(tmp_path, slack):
    run_case(tmp_path, "a_handle_comes_back", SIMCUDA_CLOCK="manual", CACHEALLOC_CONF=f"reuse_slack_mb:{slack}")


def test_one_stream_at_a_time(tmp_path):
    run_case(tmp_path, "one_stream_at_a_time")


@pytest.mark.parametrize("slack", SLACK)
def test_a_stream_that_the_driver_keeps_goes_on(tmp_path, slack):
    _, theirs = run_case(tmp_path, "destroy_is_refused", SIMCUDA_CLOCK="manual",
                         SIMCUDA_FAIL="cuStreamDestroy_v2:1:999,cuStreamDestroy_v2:2:999",
                         CACHEALLOC_CONF=f"reuse_slack_mb:{slack}")
    assert theirs["injected"] == 2


def test_stale_handles_are_found():
    """The case proves something: with a library that keeps handles too long, the race is there."""
    if not MUTANTS.exists():
        assert SANITIZER
        pytest.skip(f"proves the program, not the library; not repeated under {SANITIZER}")
    env = {"CACHEALLOC_TEST_MUTANT": "STALE_HANDLE", "CACHEALLOC_CONF": "reuse_slack_mb:0"}
    done = run([PROGRAM, "a_handle_comes_back"], SIMCUDA_CLOCK="manual",
               SIMCUDA_RACES="abort", **env)
    assert "simcuda: race on" in done.stderr


def test_more_streams_than_are_tracked(tmp_path):
    run_case(tmp_path, "very_many_streams")


@pytest.mark.parametrize("slack", SLACK)
@pytest.mark.parametrize("case", ["threads_end", "threads_make_and_destroy"])
def test_threads_end_with_their_streams(tmp_path, case, slack):
    run_case(tmp_path, case, SIMCUDA_JITTER="50:1", CACHEALLOC_CONF=f"reuse_slack_mb:{slack}")


@pytest.mark.parametrize("slack", SLACK)
def test_names_of_default_streams(tmp_path, slack):
    run_case(tmp_path, "names_of_default_streams", CACHEALLOC_CONF=f"reuse_slack_mb:{slack}")


def test_marks_on_the_legacy_stream_are_no_barriers(tmp_path):
    _, theirs = run_case(tmp_path, "marks_are_no_barriers", SIMCUDA_CLOCK="manual")
    assert theirs["calls"]["cuEventRecord"] > 0, "nothing was marked"


@pytest.mark.parametrize("slack", SLACK)
def test_captures_beside_other_streams(tmp_path, slack):
    run_case(tmp_path, "captures_beside", CACHEALLOC_CONF=f"reuse_slack_mb:{slack}")


def test_streams_belong_to_their_contexts(tmp_path):
    run_case(tmp_path, "streams_of_contexts", SIMCUDA_DEVICES="2")
