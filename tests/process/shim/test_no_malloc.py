# SPDX-License-Identifier: MIT
"""No hooked call reaches malloc, stdio or exit once the program has started, not even through the C library."""

import os

import pytest

from conftest import BUILD, run

PROGRAM = BUILD / "tests" / "process" / "shim" / "no_malloc"
CAUGHT = 99

pytestmark = pytest.mark.skipif("CACHEALLOC_TEST_SANITIZER" in os.environ,
                                reason="a sanitizer brings its own malloc, which calls itself from anywhere")

SETTINGS = {
    "defaults": {},
    "statistics": {"CACHEALLOC_STATS": "s.%p.json", "CACHEALLOC_STATS_INTERVAL": "10ms"},
    "table": {"CACHEALLOC_STATS": "1", "CACHEALLOC_LOG": "debug", "CACHEALLOC_LOG_FILE": "log.%p"},
    "trace": {"CACHEALLOC_TRACE": "t.%p"},
    "limits": {"CACHEALLOC_LIMIT": "48M", "CACHEALLOC_CONF": "garbage_collection_threshold:0.5,min_reserve_mb:8"},
    "trims": {"CACHEALLOC_CONF": "max_cached_mb:8,trim_idle_ms:10,trim_every:20,oom_retry_ms:2"},
    "fills": {"CACHEALLOC_CONF": "zero:True,poison:True,oom_fallback:managed"},
    "native": {"CACHEALLOC_CONF": "free_sync:host,reuse:finished,min_size:64K,max_size:8M"},
    "framework": {"CACHEALLOC_CONF": "under_framework:pass,roundup_power2_divisions:4,reuse_slack_mb:0"},
    "counting": {"CACHEALLOC_DISABLE": "count", "CACHEALLOC_STATS": "1"},
    "disabled": {"CACHEALLOC_DISABLE": "1"},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_no_hooked_call_reaches_malloc_stdio_or_exit(tmp_path, name):
    done = run([PROGRAM], cwd=tmp_path, SIMCUDA_MEM="64M", **SETTINGS[name])
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_call_from_the_library_would_be_seen(tmp_path):
    done = run([PROGRAM, "--self"], cwd=tmp_path)
    assert done.returncode == CAUGHT
    # the other threads' calls are taken for the library's, too, and one may come first
    assert " was called from libcachealloc.so\n" in done.stderr
