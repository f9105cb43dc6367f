#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Counts the cases of a run of test.sh: count_results.py FOLDER [--stage NAME]

FOLDER/stages has a line `kind name status seconds` for each stage that was started and one for each that
ended (the first with status `-`). Kinds:

  check   the stage is one case: it passed if its status is 0, was skipped if 77 (the reason is its last line)
  pytest  the cases stand in FOLDER/<name>.xml (JUnit)
  meson   the cases stand in FOLDER/<name>.json (Meson's testlog.json: TAP, or one case a program)
  sequence  stages that follow each other: no case of its own, but a failed one if it did not reach its end

A stage that never ended, ended badly without naming a failed case, or ran no case at all is one failed case:
fewer tests than there should be never look like success. The last line is `N passed, N failed, N skipped`; the
exit status is 1 if anything failed.
"""

import argparse
import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

OUTPUT_LINES = 40  # of a failed program, shown below its stage's line

TAP_LINE = re.compile(r"^(not )?ok\b\s*(\d+)?\s*-?\s*([^#]*?)\s*(?:#\s*(SKIP|TODO)\S*\s*(.*))?$", re.I)
TAP_PLAN = re.compile(r"^1\.\.(\d+)\s*(?:#\s*SKIP\S*\s*(.*))?$", re.I)


class Cases:
    """What one stage came to: a number, and the named failures and skips."""

    def __init__(self):
        self.passed = 0
        self.failed = []   # names
        self.skipped = []  # (name, reason)
        self.excused = False  # a bad status that says no more than that a case was skipped
        self.outputs = []  # what the failed programs printed, where no summary at the log's end has it

    def total(self):
        return self.passed + len(self.failed) + len(self.skipped)

    def text(self):
        return f"{self.passed} passed, {len(self.failed)} failed, {len(self.skipped)} skipped"


def read_tap(cases, test, text):
    """Adds the TAP cases of one program; returns how many there were."""
    plan, seen, failed = None, 0, 0
    for line in text.splitlines():
        found = TAP_PLAN.match(line)
        if found:
            plan = int(found.group(1)) if plan is None else plan + int(found.group(1))  # one plan a group
            if plan == 0:
                cases.skipped.append((test, found.group(2) or "no reason given"))
                seen += 1
            continue
        found = TAP_LINE.match(line)
        if not found:
            continue
        seen += 1
        bad, _, name, directive, reason = found.groups()
        name = f"{test}: {name or seen}"
        if directive and directive.upper() == "SKIP":
            cases.skipped.append((name, reason or "no reason given"))
        elif bad:
            failed += 1
            cases.failed.append(name)
        else:
            cases.passed += 1
    if plan and seen < plan and not failed:
        cases.failed.append(f"{test}: {plan} cases planned, {seen} seen")
    return seen


def read_meson(cases, path):
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        test = json.loads(line)
        name, result = test["name"], test["result"]
        before, skips = len(cases.failed), len(cases.skipped)
        seen = read_tap(cases, name, test.get("stdout") or "")
        if result in ("OK", "EXPECTEDFAIL"):
            cases.passed += 0 if seen else 1
        elif result == "SKIP":
            if not seen:
                reason = ((test.get("stderr") or test.get("stdout") or "").strip().splitlines() or [""])[-1]
                cases.skipped.append((name, reason or "no reason given"))
        elif result == "FAIL" and not test.get("returncode") and len(cases.failed) == before and len(cases.skipped) > skips:
            cases.excused = True  # cmocka writes `not ok 1 # SKIP`, which Meson takes for a failure
        elif len(cases.failed) == before:
            cases.failed.append(f"{name}: {result.lower()} (status {test.get('returncode')})")
        if len(cases.failed) > before:
            cases.outputs.append((name, "\n".join(filter(None, (test.get("stdout"), test.get("stderr"))))))


def read_pytest(cases, path):
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            cases.failed.append(name)
        elif skip is not None:
            cases.skipped.append((name, skip.get("message") or "no reason given"))
        else:
            cases.passed += 1


def read_stage(folder, kind, name, status):
    cases = Cases()
    if kind == "sequence":
        if status != "0":
            cases.failed.append(f"{name}: stopped before its end")
        return cases
    if kind == "check":
        if status == "0":
            cases.passed = 1
        elif status == "77":
            lines = (folder / f"{name}.log").read_text(errors="replace").strip().splitlines()
            cases.skipped.append((name, lines[-1] if lines else "no reason given"))
        else:
            cases.failed.append(f"{name}: status {status}")
        return cases
    try:
        if kind == "meson":
            read_meson(cases, folder / f"{name}.json")
        else:
            read_pytest(cases, folder / f"{name}.xml")
    except (OSError, ValueError, KeyError, ElementTree.ParseError) as error:
        cases.failed.append(f"{name}: no readable results ({error})")
    if not cases.total():
        cases.failed.append(f"{name}: ran no test")
    if status != "0" and not cases.failed and not cases.excused:
        cases.failed.append(f"{name}: status {status} though no case failed")
    return cases


def read_stages(folder):
    """name -> (kind, status or '-', seconds or '-'), in the order in which they started."""
    stages = {}
    for line in (folder / "stages").read_text().splitlines():
        kind, name, status, seconds = line.split()
        stages[name] = (kind, status, seconds)
    return stages


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--stage", help="only one line, for the stage that has just ended")
    arguments = parser.parse_args()
    stages = read_stages(arguments.folder)
    if arguments.stage:
        kind, status, seconds = stages[arguments.stage]
        cases = read_stage(arguments.folder, kind, arguments.stage, status)
        print(f"{'FAIL' if cases.failed else 'ok':5}{arguments.stage:20}{seconds:>5} s  {cases.text()}")
        for case in cases.failed:
            print(f"    | FAILED: {case}")
        for name, output in cases.outputs:
            print(f"    | {name} printed:")
            for line in [each for each in output.splitlines() if each][-OUTPUT_LINES:]:
                print(f"    |   {line}")
        return 0

    total = Cases()
    for name, (kind, status, _) in stages.items():
        cases = read_stage(arguments.folder, kind, name, status)
        total.passed += cases.passed
        total.failed += [f"{name}: {case}" for case in cases.failed]
        total.skipped += [(f"{name}: {case}", reason) for case, reason in cases.skipped]
    if not total.total():
        total.failed.append("nothing ran")
    reasons = {}
    for case, reason in total.skipped:
        reasons.setdefault((case.split(": ")[0], reason), []).append(case)
    for (stage, reason), names in reasons.items():
        print(f"skipped: {names[0] if len(names) == 1 else f'{stage}: {len(names)} cases'}: {reason}")
    for case in total.failed:
        print(f"FAILED: {case}")
    print(total.text())
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
