#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs a fuzz target: run.py TARGET [SECONDS [FOLDER]]

TARGET is a built fuzz_* program. The seeds are made first, in a folder of their own that is removed afterwards, or in
FOLDER, which stays and keeps what was found. A crash leaves its input in the working folder, and the exit status is
not 0.
"""

import json
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "unit" / "replay"))
sys.dont_write_bytecode = True
import make_small  # noqa: E402
import make_trace  # noqa: E402

TEXTS = {
    "trc": "I 7 300 2\nA 1 100 0\nA 2 200 1\nF 1\nP\nF 7\n",
    "rmm": "Thread,Time,Action,Pointer,Size,Stream\n1,23:59:59.5,allocate,0x1,8,0x2\n1,00:00:00:7,free,0x1,8,0\n"
           "1,1634567890.25,allocate,(nil),8,0\n1,00:00:01,allocate failure,(nil),8,0\n",
    "lifetimes": "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,-1,9,4\n",
    "offsets": "upper,lower,offset,size,id\n9,2,0,10,a\n",
}


CORPUS = Path(__file__).resolve().parent / "corpus"


def seeds(target):
    """Yields (name, bytes): what is committed, and what is made."""
    yield from ((path.name, path.read_bytes()) for path in sorted((CORPUS / target[len("fuzz_"):]).iterdir()))
    if target in ("fuzz_conf", "fuzz_sequence"):
        return
    if target == "fuzz_text":
        yield from ((name, text.encode()) for name, text in TEXTS.items())
        return
    if target == "fuzz_trace":
        yield from make_trace.seeds()
        return
    snapshot = make_small.snapshot()
    for protocol in range(2, 6):
        yield f"pickle{protocol}", pickle.dumps(snapshot, protocol)
    yield "segments", pickle.dumps(snapshot["segments"], 4)
    yield "class", pickle.dumps(Path("x"), 4)
    yield "json", json.dumps(snapshot).encode()
    yield "minimal", b'{"device_traces":[[{"action":"alloc","addr":1,"size":2}]]}'


def main(argv):
    if not 1 <= len(argv) <= 3:
        sys.stderr.write(__doc__)
        return 2
    target, seconds = Path(argv[0]).resolve(), int(argv[1]) if len(argv) > 1 else 60
    with tempfile.TemporaryDirectory() as made:
        corpus = Path(argv[2]) if len(argv) > 2 else Path(made)
        corpus.mkdir(exist_ok=True)
        for name, data in seeds(target.name):
            (corpus / name).write_bytes(data)
        return subprocess.run([target, f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=2048",
                               "-print_final_stats=1", corpus], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
