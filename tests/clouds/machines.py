"""The machines of emulated clouds: for every instance a real sshd on a loopback address of its own, with the host key
and the control account's key that its user data say."""

from __future__ import annotations

import contextlib
import getpass
import itertools
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import psutil

from interfaces.keys import new_key_pair
from tests.interfaces.sshd import free_port
from tests.peers import find

USER = getpass.getuser()
"""The control account: there is no other that we could be everywhere."""


class Machine(Protocol):
    """What a double tells of an instance that it starts."""

    key: str
    user_data: str
    public_key: str
    """What the cloud's own agent lets in to the account of the order."""


class Machines:
    """Starts and ends them. All listen on one port, which a blueprint names; each address is one machine's."""

    def __init__(self) -> None:
        pid = os.getpid()
        self._network = f"127.{50 + pid // 250 % 50}.{pid % 250}"
        self._numbers = itertools.count(1)
        self._running: dict[str, tuple[subprocess.Popen[bytes], Path]] = {}
        self._lock = Lock()
        self.homes = Path(tempfile.mkdtemp(prefix="drydock-homes-"))
        """Where the accounts of leases live. A cloud's machine would take them with it; here they are taken away."""
        self.homes.chmod(0o711)
        self.port = free_port(f"{self._network}.1")
        self._told: dict[str, str] = {}
        self._addresses: dict[str, str] = {}
        self.lies = ""
        """A public line that machines tell as their host key instead of their own."""
        self.broken: set[str] = set()
        """Keys of machines that never let anybody in."""
        self.plain = False
        """Their image has no cloud-init: the cloud's agent makes the account, and they make their own host key."""
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)

    def start(self, machine: Machine) -> str:
        """The address at which it answers; the same again for one that was stopped."""
        with self._lock:
            address = self._addresses.get(machine.key) or f"{self._network}.{next(self._numbers)}"
            self._addresses[machine.key] = address
            twin = self._running.pop(machine.key, None)
        if twin is not None:
            _end(*twin)
        if machine.key not in self.broken:
            said = _by_agent(machine) if self.plain else cloud_config(machine.user_data)
            popen, folder, public = _sshd(address, self.port, said, self._disk(machine.key))
            with self._lock:
                self._running[machine.key], self._told[machine.key] = (popen, folder), public
        return address

    def end(self, machine: Machine) -> None:
        """It answers no more, and nothing of it is left."""
        with self._lock:
            found = self._running.pop(machine.key, None)
        if found is not None:
            _end(*found)

    def kill(self, key: str) -> None:
        """It hangs: its cloud says that it runs, and nobody answers."""
        with self._lock:
            popen, folder = self._running.pop(key)
        _end(popen, folder)

    @contextlib.contextmanager
    def silent(self, key: str) -> Iterator[None]:
        """It refuses every connection meanwhile, and loses those that it has."""
        with self._lock:
            popen, folder = self._running[key]
        _hang_up(popen)
        yield
        with self._lock:
            self._running[key] = (_listening(folder, self._addresses[key], self.port), folder)

    def _disk(self, key: str) -> Path:
        """The home of the control account, which outlives a stop as a disk does."""
        folder = self.homes / f"disk-{key}"
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def host_key(self, key: str) -> str:
        """What a machine tells of its host key, by whatever way its cloud has; empty before it has started."""
        with self._lock:
            return self.lies or self._told.get(key, "")

    @property
    def running(self) -> list[str]:
        """Keys of those that answer."""
        return sorted(self._running)

    def close(self) -> None:
        """End all, and what leases have left: the machine is this one."""
        for popen, folder in list(self._running.values()):
            _end(popen, folder)
        self._running.clear()
        for account in pwd.getpwall():
            if Path(account.pw_dir).parent == self.homes:
                _remove(account.pw_name, account.pw_uid)
        shutil.rmtree(self.homes, ignore_errors=True)


def cloud_config(user_data: str) -> dict[str, Any]:
    """What cloud-init would read. Ours is JSON, which YAML is."""
    head, _, body = user_data.partition("\n")
    assert head == "#cloud-config", head
    found: dict[str, Any] = json.loads(body)
    return found


def _by_agent(machine: Machine) -> dict[str, Any]:
    """The same as far as an agent goes by the order alone."""
    return {"users": [{"ssh_authorized_keys": [machine.public_key]}]}


def _sshd(address: str, port: int, said: dict[str, Any], home: Path) -> tuple[subprocess.Popen[bytes], Path, str]:
    """With the host key that it is given, else with one of its own; and that key's public line."""
    folder, own = Path(tempfile.mkdtemp(prefix="drydock-vm-")), new_key_pair("guest")
    given = said.get("ssh_keys") or {"ed25519_private": own.private, "ed25519_public": own.public}
    (folder / "host").write_text(given["ed25519_private"])
    (folder / "host").chmod(0o600)
    keys = [line for user in said["users"] for line in user["ssh_authorized_keys"]]
    (folder / "authorized_keys").write_text("\n".join(keys) + "\n")
    (folder / "config").write_text(
        f"Port {port}\nListenAddress {address}\nHostKey {folder}/host\nPidFile {folder}/pid\nStrictModes no\n"
        f"UsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nUseDNS no\n"
        "PermitRootLogin prohibit-password\nMaxStartups 100:30:200\nSubsystem sftp internal-sftp\n"
        # A home of its own: what our own shell starts with may be slow, and whoever is killed there leaves locks.
        f"AuthorizedKeysFile .ssh/authorized_keys\nMatch User {USER}\n  SetEnv HOME={home}\n"
        f"  AuthorizedKeysFile {folder}/authorized_keys {home}/.ssh/authorized_keys\n"
    )
    return _listening(folder, address, port), folder, given["ed25519_public"]


def _listening(folder: Path, address: str, port: int) -> subprocess.Popen[bytes]:
    popen = subprocess.Popen(
        [find("sshd") or "sshd", "-D", "-e", "-f", str(folder / "config")],
        stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    until = time.monotonic() + 20
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex((address, port)) == 0:
                return popen
        time.sleep(0.05)
    _end(popen, folder)
    raise TimeoutError(f"sshd on {address}:{port} did not start")


def _remove(name: str, uid: int) -> None:
    for process in psutil.process_iter(["uids"]):
        if process.info["uids"] and process.info["uids"].real == uid:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
    subprocess.run(["userdel", "--force", name], check=False, capture_output=True)
    Path("/etc/sudoers.d", name).unlink(missing_ok=True)


def _end(popen: subprocess.Popen[bytes], folder: Path) -> None:
    _hang_up(popen)
    shutil.rmtree(folder, ignore_errors=True)


def _hang_up(popen: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(popen.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.send_signal(signal.SIGKILL)
    popen.kill()
    popen.wait()
