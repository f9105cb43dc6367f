# SPDX-License-Identifier: MIT
"""Never hangs where stock does not: programs whose streams, threads and processes wait for each other (rendezvous.h),
with a free and an allocation inserted at every position.

The native run says at which positions stock itself hangs (its free waits for work that waits for us); every other must
end with the library, with right contents and no race.
"""

import os
import re

import pytest

from conftest import BUILD, run

PROGRAM = BUILD / "tests" / "process" / "order" / "order_rendezvous"
CLOCKS = {"real": {}, "manual": {"SIMCUDA_CLOCK": "manual"}}
QUICK_EVERY = 6  # conftest.py
SANITIZER = os.environ.get("CACHEALLOC_TEST_SANITIZER")
LONG = os.environ.get("CACHEALLOC_TEST_LONG") == "1"
#: settings, and how many variants (of buffer and size) they are worth in the long run
SETTINGS = {
    "default": (None, 1),
    "no_slack": ("reuse_slack_mb:0", 3),
    "finished": ("reuse:finished,reuse_slack_mb:0", 1),
    "host": ("free_sync:host", 1),
}
#: A stream that comes into being only when the one stream there was already waits for it. While there is one stream
#: nothing is recorded, so what it had unfinished when its memory was handed out cannot be told from the wait any more,
#: unless the host has paused in between (test_lull.py): the known limit of reuse:ordered. Where unfinished memory is not
#: handed out, these must end like all others.
LATE = ["streams created by each thread", "the partner is a new stream's first submission",
        "one thread's new stream is the partner", "thread started behind the wait", "per-thread streams"]
#: Beyond the slack only: a thread's first submission goes to a stream that another thread had to itself until then,
#: and is what that thread's other stream waits for.
NEWCOMER = ["a shared stream"]


def rendezvous(preload, limit_ms, paces, variants, skip, only=(), **env):
    """(positions that did not end well, number of runs, output)"""
    done = run([PROGRAM, limit_ms, paces, variants, skip, *only], preload=preload, timeout=500, check=0,
               SIMCUDA_DEVICES=2, SIMCUDA_RACES="abort", **env)
    lines = done.stdout.splitlines()
    bad = [re.sub(r"^(hang|died) (.*) pace .*", r"\2", line) for line in lines[:-1]]
    runs = int(re.fullmatch(r"runs (\d+) hang \d+ died \d+", lines[-1]).group(1))
    quiet = "\n".join(line for line in done.stderr.splitlines() if "SIMCUDA_JITTER=" not in line)
    return bad, runs, "\n".join([*lines, quiet])


@pytest.fixture(name="stuck", scope="module")
def _stuck(tmp_path_factory):
    """For each clock, a file with the positions at which stock hangs; '-' if there were none."""
    known = {}

    def find(clock):
        if clock not in known:
            bad, runs, output = rendezvous(False, 3000, 4, 1, "-", SIMCUDA_DEADLOCK=400, **CLOCKS[clock])
            assert "race" not in output and "not so" not in output, output[-4000:]
            assert runs > 4000 and 50 < len(bad) < runs / 10, (runs, len(bad))
            path = tmp_path_factory.mktemp("rendezvous") / clock
            path.write_text("\n".join(bad) + "\n")
            known[clock] = path
        return known[clock]
    return find


def stock_hangs_too(positions, clock):
    """Whether threads come to it in such an order depends on chance: a second, closer look."""
    return [p for p in sorted(set(positions))
            if rendezvous(False, 3000, 24, 1, "-", [p], SIMCUDA_DEADLOCK=400, **CLOCKS[clock])[0]]


#: With jitter, threads meet in other orders; with a manual clock work ends as late as it can.
TIMES = [("real", None), ("real", "80:1"), ("manual", None)]
#: What an ordinary run can afford: every setting, and every time where most is at stake.
ORDINARY = [("default", "real", None), ("finished", "manual", None), ("host", "real", "80:1"),
            *(("no_slack", *time) for time in TIMES)]


@pytest.mark.parametrize("setting, clock, jitter",
                         [(setting, *time) for setting in SETTINGS for time in TIMES] if LONG else ORDINARY)
def test_all_that_stock_ends_ends(tmp_path, stuck, setting, clock, jitter):
    if SANITIZER:
        pytest.skip(f"a question of order and of time, not of memory errors or data races; not repeated under {SANITIZER}")
    conf, variants = SETTINGS[setting] if LONG else (SETTINGS[setting][0], 1)
    skip = tmp_path / "skip"
    late = {"default": LATE, "no_slack": LATE + NEWCOMER}.get(setting, [])
    skip.write_text("\n".join([*late, stuck(clock).read_text()]))
    env = {**CLOCKS[clock], **({"CACHEALLOC_CONF": conf} if conf else {}), **({"SIMCUDA_JITTER": jitter} if jitter else {})}
    bad, runs, output = rendezvous(True, 20000, 1 if jitter else 3, variants, skip,
                                   SIMCUDA_DEADLOCK=8000, **env)
    print(f"{runs} runs")
    assert "race" not in output and "not so" not in output, output[:6000]
    assert len(bad) < 20, (len(bad), output[:6000])
    excused = stock_hangs_too(bad, clock)
    assert set(bad) <= set(excused), (sorted(set(bad) - set(excused)), output[:6000])
