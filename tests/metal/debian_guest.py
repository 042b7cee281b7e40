"""A Debian in QEMU that runs containers: systemd, podman and firewalls, and an SSH server that our key opens as root.

It is put together once in a folder, and boots in a minute or two where processors are emulated. It reaches nothing; a
loopback address leads to its ports, those that the caller names among them. `busybox` on it is a static program.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import socket
import subprocess
import tarfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from interfaces.keys import KeyPair, new_key_pair
from tests.blueprints.host_peers import free_port

PACKAGES = (
    "linux-image-cloud-amd64", "systemd-sysv", "dbus", "openssh-server", "iproute2", "sudo", "passwd", "podman", "crun",
    "catatonit", "nftables", "iptables", "ufw", "firewalld", "busybox-static",
)  # fmt: skip
PROGRAMS = {"qemu-system-x86_64": "qemu-system-x86", "mmdebstrap": "mmdebstrap", "mke2fs": "e2fsprogs"}
ACCEL = os.environ.get("ACCEL", "tcg,thread=multi")
_NETWORK = "[Match]\nName=e*\n[Network]\nAddress=10.0.2.15/24\n"
_PATIENCE = 900.0


@dataclass(frozen=True, kw_only=True)
class DebianGuest:
    """A running guest. `ports` maps its ports to those of 127.0.0.1 that lead there; `ssh` is one of them."""

    host: KeyPair
    control: KeyPair
    ports: dict[int, int]

    @property
    def ssh(self) -> int:
        """The port that leads to its SSH server."""
        return self.ports[22]

    def registration(self) -> dict[str, object]:
        """As an operator would register it."""
        return {"address": "127.0.0.1", "port": self.ssh, "user": "root", "host_keys": [self.host.public]}

    def answers(self, port: int) -> bytes:
        """What its port says before it ends a connection; empty if it does not answer."""
        try:
            with socket.create_connection(("127.0.0.1", self.ports[port]), timeout=20) as there:
                return there.recv(1000)
        except OSError:
            return b""


def missing() -> list[str]:
    """The packages that this machine lacks for it."""
    return sorted(package for program, package in PROGRAMS.items() if not shutil.which(program))


def build(folder: Path, host: KeyPair, control: KeyPair) -> None:
    """Put a guest's disk, kernel and initial ramdisk into a folder."""
    root = folder / "root"
    quiet = ["--quiet", "--variant=apt", f"--include={','.join(PACKAGES)}", '--aptopt=Acquire::Languages "none"']
    _command("mmdebstrap", *quiet, "bookworm", str(root))
    _set_up(root, host, control)
    for name in ("vmlinuz", "initrd.img"):
        shutil.copy(next((root / "boot").glob(f"{name}-*")), folder / name)
    shutil.rmtree(root / "var" / "cache" / "apt")
    _command("mke2fs", "-q", "-t", "ext4", "-d", str(root), str(folder / "disk"), "4G")
    shutil.copy(root / "usr" / "bin" / "busybox", folder / "busybox")
    shutil.rmtree(root)


def _set_up(root: Path, host: KeyPair, control: KeyPair) -> None:
    etc = root / "etc"
    (etc / "fstab").write_text("/dev/vda / ext4 defaults 0 1\n")
    (etc / "hostname").write_text("guest\n")
    (etc / "systemd" / "network" / "e.network").write_text(_NETWORK)
    wanted = etc / "systemd" / "system" / "multi-user.target.wants"
    (wanted / "systemd-networkd.service").symlink_to("/lib/systemd/system/systemd-networkd.service")
    for path in (etc / "ssh").glob("ssh_host_*"):
        path.unlink()
    (etc / "ssh" / "ssh_host_ed25519_key").write_text(host.private)
    (etc / "ssh" / "ssh_host_ed25519_key").chmod(0o600)
    (root / "root" / ".ssh").mkdir(mode=0o700, exist_ok=True)
    (root / "root" / ".ssh" / "authorized_keys").write_text(control.public + "\n")
    for name in ("firewalld.service", "ufw.service", "nftables.service"):  # a test starts the one that it is about
        (wanted / name).unlink(missing_ok=True)


@contextlib.contextmanager
def booted(folder: Path, host: KeyPair, control: KeyPair, ports: Sequence[int] = ()) -> Iterator[DebianGuest]:
    """The guest of a folder, running, until the end of the context. What it changes is kept nowhere."""
    leads = {port: free_port("127.0.0.1") for port in (22, *ports)}
    forwards = "".join(f",hostfwd=tcp:127.0.0.1:{here}-:{there}" for there, here in leads.items())
    command = [
        "qemu-system-x86_64", "-accel", ACCEL, "-cpu", "max", "-smp", "2", "-m", "1536", "-nodefaults", "-display",
        "none", "-device", "virtio-rng-pci", "-serial", f"file:{folder / 'console'}", "-kernel",
        str(folder / "vmlinuz"), "-initrd", str(folder / "initrd.img"), "-append",
        "root=/dev/vda rw console=ttyS0 net.ifnames=0 quiet", "-no-reboot", "-snapshot",
        "-drive", f"file={folder / 'disk'},if=virtio,format=raw",
        "-netdev", f"user,id=n,restrict=on{forwards}", "-device", "virtio-net-pci,netdev=n",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        guest = DebianGuest(host=host, control=control, ports=leads)
        _until_it_answers(process, guest, folder)
        yield guest
    finally:
        process.kill()
        process.communicate()


def _until_it_answers(process: subprocess.Popen[bytes], guest: DebianGuest, folder: Path) -> None:
    end = time.monotonic() + _PATIENCE
    while not guest.answers(22).startswith(b"SSH-"):
        if process.poll() is not None or time.monotonic() > end:
            said = (folder / "console").read_text(errors="replace")[-3000:]
            raise RuntimeError(f"The guest did not start its SSH server: {said}")
        time.sleep(1)


def image_archive(path: Path, program: Path, *, name: str = "localhost/busybox:1") -> str:
    """Write an image with busybox alone as a docker-archive. Return its SHA-256."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for folder in ("bin", "tmp", "etc", "dev", "proc", "sys"):
            tar.addfile(_entry(folder, tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755))
        content = program.read_bytes()
        tar.addfile(_entry("bin/busybox", size=len(content), mode=0o755), io.BytesIO(content))
        for applet in ("sh", "cat", "id", "sleep", "nc", "echo", "head", "dd", "seq", "ls", "tail", "httpd", "touch"):
            link = _entry(f"bin/{applet}", tarfile.SYMTYPE)
            link.linkname = "busybox"
            tar.addfile(link)
    digest = hashlib.sha256(layer.getvalue()).hexdigest()
    about = {
        "architecture": "amd64", "os": "linux", "config": {"Env": ["PATH=/bin"], "Cmd": ["/bin/sh"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }  # fmt: skip
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    files = {
        "config.json": json.dumps(about).encode(), "layer.tar": layer.getvalue(),
        "manifest.json": json.dumps(manifest).encode(),
    }  # fmt: skip
    with tarfile.open(path, "w") as tar:
        for file, content in files.items():
            tar.addfile(_entry(file, size=len(content)), io.BytesIO(content))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _entry(name: str, type: bytes = tarfile.REGTYPE, mode: int = 0o644, size: int = 0) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.mode, found.size = type, mode, size
    return found


def _command(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=1800)
    if done.returncode:
        raise RuntimeError(f"{words[0]} failed: {done.stderr.strip()[-1500:]}")


def new_keys() -> tuple[KeyPair, KeyPair]:
    """Keys of a guest and of its control account."""
    return new_key_pair("host"), new_key_pair("control")
