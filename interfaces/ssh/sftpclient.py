"""paramiko's SFTP client with every answer of the server checked before paramiko parses it.

paramiko believes the lengths and counts that a server sends: a count of two million in an answer of nine bytes becomes
two million entries in memory, and an answer may be 16 MiB long. The server is software on a tenant's machine, so its
answers are input like any other. Layout of the answers: draft-ietf-secsh-filexfer-02, sections 3, 5, 6.1 and 7.
"""

from __future__ import annotations

import struct
from typing import Any

import paramiko
from paramiko import sftp

from interfaces.deadline import Deadline

STEP = 30.0
"""Seconds within which the host must answer one request."""
LONGEST_ANSWER = 256 << 10
"""Bytes; OpenSSH's server and client have the same limit (SFTP_MAX_MSG_LENGTH)."""
LONGEST_NAME = 1024
"""Bytes of one file name; Linux has 255."""
_MOST_STRAYS = 64
"""Answers to requests that nobody waits for any more, in a row. A read that failed leaves fewer than this."""
_SIZE, _OWNER, _MODE, _TIMES, _EXTENDED = 1, 2, 4, 8, 0x8000_0000


def name_of(raw: bytes) -> str:
    """A name or path as text; bytes that are no UTF-8 become half characters, as in `os.fsdecode`."""
    return raw.decode("utf-8", "surrogateescape")


def raw_name(name: str | bytes) -> bytes:
    """The bytes of a name or path."""
    return name if isinstance(name, bytes) else name.encode("utf-8", "surrogateescape")


class SftpClient(paramiko.SFTPClient):
    """Raises paramiko.SFTPError for an answer that its own bytes contradict, TimeoutError for one that does not come.

    Names may hold any byte; paramiko's own methods take and give only UTF-8.
    """

    def __init__(self, channel: paramiko.Channel) -> None:
        self._strays = 0
        super().__init__(channel)

    def normalize(self, path: str | bytes) -> str:
        """The path as the server resolves it."""
        return self._name(sftp.CMD_REALPATH, path)

    def readlink(self, path: str | bytes) -> str:
        """Where a link leads."""
        return self._name(sftp.CMD_READLINK, path)

    def symlink(self, source: str | bytes, dest: str | bytes) -> None:
        """Make a link at `dest` that leads to `source`."""
        super().symlink(raw_name(source), dest)

    def _name(self, request: int, path: str | bytes) -> str:
        kind, said = self._request(request, self._adjust_cwd(path))  # type: ignore[attr-defined]
        if kind != sftp.CMD_NAME or said.get_int() != 1:
            raise paramiko.SFTPError("an answer that is not one name")
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
            raise paramiko.SFTPError(f"an answer of {size} bytes; 1 to {LONGEST_ANSWER} are allowed")
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
            raise paramiko.SFTPError("answers to questions that were not asked")


def check_answer(kind: int, content: bytes) -> None:
    """Raise paramiko.SFTPError unless the content holds all that its lengths and counts promise."""
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
    """Walks over an answer. Every step takes some of its bytes, so no count can keep a loop going past its end."""

    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0

    @property
    def left(self) -> int:
        return len(self._content) - self._at

    def skip(self, size: int) -> None:
        if size > self.left:
            raise paramiko.SFTPError(f"an answer that promises {size} more bytes where {self.left} are left")
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
