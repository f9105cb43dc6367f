# SPDX-License-Identifier: MIT
"""What the program's events, synchronisations and graphs teach, and what they must not."""

import json

import pytest

from conftest import BUILD, run

PROGRAM = BUILD / "tests" / "process" / "shim" / "cases_events"


def run_case(tmp_path, case, **env):
    """Runs a case; returns (our device 0, simulator's figures)."""
    ours, theirs = tmp_path / "ours.json", tmp_path / "sim.json"
    env = {"SIMCUDA_CLOCK": "manual", "SIMCUDA_RACES": "abort", **env}
    done = run([PROGRAM, case], check=0, CACHEALLOC_STATS=ours, SIMCUDA_STATS=theirs, CACHEALLOC_LOG="debug",
               **{name: value for name, value in env.items() if value is not None})
    assert "inconsistent" not in done.stderr
    return json.loads(ours.read_text())["devices"][0], json.loads(theirs.read_text())


TEACHES = ["synchronised_event_teaches", "queried_event_teaches", "events_teach_across_streams",
           "synchronised_stream_teaches", "queried_stream_teaches", "synchronised_context_teaches"]


@pytest.mark.parametrize("case", TEACHES)
def test_what_the_program_learns_we_learn(tmp_path, case):
    ours, theirs = run_case(tmp_path, case)
    assert ours["cache_hits"] == 1 == ours["taken_clean"]
    # and need not ask the driver ourselves
    assert ours["order_marks"] == 0 and theirs["calls"].get("cuCtxRecordEvent", 0) <= 2  # in a trial


@pytest.mark.parametrize("case", [
    "unfinished_work_is_not_reused", "refused_query_teaches_nothing", "event_of_a_graph_teaches_nothing",
    "destroyed_event_teaches_nothing",
    "event_of_a_dead_context_teaches_nothing", "captured_event_teaches_nothing",
    "event_of_another_process_teaches_nothing", "launched_graph_uses_its_memory"])
def test_what_says_nothing_teaches_nothing(tmp_path, case):
    run_case(tmp_path, case)


@pytest.mark.parametrize("case", ["harmless_graph_uses_nothing", "ordinary_wait_uses_nothing"])
def test_what_waits_for_nobody_uses_only_its_own(tmp_path, case):
    run_case(tmp_path, case)


@pytest.mark.parametrize("case, failing", [
    ("graph_with_a_host_function_uses_everything", None), ("wait_for_another_process_uses_everything", None),
    ("unknown_graph_uses_everything", "cuGraphGetNodes:1+:999"),
    ("unknown_graph_uses_everything", "cuGraphNodeGetType:1:999")])
def test_what_may_wait_for_somebody_uses_everything(tmp_path, case, failing):
    run_case(tmp_path, case, SIMCUDA_FAIL=failing)


def test_memory_born_in_a_capture_lives_as_long_as_its_graphs(tmp_path):
    _, theirs = run_case(tmp_path, "memory_of_a_graph_stays")
    assert theirs["calls"]["cuUserObjectCreate"] == 1


@pytest.mark.parametrize("failing", ["cuUserObjectCreate:1:2", "cuGraphRetainUserObject:1:1"])
def test_without_a_user_object_it_goes_back_to_the_driver(tmp_path, failing):
    ours, theirs = run_case(tmp_path, "memory_of_a_graph_without_an_object", SIMCUDA_FAIL=failing)
    assert ours["driver_free_calls"] >= 1
    assert theirs["calls"].get("cuUserObjectRelease", 0) == ("Retain" in failing)


def test_memory_of_a_capture_that_failed_is_ordinary(tmp_path):
    _, theirs = run_case(tmp_path, "memory_of_no_graph_is_ordinary")
    assert theirs["calls"].get("cuUserObjectCreate", 0) == 0


def test_a_capture_without_new_memory_needs_no_object(tmp_path):
    _, theirs = run_case(tmp_path, "harmless_graph_uses_nothing")
    assert theirs["calls"].get("cuUserObjectCreate", 0) == 0


def test_a_context_that_waits_is_on_finished_memory(tmp_path):
    ours, theirs = run_case(tmp_path, "context_waits")
    assert ours["order_fallbacks"] == 1 and theirs["calls"]["cuCtxRecordEvent"] > 1


def test_a_hundred_thousand_events(tmp_path):
    run_case(tmp_path, "many_events", SIMCUDA_CLOCK="real", SIMCUDA_RACES=None)


def test_events_after_a_fork(tmp_path):
    run_case(tmp_path, "forked_with_events")


@pytest.mark.parametrize("attempt", range(3))
def test_threads_that_share_events(tmp_path, attempt):
    run_case(tmp_path, "shared_events", SIMCUDA_CLOCK="real", SIMCUDA_JITTER="20")
