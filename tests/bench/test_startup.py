# SPDX-License-Identifier: MIT
"""startup.py measures and says so in JSON. No assertion on the times themselves."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent / "startup.py"


def test_short_run(tmp_path, build):
    out = tmp_path / "startup.json"
    subprocess.run([sys.executable, SCRIPT, "--runs", "6", "--out", out], check=True, timeout=120,
                   stdout=subprocess.DEVNULL)
    result = json.loads(out.read_text())
    start = result["start"]
    assert (result["format"], result["format_version"], start["runs"]) == ("startup", 1, 6)
    assert start["plain_median_ns"] > 0 and start["preload_median_ns"] > 0
    assert start["difference_low_ns"] <= start["difference_median_ns"] <= start["difference_high_ns"]
    assert result["dlsym"]["plain_ns"] > 0 and result["dlsym"]["preload_ns"] > 0
