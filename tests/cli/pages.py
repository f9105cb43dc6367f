# SPDX-License-Identifier: MIT
"""README and the pages in docs, as tests read them: their fenced blocks, and the stand-ins for a reader's own files."""

import lzma
import re
import shlex

from conftest import ROOT

README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
#: the first line of a block whose commands need what a test machine lacks
TAG = re.compile(r"^# needs-(gpu|cluster|container|framework)$")
#: a line of PyTorch 1.13's
TRAIN_LOG = ("CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 23.69 GiB total capacity; 19.51 GiB already allocated; "
             "1.20 GiB free; 21.00 GiB reserved in total by PyTorch)\n")


def fences(page):
    """(word behind the fence, text) of each fenced block."""
    return re.findall(r"^```([^\n]*)\n(.*?)^```$", page.read_text(), re.S | re.M)


def blocks(page):
    """(tag or None, commands without their comments) of each shell block."""
    for word, text in fences(page):
        if word == "sh":
            lines = text.splitlines()
            tag = TAG.match(lines[0])
            yield tag and tag[1], [line for line in (re.sub(r"(^|\s+)#.*", "", one) for one in lines) if line]


def commands(page, tagged=False):
    return [line for tag, lines in blocks(page) if bool(tag) == tagged for line in lines]


def stand_ins(folder, program, record):
    """Puts ./app and the files that the pages name into the folder. record(**variables) runs ./app there with the library and
    these variables."""
    (folder / "app").write_text(f"#!/bin/sh\nexec {shlex.quote(str(program))} ten\n")
    (folder / "app").chmod(0o755)
    (folder / "train.py").write_text("import subprocess\nsubprocess.run(['./app'], check=True)\nprint('tok/s 12.5')\n")
    (folder / "train.log").write_text(TRAIN_LOG)
    for name in ("before.json", "after.json", "s.7841.json", "s.7842.json"):
        record(CACHEALLOC_STATS=name)
    record(CACHEALLOC_TRACE="app.7841.trace")
    trace = (folder / "app.7841.trace").read_bytes()
    for name in ("app.trace", "step.pickle", "snapshot.pickle", "rank0.trace", "rank1.trace", "run.trace", "oom.pickle", "oom.trace"):
        (folder / name).write_bytes(trace)
    for name in ("step.trc.xz", "step.trace.xz"):
        (folder / name).write_bytes(lzma.compress(trace))
