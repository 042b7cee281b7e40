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
import tempfile
from pathlib import Path

import pytest

SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin"
UNPACKED = Path(sys.prefix) / "peers"
"""Where packages are that must not be installed: it goes with the virtual environment."""


@dataclasses.dataclass(frozen=True)
class Peer:
    """A program, or the path of a file, and the Debian package it comes in."""

    program: str
    package: str
    installed: bool = True
    """False: its files are only unpacked. Installed, cloud-init would set this machine up anew when it boots."""


PEERS = {
    "sshd": Peer("sshd", "openssh-server"),
    "ssh": Peer("ssh", "openssh-client"),
    "nginx": Peer("nginx", "nginx-light"),
    "git": Peer("git", "git"),
    "setpriv": Peer("setpriv", "util-linux"),
    "ip": Peer("ip", "iproute2"),
    "nsenter": Peer("nsenter", "util-linux"),
    "quota": Peer("mkfs.ext4", "e2fsprogs"),
    "chromium": Peer("chromium", "chromium"),
    "sudo": Peer("visudo", "sudo"),
    "cron": Peer("crontab", "cron"),
    "systemd-analyze": Peer("systemd-analyze", "systemd"),
    "nft": Peer("nft", "nftables"),
    "iptables": Peer("iptables", "iptables"),
    "pgbouncer": Peer("pgbouncer", "pgbouncer"),
    "lspci": Peer("lspci", "pciutils"),
    "qemu-img": Peer("qemu-img", "qemu-utils"),
    "zstd": Peer("zstd", "zstd"),
    "sfdisk": Peer("sfdisk", "fdisk"),
    "efibootmgr": Peer("efibootmgr", "efibootmgr"),
    "nvme": Peer("nvme", "nvme-cli"),
    "hdparm": Peer("hdparm", "hdparm"),
    "ipmitool": Peer("ipmitool", "ipmitool"),
    "qemu": Peer("qemu-system-x86_64", "qemu-system-x86"),
    "swtpm": Peer("swtpm", "swtpm"),
    "ovmf": Peer("/usr/share/OVMF/OVMF_CODE_4M.secboot.fd", "ovmf"),
    "swtpm_setup": Peer("swtpm_setup", "swtpm-tools"),
    "tpm2": Peer("tpm2_quote", "tpm2-tools"),
    "mmdebstrap": Peer("mmdebstrap", "mmdebstrap"),
    "xorriso": Peer("xorriso", "xorriso"),
    "mtools": Peer("mformat", "mtools"),
    "cpio": Peer("cpio", "cpio"),
    "isoinfo": Peer("isoinfo", "genisoimage"),
    "cloud-init": Peer("cloud-init", "cloud-init", installed=False),
}


def find(name: str) -> str | None:
    """Path of a peer's program, also where PATH leaves out the system's folders."""
    if PEERS[name].program.startswith("/"):
        return PEERS[name].program if Path(PEERS[name].program).exists() else None
    if not PEERS[name].installed:
        return shutil.which(PEERS[name].program, path=str(UNPACKED / PEERS[name].package / "usr" / "bin"))
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
    wanted = [PEERS[name] for name in PEERS if not find(name)]
    for package in (one.package for one in wanted if not one.installed and shutil.which("apt-get")):
        _unpack(package)
    packages = sorted({one.package for one in wanted if one.installed})
    become = become_root()
    if packages and become is not None and shutil.which("apt-get"):
        print(f"Installing peers for the tests: {' '.join(packages)}", flush=True)
        _apt(become, packages)
    missing = sorted(name for name in PEERS if not find(name))
    if missing:
        print(f"Missing peers, whose tests are skipped: {', '.join(missing)}")


def become_root() -> list[str] | None:
    """Return the words before a command of root's: none as root, sudo where it asks for no password, else None."""
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


def _unpack(package: str) -> None:
    """The newest version, as far as it can be had."""
    UNPACKED.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["apt-get", "download", "--quiet", package], cwd=folder, capture_output=True)
        for found in Path(folder).glob("*.deb"):
            subprocess.run(["dpkg", "--extract", found, UNPACKED / package], capture_output=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["install"]:
        install()
