"""SFTP: a client that validates every response, a session that reconnects, and open files.

paramiko trusts the lengths and counts that a server sends: a count of two million in an answer of nine bytes becomes
two million entries in memory, and an answer may be 16 MiB long. The server is software on a tenant's machine, so its
answers are untrusted input. Layout of the answers: draft-ietf-secsh-filexfer-02, sections 3, 5, 6.1 and 7.
"""

from __future__ import annotations

import contextlib
import struct
import threading
from collections.abc import Iterator
from typing import Any, Protocol

import paramiko
from paramiko import sftp

from interfaces.deadline import Deadline
from interfaces.errors import ConnectionLost, DeadlineExceeded, FileError, QuotaExceeded
from interfaces.files import PART, OpenFile, file_error
from interfaces.ssh.connection import SshConnection

STEP = 30.0
"""Seconds within which the host must answer one request."""
LONGEST_ANSWER = 256 << 10
"""Maximum size of an answer in bytes, as in OpenSSH's server and client (SFTP_MAX_MSG_LENGTH)."""
LONGEST_NAME = 1024
"""Maximum length of a file name in bytes. Linux allows 255."""
_MOST_STRAYS = 64
"""Maximum number of consecutive answers to requests that are no longer awaited. A failed read leaves fewer."""
_SIZE, _OWNER, _MODE, _TIMES, _EXTENDED = 1, 2, 4, 8, 0x8000_0000


def name_of(raw: bytes) -> str:
    """Return a name or path as text; bytes that are not UTF-8 become surrogates, as in `os.fsdecode`."""
    return raw.decode("utf-8", "surrogateescape")


def raw_name(name: str | bytes) -> bytes:
    """Return the bytes of a name or path."""
    return name if isinstance(name, bytes) else name.encode("utf-8", "surrogateescape")


class SftpClient(paramiko.SFTPClient):
    """paramiko's client with checked answers.

    Raises paramiko.SFTPError for an inconsistent answer, and TimeoutError if none comes.
    """

    def __init__(self, channel: paramiko.Channel) -> None:
        self._strays = 0
        super().__init__(channel)

    def normalize(self, path: str | bytes) -> str:
        """Return the path as the server resolves it."""
        return self._name(sftp.CMD_REALPATH, path)

    def readlink(self, path: str | bytes) -> str:
        """Return the target of a link."""
        return self._name(sftp.CMD_READLINK, path)

    def symlink(self, source: str | bytes, dest: str | bytes) -> None:
        """Create a link at `dest` that points to `source`."""
        super().symlink(raw_name(source), dest)

    def _name(self, request: int, path: str | bytes) -> str:
        kind, said = self._request(request, self._adjust_cwd(path))  # type: ignore[attr-defined]
        if kind != sftp.CMD_NAME or said.get_int() != 1:
            raise paramiko.SFTPError("an answer that does not contain exactly one name")
        return name_of(said.get_string())

    def _adjust_cwd(self, path: str | bytes) -> bytes:
        return raw_name(path)

    def _send_packet(self, kind: bytes, packet: Any) -> None:
        if channel := self.get_channel():
            channel.settimeout(Deadline(STEP).remaining)
        super()._send_packet(kind, packet)  # type: ignore[misc]

    def _read_packet(self) -> tuple[int, bytes]:
        until = Deadline(STEP)
        size = struct.unpack(">I", self._exactly(4, until))[0]
        if not 1 <= size <= LONGEST_ANSWER:
            raise paramiko.SFTPError(f"an answer of {size} bytes, but 1 to {LONGEST_ANSWER} are allowed")
        packet = self._exactly(size, until)
        kind, content = packet[0], packet[1:]
        check_answer(kind, content)
        if kind != sftp.CMD_VERSION:
            self._count_strays(int.from_bytes(content[:4], "big"))
        return kind, content

    def _exactly(self, size: int, until: Deadline) -> bytes:
        found, channel = bytearray(), self.get_channel()
        while len(found) < size:
            if channel is not None:
                channel.settimeout(until.remaining)
            part = channel.recv(size - len(found)) if channel is not None else b""
            if not part:
                raise EOFError
            found += part
        return bytes(found)

    def _count_strays(self, number: int) -> None:
        expected: Any = self._expecting  # type: ignore[attr-defined]
        self._strays = 0 if number in expected else self._strays + 1
        if self._strays > _MOST_STRAYS:
            raise paramiko.SFTPError("answers to requests that were not sent")


