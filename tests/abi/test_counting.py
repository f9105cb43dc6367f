# SPDX-License-Identifier: MIT
"""scripts/count_results.py: nothing that went wrong may look like fewer tests."""

import json
import subprocess
import sys

import pytest

from conftest import ROOT

JUNIT = """<testsuites><testsuite>
<testcase classname="a" name="good"/>
<testcase classname="a" name="bad"><failure message="x"/></testcase>
<testcase classname="a" name="broken"><error message="x"/></testcase>
<testcase classname="a" name="left out"><skipped message="no GPU here"/></testcase>
</testsuite></testsuites>"""


def count(folder, stages, *arguments, **files):
    """Runs the script over a results folder; returns (status, lines)."""
    (folder / "stages").write_text("".join(f"{line}\n" for line in stages))
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    done = subprocess.run([sys.executable, ROOT / "scripts" / "count_results.py", folder, *arguments], text=True,
                          stdout=subprocess.PIPE, timeout=60)
    return done.returncode, done.stdout.splitlines()


def meson(name, stdout, result="OK", status=0, stderr=""):
    return json.dumps({"name": name, "stdout": stdout, "stderr": stderr, "result": result, "returncode": status}) + "\n"


def test_everything_is_added_up(tmp_path):
    tap = meson("pool", "1..3\nok 1 - take\nok 2 - split\nok 3 - merge # SKIP too big\n") + meson("plain", "")
    status, lines = count(tmp_path, ["check c 0 1", "pytest p 1 2", "meson m 0 3", "sequence l 0 9"], p_xml=JUNIT, m_json=tap)
    assert lines[-1] == "5 passed, 2 failed, 2 skipped" and status == 1
    assert "skipped: p: a::left out: no GPU here" in lines
    assert "skipped: m: pool: merge: too big" in lines
    assert "FAILED: p: a::bad" in lines and "FAILED: p: a::broken" in lines


def test_all_well_is_status_0(tmp_path):
    assert count(tmp_path, ["check c 0 1"]) == (0, ["1 passed, 0 failed, 0 skipped"])


def test_a_skipped_check_says_why(tmp_path):
    status, lines = count(tmp_path, ["check c 77 1"], c_log="looking\nnot installed\n")
    assert (status, lines) == (0, ["skipped: c: c: not installed", "0 passed, 0 failed, 1 skipped"])


def test_a_skip_of_cmocka_is_no_failure(tmp_path):
    tap = meson("plain", "1..2\nok 1 - a\nnot ok 2 # SKIP b\n", "FAIL", 0)
    assert count(tmp_path, ["meson m 1 1"], m_json=tap)[1][-1] == "1 passed, 0 failed, 1 skipped"


def test_a_stage_that_failed_names_the_case_and_shows_what_its_program_printed(tmp_path):
    tap = meson("pool", "# seed 7\nnot ok 1 - take\n", "FAIL", 1, "3 is not 4\n") + meson("other", "1..1\nok 1 - a\n")
    _, lines = count(tmp_path, ["meson m 1 1"], "--stage", "m", m_json=tap)
    assert lines[0].split() == "FAIL m 1 s 1 passed, 1 failed, 0 skipped".split()
    assert lines[1:] == ["    | FAILED: pool: take", "    | pool printed:", "    |   # seed 7", "    |   not ok 1 - take",
                         "    |   3 is not 4"]


@pytest.mark.parametrize("stages, files, complaint", [
    ([], {}, "nothing ran"),
    (["check c - -"], {}, "c: status -"),
    (["check c 3 1"], {}, "c: status 3"),
    (["sequence l - -", "check c 0 1"], {}, "l: stopped before its end"),
    (["pytest p 0 1"], {}, "no readable results"),
    (["pytest p 0 1"], {"p_xml": "<testsuites><testsuite/></testsuites>"}, "ran no test"),
    (["pytest p 2 1"], {"p_xml": '<t><testcase classname="a" name="b"/></t>'}, "status 2 though no case failed"),
    (["pytest p 0 1"], {"p_xml": "<testsuites>"}, "no readable results"),
    (["meson m 0 1"], {"m_json": ""}, "ran no test"),
    (["meson m 1 1"], {"m_json": meson("pool", "1..2\nok 1 - a\n", "ERROR", -11)}, "2 cases planned, 1 seen"),
    (["meson m 1 1"], {"m_json": meson("pool", "", "TIMEOUT", -15)}, "pool: timeout"),
    (["meson m 1 1"], {"m_json": meson("pool", "1..1\nnot ok 1 - a\n", "FAIL", 1)}, "pool: a"),
    (["meson m 1 1"], {"m_json": meson("pool", "1..1\nok 1 - a\n", "ERROR", 1)}, "pool: error"),
])
def test_trouble_is_a_failure(tmp_path, stages, files, complaint):
    status, lines = count(tmp_path, stages, **files)
    assert status == 1 and any(complaint in line for line in lines if line.startswith("FAILED: ")), lines
