"""An SFTP session that opens again after it was lost, and a file in it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, Protocol

import paramiko
from paramiko import sftp

from interfaces.deadline import Deadline
from interfaces.errors import ConnectionLost, DeadlineExceeded, FileError, QuotaExceeded
from interfaces.files import PART, OpenFile, file_error
from interfaces.ssh.connection import SshConnection
from interfaces.ssh.sftpclient import LONGEST_NAME, STEP, SftpClient, name_of, raw_name

_BLOCK = 1 << 15
_AHEAD = 16


class Sessions(Protocol):
    """Where SFTP gets its channels from."""

    def session(self, deadline: Deadline) -> tuple[SshConnection, paramiko.Channel]:
        """Return a free channel and its connection. Raises Unreachable, ConnectionLost, DeadlineExceeded."""

    def give_back(self, connection: SshConnection) -> None:
        """Return what `session` gave."""


class SftpSession:
    """An SFTP session, opened when needed and again after it was lost."""

    def __init__(self, transport: Sessions) -> None:
        self._transport = transport
        self._lock = threading.Lock()
        self._connection: SshConnection | None = None
        self._client: paramiko.SFTPClient | None = None

    @contextlib.contextmanager
    def client(self, path: str = "") -> Iterator[paramiko.SFTPClient]:
        """The client, with its errors told apart."""
        try:
            yield self._open()
        except (TimeoutError, EOFError, paramiko.SSHException) as error:
            lost = isinstance(error, EOFError | paramiko.SSHException)
            self.close()
            if lost:
                raise ConnectionLost from error
            raise DeadlineExceeded("The host did not answer in time.") from error
        except paramiko.SFTPError as error:
            # What comes next on this session cannot be told either.
            self.close()
            raise ConnectionLost(f"The host's SFTP server sent nonsense: {str(error)[:200]}.") from error
        except OSError as error:
            if self.broken:
                self.close()
                raise ConnectionLost from error
            raise file_error(error.errno, error.strerror or str(error), path) from error

    def _open(self) -> paramiko.SFTPClient:
        with self._lock:
            if self._client is not None and not self.broken:
                return self._client
            self._drop()
            deadline = Deadline(STEP)
            self._connection, channel = self._transport.session(deadline)
            try:
                self._connection.subsystem(channel, "sftp", deadline)
                self._client = SftpClient(channel)
            except BaseException:
                self._drop()
                raise
            return self._client

    def close(self) -> None:
        with self._lock:
            self._drop()

    @property
    def broken(self) -> bool:
        """Whether the session was lost."""
        client, connection = self._client, self._connection
        if client is None or connection is None:
            return False
        channel = client.get_channel()
        return not connection.alive or channel is None or channel.closed

    def __del__(self) -> None:
        self._drop()

    def _drop(self) -> None:
        client, self._client = self._client, None
        connection, self._connection = self._connection, None
        if client is not None:
            with contextlib.suppress(Exception):
                client.close()
        if connection is not None:
            self._transport.give_back(connection)


class SftpFile(OpenFile):
    """paramiko's own reading ahead fetches a whole file into memory, and goes on after it was closed, and
    its writing without waiting swallows refusals: so blocks are asked for a few at a time, and what was
    kept is counted."""

    def __init__(self, session: SftpSession, file: paramiko.SFTPFile, path: str, size: int) -> None:
        self._session, self._file, self._path = session, file, path
        self._size, self._at = size, 0

    def read(self, size: int = PART) -> bytes:
        end = min(self._size, self._at + min(size, _BLOCK * _AHEAD))
        blocks = [(at, min(_BLOCK, end - at)) for at in range(self._at, end, _BLOCK)]
        if not blocks:
            return b""
        with self._session.client(self._path):
            part = b"".join(self._file.readv(blocks))
        self._at += len(part)
        if self._at != end:
            raise FileError(f"The file became shorter while it was read: {self._path!r}.")
        return part

    def write(self, part: bytes) -> None:
        with self._session.client(self._path):
            self._file.write(part)
        self._size += len(part)

    def sync(self) -> None:
        # paramiko has no call for fsync@openssh.com; what can be done is to have every write answered.
        with self._session.client(self._path):
            self._file.flush()
            kept = self._file.stat().st_size
        if kept is None or kept < self._size:
            raise QuotaExceeded(f"The host kept {kept} of {self._size} bytes: {self._path!r}.")

    def close(self) -> None:
        with self._session.client(self._path):
            self._file.close()


def listed(client: paramiko.SFTPClient, folder: str, most: int) -> list[paramiko.SFTPAttributes]:
    """What is in the folder, or somewhat more than `most` of it. paramiko's own listing reads on for as long as the
    host has something to say, and its iterating one loses answers to others that use the client."""
    ask: Any = client._request  # type: ignore[attr-defined]
    handle = ask(sftp.CMD_OPENDIR, raw_name(folder))[1].get_binary()
    found: list[paramiko.SFTPAttributes] = []
    try:
        while len(found) <= most:
            kind, said = ask(sftp.CMD_READDIR, handle)
            # An answer with no entry is the end of the list, as for OpenSSH's client.
            if kind != sftp.CMD_NAME or not (count := said.get_int()):
                break
            found += [_attributes(said) for _ in range(count)]
    except EOFError:
        # The end of the list; a lost connection is an SSHException here.
        pass
    ask(sftp.CMD_CLOSE, handle)
    return [each for each in found if each.filename not in (".", "..")]


def _attributes(said: Any) -> Any:
    name = said.get_string()
    said.get_string()  # the line of `ls -l`, which nobody reads here
    if len(name) > LONGEST_NAME:
        raise paramiko.SFTPError(f"a file name of {len(name)} bytes")
    return paramiko.SFTPAttributes._from_msg(said, name_of(name), "")  # type: ignore[attr-defined]
