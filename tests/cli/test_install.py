# SPDX-License-Identifier: MIT
"""What `meson install` puts down works from where it was put, wherever that is."""

import json
import shutil
import subprocess

import pytest
from command import environment
from conftest import BUILD, ROOT


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    meson = shutil.which("meson")
    if not meson or not (BUILD / "build.ninja").exists():
        pytest.skip("no Meson build to install from")
    root = tmp_path_factory.mktemp("root")
    done = subprocess.run([meson, "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", root], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
    assert done.returncode == 0, done.stdout
    command = next(root.glob("**/bin/cachealloc"))
    return command.parent.parent


def installed(prefix, *words):
    return subprocess.run([prefix / "bin" / "cachealloc", *words], env=environment(), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)


def test_finds_its_library(prefix):
    data = json.loads(installed(prefix, "version", "--json").stdout)
    assert data["library_version"] == data["version"]
    assert data["library_path"].startswith(str(prefix))


def test_runs_a_program(prefix):
    done = installed(prefix, "run", "sh", "-c", "exit 7")
    assert done.returncode == 7 and not done.stderr
    assert installed(prefix, "doctor", "/bin/true").returncode == 1


def test_replays_a_trace(prefix, tmp_path):
    (tmp_path / "a.trc").write_text("A 1 100 0\n")
    done = installed(prefix, "replay", "--json", tmp_path / "a.trc")
    assert done.returncode == 0 and json.loads(done.stdout)["misses"] == 1
    done = installed(prefix, "report", tmp_path / "a.trc", "-o", tmp_path / "a.html")
    assert done.returncode == 0 and not done.stderr and "window.report" in (tmp_path / "a.html").read_text()


def test_knows_the_keys(prefix):
    text = installed(prefix, "run", "--help").stdout
    assert "max_split_size_mb           default unlimited\n" in text and "reuse_slack_mb              default 256 MiB\n" in text


def test_pages_completions_and_schemas(prefix):
    for path in ("share/man/man1/cachealloc.1", "share/man/man1/cachealloc-replay.1", "share/man/man5/cachealloc-trace.5",
                 "share/man/man7/cachealloc.7", "share/cachealloc/options.json",
                 "share/cachealloc/schema/stats.schema.json", "share/cachealloc/schema/replay.schema.json",
                 "share/bash-completion/completions/cachealloc",
                 "share/zsh/site-functions/_cachealloc", "share/fish/vendor_completions.d/cachealloc.fish"):
        found = prefix / path
        assert found.exists() or found.with_name(found.name + ".gz").exists(), path


def test_the_simulator_stays_together(tmp_path):
    """The driver and both stand-in runtimes, in the folder that `cachealloc run --sim` puts on the loader's path."""
    meson = shutil.which("meson")
    if not meson:
        pytest.skip("no Meson")
    done = subprocess.run([meson, "setup", "-Dsimulator=enabled", tmp_path / "build", ROOT], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
    assert done.returncode == 0, done.stdout
    plan = json.loads(subprocess.run([meson, "introspect", "--install-plan", tmp_path / "build"], check=True,
                                     stdout=subprocess.PIPE, timeout=60).stdout)
    places = [place["destination"] for place in plan["targets"].values()]
    assert sorted(place.rpartition("/")[2] for place in places if "/cachealloc/sim/" in place) == [
        "libcuda.so.1", "libcudart.so.13", "libcudart_static.a"]
    assert sorted(place.rpartition("/")[2] for place in places if "/cachealloc/sim/" not in place) == [
        "cachealloc-replay", "libcachealloc.so"]
