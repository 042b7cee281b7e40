"""What a test run may not do: talk to other machines, or leave something behind."""

from __future__ import annotations

import ipaddress
import os
import pwd
import socket
from pathlib import Path
from typing import Any

import psutil

OURS = [ipaddress.ip_network(name) for name in ("127.0.0.0/8", "::1/128", "198.18.0.0/15")]


class OffThisMachine(AssertionError):
    """A test tried to reach another machine."""


def allow_only_this_machine() -> None:
    """From now on no socket of this process connects anywhere else."""
    for name in ("connect", "connect_ex"):
        setattr(socket.socket, name, _guarded(getattr(socket.socket, name)))


def _guarded(real: Any) -> Any:
    if getattr(real, "guarded", False):
        return real

    def connect(self: socket.socket, address: Any) -> Any:
        if self.family in (socket.AF_INET, socket.AF_INET6):
            _check(address[0])
        return real(self, address)

    connect.guarded = True  # type: ignore[attr-defined]
    return connect


def _check(host: str) -> None:
    if host == "localhost":
        return
    try:
        address = ipaddress.ip_address(host)
    except ValueError as error:
        raise OffThisMachine(f"a test tried to look up {host}") from error
    if not any(address in network for network in OURS):
        raise OffThisMachine(f"a test tried to connect to {host}")


def _keys_of_leases() -> set[str]:
    """The public keys of leases that this account lets in."""
    path = Path(pwd.getpwuid(os.geteuid()).pw_dir) / ".ssh/authorized_keys"
    return {line for line in path.read_text().splitlines() if " drydock:" in line} if path.is_file() else set()


_KEYS_BEFORE = _keys_of_leases()


def leftovers(state: Path) -> list[str]:
    """Processes of this run that are still there, and keys with which its leases could still log in here."""
    found = [f"a key in ~/.ssh/authorized_keys: {line[-60:]}" for line in sorted(_keys_of_leases() - _KEYS_BEFORE)]
    for process in psutil.process_iter(["pid", "cmdline", "cwd", "status"]):
        if process.pid == os.getpid() or process.info["status"] == psutil.STATUS_ZOMBIE:
            continue
        words = [*(process.info["cmdline"] or []), process.info["cwd"] or ""]
        if any(str(state) in word for word in words) or _child_of_ours(process):
            found.append(f"process {process.pid}: {' '.join(process.info['cmdline'] or [])[:150]}")
    return found


def _child_of_ours(process: psutil.Process) -> bool:
    try:
        return os.getpid() in [parent.pid for parent in process.parents()]
    except psutil.Error:
        return False
