"""A line to a serial console over SSH: one channel with a terminal, on a connection of its own."""

from __future__ import annotations

from typing import Self

import paramiko

from interfaces.console.contract import LARGEST_READ, Line
from interfaces.deadline import Deadline
from interfaces.endpoints import SshEndpoint
from interfaces.errors import ConnectionLost, ConsoleClosed
from interfaces.ssh.connection import SshConnection

_EXIT_CODE = 1.0
"""Seconds to wait for the exit code of a console's command that has ended."""


class SshLine(Line):
    """A channel whose other end is a console. The connection's own keepalives notice a server that is gone."""

    def __init__(self, connection: SshConnection, channel: paramiko.Channel) -> None:
        self._connection, self._channel = connection, channel

    @classmethod
    def opened(cls, endpoint: SshEndpoint, private_key: str, command: str, deadline: Deadline) -> Self:
        """Log in, and run `command` in a terminal, or the account's shell if it is empty.

        Raises Unreachable, HostKeyMismatch, AuthenticationRefused, ConnectionLost, DeadlineExceeded.
        """
        connection = SshConnection(endpoint, private_key, deadline=deadline)
        try:
            channel = connection.session(deadline)
            connection.terminal(channel, command, deadline)
        except BaseException:
            connection.close()
            raise
        return cls(connection, channel)

    def read(self, wait: float) -> bytes:
        """Return what arrives within `wait` seconds. Raises ConsoleClosed, ConnectionLost."""
        self._channel.settimeout(wait)
        try:
            found = bytes(self._channel.recv(LARGEST_READ))
        except TimeoutError:
            return b""
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise ConnectionLost("The connection to the console was lost.") from error
        if not found:
            raise self._ended()
        return found

    def write(self, content: bytes) -> int:
        """Send as much as the server takes now. Raises ConsoleClosed, ConnectionLost."""
        self._channel.settimeout(0.0)
        try:
            return int(self._channel.send(content))
        except TimeoutError:
            return 0
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise (self._ended() if self._channel.closed else ConnectionLost()) from error

    def close(self) -> None:
        """Close the connection, which ends the command. Never raises."""
        self._connection.close()

    def _ended(self) -> ConsoleClosed | ConnectionLost:
        if not self._connection.alive:
            return ConnectionLost("The connection to the console was lost.")
        # The exit code may arrive a moment after the end of the output.
        ended = self._channel.status_event.wait(_EXIT_CODE)
        code = self._channel.recv_exit_status() if ended else -1
        how = f" Its command ended with exit code {code}." if code > 0 else ""
        return ConsoleClosed(f"The server closed the console.{how}")
