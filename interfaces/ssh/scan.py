"""Read the host keys that an SSH server presents, for a person to verify before they are pinned."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Iterator

import paramiko

from interfaces.deadline import Deadline
from interfaces.endpoints import SshEndpoint
from interfaces.errors import ConnectionLost, Unreachable
from interfaces.keys import PublicKey
from interfaces.ssh.pool import POOL

_QUIET = logging.getLogger(f"{__name__}.paramiko")
_QUIET.addHandler(logging.NullHandler())
# That a server has no key of some sort is no error, and paramiko logs a traceback of it.
_QUIET.propagate = False
_ALGORITHMS = (("ssh-ed25519",), ("ecdsa-sha2-nistp256",), ("rsa-sha2-512", "rsa-sha2-256"))
"""Algorithms by type of key. One key of each type is requested, because a server has at most one of each type."""


def shown_keys(
    host: str, port: int, deadline: Deadline, *, bastion: SshEndpoint | None = None, bastion_key: str = ""
) -> tuple[PublicKey, ...]:
    """Return a server's host keys, without logging in. Raises Unreachable if it presents none before the deadline."""
    found: list[PublicKey] = []
    problem: Exception | None = None
    for algorithms in _ALGORITHMS:
        try:
            with _connected(host, port, deadline, bastion, bastion_key) as sock:
                found.append(_shown(sock, algorithms, deadline))
        except paramiko.ssh_exception.IncompatiblePeer:
            continue
        except (paramiko.SSHException, OSError, EOFError, ConnectionLost) as error:
            problem = error
            break
    if not found:
        said = getattr(problem, "strerror", "") or str(problem or "") or "the server has no key of a supported type"
        raise Unreachable(f"{host} port {port} presented no host key: {said}.")
    return tuple(found)


def _shown(sock: socket.socket | paramiko.Channel, algorithms: tuple[str, ...], deadline: Deadline) -> PublicKey:
    transport = paramiko.Transport(sock)
    transport.set_log_channel(_QUIET.name)
    try:
        transport.banner_timeout = deadline.remaining
        transport.get_security_options().key_types = algorithms
        transport.start_client(timeout=max(0.1, deadline.remaining))
        key = transport.get_remote_server_key()
        return PublicKey.parse(f"{key.get_name()} {key.get_base64()}")
    finally:
        transport.close()


@contextlib.contextmanager
def _connected(
    host: str, port: int, deadline: Deadline, bastion: SshEndpoint | None, bastion_key: str
) -> Iterator[socket.socket | paramiko.Channel]:
    if bastion is None:
        with socket.create_connection((host, port), timeout=max(0.1, deadline.remaining)) as sock:
            yield sock
        return
    connection = POOL.borrow(bastion, bastion_key, bastion_key, deadline)
    try:
        target = SshEndpoint(host=host, port=port, user="nobody", host_keys=bastion.host_keys)
        with contextlib.closing(connection.tunnel(target, deadline)) as channel:
            yield channel
    finally:
        POOL.give_back(connection)
