"""An SSH connection and its channels, with pinned host keys, a private key and a deadline for each step."""

from __future__ import annotations

import base64
import contextlib
import io
import socket
import threading
from collections.abc import Iterator

import fabric  # type: ignore[import-untyped]
import paramiko

from drydock.core.errors import InvalidRequest
from interfaces.deadline import Deadline
from interfaces.endpoints import SshEndpoint
from interfaces.errors import (
    AuthenticationRefused,
    ConnectionLost,
    DeadlineExceeded,
    HostKeyMismatch,
    Unreachable,
    failed_connection,
)
from interfaces.keys import PublicKey

_PRIVATE = (paramiko.Ed25519Key, paramiko.ECDSAKey, paramiko.RSAKey)


class PinnedOnly(paramiko.MissingHostKeyPolicy):
    """Refuses hosts whose key is not pinned. No host key is ever added at connection time."""

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        raise HostKeyMismatch(f"No host key is pinned for {hostname}; it presented {key.get_name()}.")


def client_for(endpoint: SshEndpoint) -> paramiko.SSHClient:
    """Return a client that accepts only the endpoint's pinned keys."""
    client = paramiko.SSHClient()
    for line in endpoint.host_keys:
        pinned = PublicKey.parse(line)
        key = paramiko.PKey.from_type_string(pinned.kind, base64.b64decode(pinned.body))
        client.get_host_keys().add(endpoint.known_as, pinned.kind, key)
    client.set_missing_host_key_policy(PinnedOnly())
    return client


def private_key_of(text: str) -> paramiko.PKey:
    """Parse an OpenSSH private key. Raises InvalidRequest, whose message never contains the key."""
    for kind in _PRIVATE:
        try:
            return kind.from_private_key(io.StringIO(text))
        except (paramiko.SSHException, ValueError, IndexError, TypeError):
            continue
    raise InvalidRequest("The private key is invalid or has a passphrase.", field="private_key")


KEEPALIVE = 15
"""Seconds between keepalives on a silent connection."""
UNANSWERED = 45
"""Seconds without any acknowledgement after which the host counts as unreachable."""
STEP = 15.0
"""Seconds within which a host must open a channel, or start a command or subsystem on it."""
_NO_CONFIG = fabric.Config(lazy=True, overrides={"load_ssh_configs": False})


