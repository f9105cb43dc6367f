# SPDX-License-Identifier: MIT
"""A Debian 12 that has nothing else, in a folder: for tests of what a newcomer types. Fetched once a run, as root."""

import os
import shlex
import shutil
import subprocess

import pytest

from command import environment


def succeed(argv, cwd=None, **env):
    done = subprocess.run([str(word) for word in argv], env=environment(**env), cwd=cwd, text=True, timeout=1800, check=False,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, (argv, done.stdout[-4000:])
    return done.stdout


@pytest.fixture(scope="module")
def system(tmp_path_factory):
    """run(command, folder) in a fresh Debian 12, and the folder that is its root."""
    if os.getuid() or not shutil.which("debootstrap"):
        pytest.skip("only root makes a Debian system, with debootstrap")
    root = tmp_path_factory.mktemp("system")
    root.chmod(0o755)  # its users go through it
    done = subprocess.run(["debootstrap", "--variant=minbase", "bookworm", root], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=1200, check=False)
    if done.returncode:
        pytest.skip("no Debian system can be fetched: " + done.stdout.strip().splitlines()[-1])
    shutil.copy("/etc/resolv.conf", root / "etc" / "resolv.conf")
    env = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8", "HOME": "/root"}
    if os.path.exists(os.environ.get("PIP_CERT", "")):  # a network that has its own
        shutil.copy(os.environ["PIP_CERT"], root / "etc" / "pip.crt")
        env.update(PIP_CERT="/etc/pip.crt", SSL_CERT_FILE="/etc/pip.crt", REQUESTS_CA_BUNDLE="/etc/pip.crt")

    # with a /proc of its own, and no process outlives its command
    inside = ["unshare", "--mount", "--pid", "--fork", f"--mount-proc={root}/proc", "chroot", root]
    if subprocess.run([*inside, "/bin/true"], check=False).returncode:
        pytest.skip("this machine lets nobody mount (unshare)")

    def run(command, folder="/"):
        return succeed([*inside, "/bin/bash", "-ec", f"cd {shlex.quote(folder)}\n{command}"], **env)

    run("apt-get update")
    return run, root
