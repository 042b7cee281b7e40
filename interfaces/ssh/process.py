"""A remote process, which uses one channel of an SSH connection."""

from __future__ import annotations

import contextlib
import select
from collections.abc import Callable

import paramiko

from interfaces.errors import ConnectionLost
from interfaces.launch import Greeting
from interfaces.ssh.connection import SshConnection
from interfaces.transport import Exit, Process

_PART = 1 << 18
_LEAST_WAIT = 0.02


class SshProcess(Process):
    """A remote process. Reads the channel itself, because paramiko's buffer grows with the output."""

    def __init__(
        self,
        connection: SshConnection,
        channel: paramiko.Channel,
        *,
        script: bytes,
        greeting: Greeting,
        give_back: Callable[[], None],
    ) -> None:
        self._connection, self._channel = connection, channel
        self._script, self._closing, self._greeting = script, False, greeting
        self._give_back: Callable[[], None] | None = give_back
        self._channel.settimeout(0.0)
        self._ready = select.poll()
        self._ready.register(channel.fileno(), select.POLLIN)
        self._ended = False

    @property
    def leader(self) -> str:
        return self._greeting.leader

    def read(self, wait: float, *, writing: bool = False) -> tuple[bytes, bytes]:
        writing = self._send_script() or writing
        if writing:
            # Room in the channel's window is not told by any descriptor.
            wait = min(wait, _LEAST_WAIT)
        if self._channel.eof_received and not self._channel.closed:
            # At the end of the output its descriptor is always ready; what is waited for is the exit code.
            self._channel.status_event.wait(min(wait, _LEAST_WAIT))
        else:
            self._ready.poll(wait * 1000)
        # Asked first: what comes between the question and the reading is found next time.
        done = self._channel.closed or (self._channel.eof_received and self._channel.exit_status_ready())
        out, err = self._part(self._channel.recv), self._part(self._channel.recv_stderr)
        own = self._greeting.out(out), self._greeting.err(err)
        if done and not out and not err:
            self._end()
        return own

    def write(self, part: bytes) -> int:
        return 0 if self._send_script() else self._write(part)

    def close_input(self) -> None:
        # What is left of the script goes with the next reads: the host may never take it.
        self._closing = True
        self._send_script()

    @property
    def ended(self) -> bool:
        return self._ended

    @property
    def exit(self) -> Exit | None:
        if not self._channel.exit_status_ready():
            return None
        code = self._channel.exit_status
        if code == -1:
            return None  # reading to the end raises what became of it
        return Exit(code=code, signal=code - 128 if 128 < code <= 192 else 0)

    def kill(self) -> None:
        """Do nothing: only the host can kill the process, and `close` closes the channel."""

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._channel.close()
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back()

    def _end(self) -> None:
        self._ended = True
        if self._channel.exit_status == -1:
            raise self._lost()
        if missing := self._greeting.never_came():
            raise missing

    def _lost(self) -> ConnectionLost:
        if self._connection.alive:
            return ConnectionLost("The host ended the session without an exit code.")
        return ConnectionLost()

    def _send_script(self) -> bool:
        if self._script:
            self._script = self._script[self._write(self._script) :]
        if self._closing and not self._script:
            self._closing = False
            with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
                self._channel.shutdown_write()
        return bool(self._script)

    def _write(self, part: bytes) -> int:
        if self._channel.closed or self._channel.eof_sent:
            return len(part)
        if not self._channel.send_ready():
            return 0
        try:
            return self._channel.send(part[:_PART])
        except TimeoutError:
            return 0
        except (OSError, EOFError, paramiko.SSHException):
            # Closed by the other side: its end is found when reading.
            return len(part)

    def _part(self, receive: Callable[[int], bytes]) -> bytes:
        try:
            return receive(_PART)
        except TimeoutError:
            return b""