def check_answer(kind: int, content: bytes) -> None:
    """Check that an answer is as long as its lengths and counts claim. Raises paramiko.SFTPError."""
    answer = _Answer(content)
    answer.skip(4)  # the request's number, or the server's version
    if kind == sftp.CMD_STATUS:
        answer.skip(4)
        while answer.left:  # message and language, which old servers leave out
            answer.text()
    elif kind in (sftp.CMD_HANDLE, sftp.CMD_DATA):
        answer.text()
    elif kind == sftp.CMD_NAME:
        for _ in range(answer.number()):
            answer.text()
            answer.text()
            answer.attributes()
    elif kind == sftp.CMD_ATTRS:
        answer.attributes()


class _Answer:
    """Walks over an answer. Each step consumes some of its bytes, so a wrong count cannot make a loop endless."""

    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0

    @property
    def left(self) -> int:
        return len(self._content) - self._at

    def skip(self, size: int) -> None:
        if size > self.left:
            raise paramiko.SFTPError(f"an answer that announces {size} more bytes but has only {self.left} left")
        self._at += size

    def number(self) -> int:
        self.skip(4)
        return int.from_bytes(self._content[self._at - 4 : self._at], "big")

    def text(self) -> None:
        self.skip(self.number())

    def attributes(self) -> None:
        flags = self.number()
        self.skip(sum(size for flag, size in ((_SIZE, 8), (_OWNER, 8), (_MODE, 4), (_TIMES, 8)) if flags & flag))
        if flags & _EXTENDED:
            for _ in range(self.number()):
                self.text()
                self.text()


_BLOCK = 1 << 15
_AHEAD = 16


class Sessions(Protocol):
    """A source of channels for SFTP."""

    def session(self, deadline: Deadline) -> tuple[SshConnection, paramiko.Channel]:
        """Return a free channel and its connection. Raises Unreachable, ConnectionLost, DeadlineExceeded."""

    def give_back(self, connection: SshConnection) -> None:
        """Give back the connection that `session` returned."""


class SftpSession:
    """An SFTP session that is opened on first use, and reopened if it was lost."""

    def __init__(self, transport: Sessions) -> None:
        self._transport = transport
        self._lock = threading.Lock()
        self._connection: SshConnection | None = None
        self._client: paramiko.SFTPClient | None = None

    @contextlib.contextmanager
    def client(self, path: str = "") -> Iterator[paramiko.SFTPClient]:
        """Yield the client, and convert errors that it raises in the block to interface errors."""
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
            raise ConnectionLost(f"The host's SFTP server sent an invalid answer: {str(error)[:200]}.") from error
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
        """Return whether the session was lost."""
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
    """A file opened over SFTP.

    paramiko's prefetch reads the whole file into memory and continues after close, and its pipelined writes swallow
    errors. So `read` requests only a few blocks at a time, and `sync` compares the size on the host with the number of
    bytes written.
    """

    def __init__(self, session: SftpSession, file: paramiko.SFTPFile, path: str, size: int) -> None:
        self._session, self._file, self._path = session, file, path
        self._size, self._at = size, 0

    def read(self, size: int = PART) -> bytes:
        end = min(self._size, self._at + min(size, _BLOCK * _AHEAD))
        blocks = [(at, min(_BLOCK, end - at)) for at in range(self._at, end, _BLOCK)]
        if not blocks:
            return b""
        with self._session.client(self._path):
            part = b"".join(_read_blocks(self._file, blocks))
        self._at += len(part)
        if self._at != end:
            raise FileError(f"The file was truncated while it was read: {self._path!r}.")
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
            raise QuotaExceeded(f"The host stored {kept} of {self._size} bytes: {self._path!r}.")

    def close(self) -> None:
        with self._session.client(self._path):
            self._file.close()


def _read_blocks(file: Any, blocks: list[tuple[int, int]]) -> Iterator[bytes]:
    """Yield blocks of a file that are requested together.

    Unlike paramiko's `readv`, this sends the requests in the caller's thread, because nobody sees an error of another
    one. They are few and short, so that sending them does not wait for answers.
    """
    file._prefetching, file._prefetch_done = True, False
    file._prefetch_thread(blocks, None)
    for at, size in blocks:
        file.seek(at)
        yield file.read(size)


def listed(client: paramiko.SFTPClient, folder: str, most: int) -> list[paramiko.SFTPAttributes]:
    """Return the entries of a folder, or slightly more than `most` of them.

    paramiko's `listdir_attr` reads for as long as the host sends entries, and its iterator consumes responses meant for
    other users of the client.
    """
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
