"""The ramdisk for tests, built once for each state of its sources, and how a machine is reached that runs it."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import http.server
import json
import os
import shutil
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import drydock.ramdisk
import drydock_agent.package
from blueprints.media import iso_image
from drydock.core.errors import DrydockError
from interfaces.keys import KeyPair
from tests import peers
from tests.metal.qemu_machine import QemuMachine

PATIENCE = 1500.0
"""Seconds for a boot, which takes an emulated processor one to six minutes."""
_KEPT = 3


def require() -> None:
    """Skip the test if a program is missing with which the ramdisk is built and booted."""
    for name in ("qemu", "mmdebstrap", "xorriso", "mtools", "zstd", "ssh"):
        peers.require(name)


def built() -> Path:
    """Return the folder of a ramdisk that was built from these sources, now or by an earlier run."""
    return kept_folder("ramdisks", _key(), "manifest.json", build)


def kept_folder(what: str, key: str, last: str, build: Callable[[Path], object]) -> Path:
    """Return a folder that `build` has filled, now or in an earlier run. `last` is the file that it makes last."""
    root = Path("/var/tmp") / f"drydock-{what}-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    about = root.lstat()
    if about.st_uid != os.getuid() or not stat.S_ISDIR(about.st_mode) or about.st_mode & 0o022:
        raise PermissionError(f"{root} belongs to somebody else")
    folder = root / key
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / last).exists():
            build(folder)
        os.utime(folder)
        for old in sorted(root.glob("*/"), key=lambda one: one.stat().st_mtime)[:-_KEPT]:
            shutil.rmtree(old)
    return folder


def build(folder: Path) -> dict[str, Any]:
    """Build a ramdisk, and return its manifest. Skips the test if apt has no packages for it."""
    try:
        drydock.ramdisk.build(drydock.ramdisk.Request(to=folder), lambda text: None)
    except DrydockError as error:
        if "apt on this machine has no lists" in error.message and not os.environ.get("CI"):
            import pytest

            pytest.skip(error.message)
        raise
    found: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    return found


def _key() -> str:
    """Return a name for the state of everything of ours that a ramdisk is made from."""
    digest = hashlib.sha256(drydock_agent.package.build().content)
    source = Path(drydock.ramdisk.__file__).parent
    for path in sorted(source.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            digest.update(path.relative_to(source).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def medium(secret: str, host: KeyPair, control: KeyPair, **network: Any) -> bytes:
    """Return the second medium, with DHCP unless a network is given."""
    settings = {
        "version": 1, "boot": "boot-1", "secret": secret, "host_key": host.private,
        "authorized_keys": [control.public], "network": network or {"dhcp": True},
    }  # fmt: skip
    return iso_image("DRYDOCK", {"boot.json": json.dumps(settings).encode()})


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words: Any) -> None:
        pass


@contextmanager
def site(folder: Path) -> Iterator[int]:
    """Serve a folder over HTTP; the port at 127.0.0.1."""
    handler = functools.partial(_Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Guest:
    """The ramdisk on a machine, reached over SSH with the host key of its medium and no other."""

    def __init__(self, machine: QemuMachine, host: KeyPair, control: KeyPair) -> None:
        self.machine = machine
        self._folder = Path(tempfile.mkdtemp(dir=machine.qemu.folder))
        (self._folder / "key").touch(mode=0o600)
        (self._folder / "key").write_text(control.private)
        name = f"[{machine.qemu.address}]:{machine.qemu.port}"
        (self._folder / "known").write_text(f"{name} {' '.join(host.public.split()[:2])}\n")

    def ssh(self, command: str, given: str = "", seconds: float = 120.0) -> subprocess.CompletedProcess[str]:
        """Run a command as root."""
        it = self.machine.qemu
        words = ["ssh", "-F", "/dev/null", "-i", str(self._folder / "key"), "-p", str(it.port), "-T"]
        for option in (
            f"UserKnownHostsFile={self._folder / 'known'}", "GlobalKnownHostsFile=/dev/null", "BatchMode=yes",
            "StrictHostKeyChecking=yes", "IdentitiesOnly=yes", "ConnectTimeout=60", "LogLevel=ERROR",
        ):  # fmt: skip
            words += ["-o", option]
        return subprocess.run(
            [*words, f"root@{it.address}", command], input=given, capture_output=True, text=True, timeout=seconds
        )

    def check(self, command: str, given: str = "") -> str:
        """Run a command as root; what it printed. Fails if it fails."""
        done = self.ssh(command, given)
        assert done.returncode == 0, f"{command}: {done.stdout[-1000:]}{done.stderr[-1000:]}"
        return done.stdout

    def agent(self, *words: str, request: Any = None) -> Any:
        """Call the agent in the ramdisk, as Drydock does."""
        return json.loads(self.check(f"drydock-agent {' '.join(words)}", json.dumps(request) if request else ""))

    def finished(self, job: str) -> Any:
        """Wait until a job has ended, and return its state."""
        end = time.monotonic() + PATIENCE
        while (state := self.agent("jobs", "show", job))["state"] == "running":
            assert time.monotonic() < end, state
            time.sleep(1)
        return state

    def wait(self) -> None:
        """Wait until the ramdisk accepts our login."""
        end = time.monotonic() + PATIENCE
        while (done := self.ssh("true")).returncode:
            assert "HOST IDENTIFICATION" not in done.stderr, done.stderr
            assert self.machine.power_state == "On", self.machine.qemu.console[-3000:]
            assert time.monotonic() < end, f"{done.stderr}\n{self.machine.qemu.console[-3000:]}"
            time.sleep(2)
