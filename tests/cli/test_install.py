# SPDX-License-Identifier: MIT
"""What `meson install` puts down works from where it was put, wherever that is; and what a build makes by its options."""

import json
import os
import shutil
import subprocess
import sys

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


def tree(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


def names(folder, pattern, below):
    """The tracked files of a source folder, as they are named below another."""
    return {f"{below}/{path.name}" for path in (ROOT / folder).glob(pattern)}


def test_every_file(prefix):
    libdir = next(prefix.glob("**/libcachealloc.so")).parent.relative_to(prefix)
    expected = {"bin/cachealloc", "bin/cachealloc-replay", f"{libdir}/pkgconfig/cachealloc.pc",
                *(f"{libdir}/libcachealloc.so{version}" for version in ("", ".0", ".0.1.0")),
                "share/man/man1/cachealloc.1", "share/man/man1/cachealloc-replay.1", "share/man/man5/cachealloc-trace.5",
                "share/man/man7/cachealloc.7", "share/cachealloc/options.json",
                "share/bash-completion/completions/cachealloc", "share/zsh/site-functions/_cachealloc",
                "share/fish/vendor_completions.d/cachealloc.fish",
                *(f"share/doc/cachealloc/{name}" for name in ("LICENSE", "README.md", "CHANGELOG.md")),
                *names("docs", "*.md", "share/doc/cachealloc/docs"),
                *names("docs/report", "*", "share/doc/cachealloc/docs/report"),
                *names("scripts/schema", "*.json", "share/cachealloc/schema"),
                *names("scripts/cachealloc_cli", "*.py", "share/cachealloc/cachealloc_cli"),
                *names("scripts/cachealloc_cli/report_page", "*", "share/cachealloc/cachealloc_cli/report_page")}
    installed = {name.removesuffix(".gz") for name in tree(prefix)}
    assert {name for name in installed if not name.startswith(f"{libdir}/cachealloc/sim/")} == expected  # -Dsimulator=enabled


def test_links_lead_to_the_library(prefix):
    library = next(prefix.glob("**/libcachealloc.so"))
    assert os.readlink(library) == "libcachealloc.so.0" and os.readlink(f"{library}.0") == "libcachealloc.so.0.1.0"
    dynamic = subprocess.run(["readelf", "-dW", library], text=True, stdout=subprocess.PIPE, check=True, timeout=60).stdout
    assert "Library soname: [libcachealloc.so.0]" in dynamic


def test_pkg_config_tells_what_to_preload(prefix):
    if not shutil.which("pkg-config"):
        pytest.skip("no pkg-config")
    folder = next(prefix.glob("**/cachealloc.pc")).parent

    def ask(*words):
        return subprocess.run(["pkg-config", f"--define-variable=prefix={prefix}", *words, "cachealloc"], text=True, check=True,
                              env=environment(PKG_CONFIG_PATH=folder), stdout=subprocess.PIPE, timeout=60).stdout.strip()

    assert ask("--variable=preload") == str(next(prefix.glob("**/libcachealloc.so")))
    assert ask("--modversion") == "0.1.0" and ask("--cflags", "--libs") == ""


# ---- by the options of a build: configured, not built

def configured(folder, *options):
    """(what is built, what is installed: {file in the build or sources: destination}) of a fresh configuration."""
    meson = shutil.which("meson")
    if not meson:
        pytest.skip("no Meson")
    done = subprocess.run([meson, "setup", *options, folder, ROOT], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=300)
    assert done.returncode == 0, done.stdout
    answers = [json.loads(subprocess.run([meson, "introspect", what, folder], check=True, stdout=subprocess.PIPE,
                                         timeout=60).stdout) for what in ("--targets", "--install-plan")]
    built = {os.path.relpath(name, folder) for target in answers[0] for name in target["filename"]}
    return built, {name: place["destination"] for part in answers[1].values() for name, place in part.items()}


def test_a_plain_build_is_small(tmp_path):
    """The library, the replay and what they are made of."""
    built, _ = configured(tmp_path / "build")
    assert not [name for name in built if name.startswith("tests")]
    assert {"shim/libcachealloc.so.0.1.0", "allocator/cachealloc-replay"} <= built and len(built) < 10


def test_the_simulator_stays_together(tmp_path):
    """The driver and both stand-in runtimes, in the folder that `cachealloc run --sim` puts on the loader's path."""
    built, plan = configured(tmp_path / "build", "-Dsimulator=enabled")
    places = [place for name, place in plan.items() if name.startswith(str(tmp_path))]
    assert sorted(place.rpartition("/")[2] for place in places if "/cachealloc/sim/" in place) == [
        "libcuda.so.1", "libcudart.so.13", "libcudart_static.a"]
    assert not [name for name in built if name.startswith("tests") and not name.startswith("tests/sim/")]


def test_a_python_package_is_one_folder(tmp_path):
    """meson-python finds a place in a wheel for each file, and a wheel has no links."""
    _, plan = configured(tmp_path / "build", "-Dpython_package=true")
    places = set(plan.values())
    assert {f"{{py_platlib}}/cachealloc/{name}" for name in ("libcachealloc.so", "cachealloc-replay", "options.json")} <= places
    assert not [place for place in places if not place.startswith(("{py_platlib}/cachealloc", "{datadir}/share/"))]
    assert "{datadir}/share/man/man7/cachealloc.7" in places


@pytest.mark.parametrize("path", ["relative.conf", "/etc/a b\"c"])
def test_a_site_file_without_a_usable_path(tmp_path, path):
    meson = shutil.which("meson")
    if not meson:
        pytest.skip("no Meson")
    done = subprocess.run([meson, "setup", f"-Dsite_conf={path}", tmp_path / "build", ROOT], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
    assert done.returncode != 0 and "site_conf" in done.stdout


# ---- the files of a Python package, without pip (tests/cli/test_pip.py is with it)

@pytest.fixture
def package(tmp_path):
    """A folder to put on Python's path, with a space in its name."""
    folder = tmp_path / "site packages" / "cachealloc"
    shutil.copytree(ROOT / "scripts" / "cachealloc_cli", folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "scripts" / "schema", folder / "schema")
    for path in (ROOT / "scripts" / "options.json", BUILD / "shim" / "libcachealloc.so",
                 BUILD / "allocator" / "cachealloc-replay"):
        shutil.copy(path, folder)
    return folder


def module(package, *words):
    return subprocess.run([sys.executable, "-m", "cachealloc", *map(str, words)], text=True, timeout=60,
                          env=environment(PYTHONPATH=package.parent, PYTHONDONTWRITEBYTECODE="1"), cwd=package.parent,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_a_package_finds_its_parts(package, tmp_path):
    data = json.loads(module(package, "version", "--json").stdout)
    assert data["library_version"] == data["version"] and data["library_path"] == str(package / "libcachealloc.so")
    assert "reuse_slack_mb              default 256 MiB\n" in module(package, "run", "--help").stdout
    (tmp_path / "a.trc").write_text("A 1 100 0\n")
    assert json.loads(module(package, "replay", "--json", tmp_path / "a.trc").stdout)["misses"] == 1


def test_a_package_has_no_build_to_make_the_simulator_in(package):
    said = module(package, "run", "--sim", "true").stderr
    assert "meson" not in said and "a build of the sources with -Dsimulator=enabled, which CACHEALLOC_BUILD may name" in said


def test_a_package_in_a_folder_with_a_space(package, tmp_path):
    """LD_PRELOAD cannot name it: an error, and a way out of it."""
    done = module(package, "run", "true")
    assert done.returncode == 125 and "a space or a colon; --library may name a link" in done.stderr
    link = tmp_path / "libcachealloc.so"
    link.symlink_to(package / "libcachealloc.so")
    done = module(package, "run", "--library", link, "sh", "-c", "exit 7")
    assert done.returncode == 7 and not done.stderr