class SshConnection:
    """An open connection. The pool counts its `sessions`."""

    def __init__(
        self,
        endpoint: SshEndpoint,
        private_key: str,
        *,
        deadline: Deadline,
        bastion: SshConnection | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.sessions = 0
        self.idle_since = 0.0
        self.bastion = bastion
        self._fabric = _prepared(endpoint, private_key, deadline)
        with _closing_at(deadline, self._fabric.client), _told_apart(endpoint, deadline):
            if bastion is not None:
                self._fabric.connect_kwargs["sock"] = bastion.tunnel(endpoint, deadline)
            self._fabric.open()
        self._transport: paramiko.Transport = self._fabric.transport
        self._transport.set_keepalive(KEEPALIVE)
        _tune(self._transport.sock)

    @property
    def alive(self) -> bool:
        """Return whether the connection is still open, as far as this process knows."""
        return bool(self._transport.is_active())

    def session(self, deadline: Deadline) -> paramiko.Channel:
        """Open a channel. Raises ConnectionLost, DeadlineExceeded."""
        with self._sure_that_nothing_ran(deadline):
            return self._transport.open_session(timeout=_step(deadline))

    def tunnel(self, target: SshEndpoint, deadline: Deadline) -> paramiko.Channel:
        """Open a channel that the host forwards to `target`. Raises ConnectionLost, DeadlineExceeded."""
        with self._sure_that_nothing_ran(deadline):
            return self._transport.open_channel(
                "direct-tcpip", (target.host, target.port), ("", 0), timeout=_step(deadline)
            )

    def request(self, channel: paramiko.Channel, command: str, deadline: Deadline) -> None:
        """Run `command` on a channel. Raises ConnectionLost (the command may have run), DeadlineExceeded.

        paramiko waits for the answer without limit, so the connection is closed at the deadline.
        """
        with _closing_at(Deadline(_step(deadline)), self._fabric.client):
            try:
                channel.exec_command(command)
            except (paramiko.SSHException, OSError, EOFError) as error:
                channel.close()
                deadline.check("Starting a command over SSH")
                raise ConnectionLost from error

    def terminal(self, channel: paramiko.Channel, command: str, deadline: Deadline) -> None:
        """Give the channel a terminal, and run `command` on it, or the account's shell if `command` is empty.

        Raises ConnectionLost, DeadlineExceeded.
        """
        with _closing_at(Deadline(_step(deadline)), self._fabric.client):
            try:
                channel.get_pty(term="vt220", width=80, height=24)
                if command:
                    channel.exec_command(command)
                else:
                    channel.invoke_shell()
            except (paramiko.SSHException, OSError, EOFError) as error:
                channel.close()
                deadline.check("Starting a terminal over SSH")
                raise ConnectionLost("The host opened no terminal.") from error

    def subsystem(self, channel: paramiko.Channel, name: str, deadline: Deadline) -> None:
        """Start a subsystem on the channel."""
        with _closing_at(Deadline(_step(deadline)), self._fabric.client):
            try:
                channel.invoke_subsystem(name)
            except (paramiko.SSHException, OSError, EOFError) as error:
                channel.close()
                deadline.check(f"Starting {name} over SSH")
                raise ConnectionLost(f"The host does not offer {name}.", may_have_run=False) from error

    def close(self) -> None:
        """Close the connection and all its channels."""
        with contextlib.suppress(Exception):
            self._fabric.client.close()

    def forget(self) -> None:
        """Drop the socket after a fork without writing to it, because the parent process still uses it."""
        with contextlib.suppress(Exception):
            self._transport.sock.close()

    @contextlib.contextmanager
    def _sure_that_nothing_ran(self, deadline: Deadline) -> Iterator[None]:
        try:
            yield
        except paramiko.ChannelException as error:
            raise ConnectionLost(f"The host did not open a channel: {error}.", may_have_run=False) from error
        except (paramiko.SSHException, OSError, EOFError) as error:
            # A host that no longer opens channels is of no use to the next caller either.
            self.close()
            deadline.check("Opening a channel over SSH")
            raise ConnectionLost("The connection no longer opens channels.", may_have_run=False) from error


def _prepared(endpoint: SshEndpoint, private_key: str, deadline: Deadline) -> fabric.Connection:
    within = max(0.1, min(endpoint.connect_timeout, deadline.remaining))
    connection = fabric.Connection(
        endpoint.host,
        user=endpoint.user,
        port=endpoint.port,
        config=_NO_CONFIG.clone(),
        connect_kwargs={
            "pkey": private_key_of(private_key),
            "allow_agent": False,
            "look_for_keys": False,
            "banner_timeout": within,
            "auth_timeout": within,
            "channel_timeout": within,
        },
    )
    # Fabric's argument is cut to whole seconds, and 0 of them mean no limit.
    connection.connect_timeout = within
    # Fabric's own client would accept any host key.
    connection.client = client_for(endpoint)
    return connection


@contextlib.contextmanager
def _closing_at(deadline: Deadline, client: paramiko.SSHClient) -> Iterator[None]:
    timer = threading.Timer(deadline.remaining, client.close)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextlib.contextmanager
def _told_apart(endpoint: SshEndpoint, deadline: Deadline) -> Iterator[None]:
    where = f"{endpoint.host} port {endpoint.port}"
    try:
        yield
    except paramiko.BadHostKeyException as error:
        raise HostKeyMismatch(f"{where} presented a key that is not the pinned one.") from error
    except paramiko.AuthenticationException as error:
        raise AuthenticationRefused(f"{where} refused the key for {endpoint.user}.") from error
    except ConnectionLost as error:
        raise Unreachable(f"The bastion cannot reach {where}: {error.message}") from error
    except (paramiko.SSHException, OSError, EOFError, AttributeError) as error:
        # AttributeError: paramiko's client when it is closed (by the deadline) while it connects.
        if deadline.expired:
            raise DeadlineExceeded(f"Connecting to {where} took longer than {deadline.seconds:g} s.") from error
        raise Unreachable(f"Cannot connect: {failed_connection(error, endpoint.host, endpoint.port)}.") from error


def _step(deadline: Deadline) -> float:
    return max(0.1, min(STEP, deadline.remaining))


def _tune(sock: object) -> None:
    if not isinstance(sock, socket.socket):
        return  # a channel of the bastion
    # Many small messages in both directions: without this each waits 40 ms for an acknowledgement.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    option = getattr(socket, "TCP_USER_TIMEOUT", None)
    if option is not None:
        sock.setsockopt(socket.IPPROTO_TCP, option, UNANSWERED * 1000)
