"""Real programs that tests talk to: is one here, and which Debian package brings it.

`require("sshd")` skips a test whose peer is missing. In CI (CI=true) that is a failure instead.
`python -m tests.peers install` installs the missing ones where apt and the right to use it are there.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys

import pytest

SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin"


@dataclasses.dataclass(frozen=True)
class Peer:
    """A program, and the Debian package it comes in."""

    program: str
    package: str


PEERS = {
    "sshd": Peer("sshd", "openssh-server"),
    "ssh": Peer("ssh", "openssh-client"),
    "nginx": Peer("nginx", "nginx-light"),
    "git": Peer("git", "git"),
    "setpriv": Peer("setpriv", "util-linux"),
    "quota": Peer("mkfs.ext4", "e2fsprogs"),
    "chromium": Peer("chromium", "chromium"),
    "sudo": Peer("visudo", "sudo"),
    "cron": Peer("crontab", "cron"),
    "systemd-analyze": Peer("systemd-analyze", "systemd"),
}


def find(name: str) -> str | None:
    """Path of a peer's program, also where PATH leaves out the system's folders."""
    return shutil.which(PEERS[name].program, path=f"{os.environ.get('PATH', os.defpath)}:{SYSTEM_PATH}")


def require(name: str) -> str:
    """Path of a peer's program; without it the test is skipped, or fails in CI."""
    found = find(name)
    if found:
        return found
    message = f"peer {name} is missing: install the package {PEERS[name].package}"
    if os.environ.get("CI"):
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


def install() -> None:
    """Install what is missing, if we may; says what stays missing."""
    packages = sorted({PEERS[name].package for name in PEERS if not find(name)})
    become = _become_root()
    if packages and become is not None and shutil.which("apt-get"):
        print(f"Installing peers for the tests: {' '.join(packages)}", flush=True)
        _apt(become, packages)
    missing = sorted(name for name in PEERS if not find(name))
    if missing:
        print(f"Missing peers, whose tests are skipped: {', '.join(missing)}")


def _become_root() -> list[str] | None:
    if os.geteuid() == 0:
        return []
    sudo = ["sudo", "--non-interactive"]
    if shutil.which("sudo") and subprocess.run([*sudo, "true"], capture_output=True).returncode == 0:
        return sudo
    return None


def _apt(become: list[str], packages: list[str]) -> None:
    """Service packages must not start their services here."""
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    command = [*become, "apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *packages]
    if subprocess.run(command, env=quiet, capture_output=True).returncode:
        subprocess.run([*become, "apt-get", "update", "--quiet"], env=quiet, capture_output=True)
        subprocess.run(command, env=quiet, capture_output=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["install"]:
        install()
