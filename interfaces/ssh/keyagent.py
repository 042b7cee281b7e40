"""An SSH agent that offers one key to the system's `ssh`.

The key is kept only in the memory of this process and is never written to a file.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import paramiko

from interfaces.ssh.connection import private_key_of

_FAILURE, _LIST, _LISTED, _SIGN, _SIGNED = 5, 11, 12, 13, 14
_LONGEST = 1 << 18
_RSA = {2: "rsa-sha2-256", 4: "rsa-sha2-512"}
"""Signature algorithms of an RSA key by request flag. A request without flags means SHA-1, which is refused."""


class KeyAgent:
    """Listens on a socket at `path` between `__enter__` and `__exit__`. Only this user can access the socket's folder.

    Replaces a socket that another process left there. Raises InvalidRequest if `private_key` is not a private key.
    """

    def __init__(self, private_key: str, path: Path) -> None:
        self._key = private_key_of(private_key)
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX)
        self._inode = 0

    def __enter__(self) -> Self:
        beside = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        try:
            self._socket.bind(str(beside))
            beside.chmod(0o600)
            self._inode = beside.stat().st_ino
            self._socket.listen()
            beside.replace(self.path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        threading.Thread(target=self._accept, name="ssh-agent", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        with contextlib.suppress(FileNotFoundError):
            if self.path.lstat().st_ino == self._inode:
                self.path.unlink()

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(link,), name="ssh-agent-client", daemon=True).start()

    def _serve(self, link: socket.socket) -> None:
        with link, contextlib.suppress(OSError, struct.error), link.makefile("rb") as asked:
            while len(head := asked.read(4)) == 4:
                (length,) = struct.unpack(">I", head)
                if not 0 < length <= _LONGEST:
                    return
                link.sendall(_string(self._answer(asked.read(length))))

    def _answer(self, request: bytes) -> bytes:
        blob = self._key.asbytes()
        if request[0] == _LIST:
            return struct.pack(">BI", _LISTED, 1) + _string(blob) + _string(b"drydock")
        if request[0] == _SIGN and (signature := self._signed(paramiko.Message(request[1:]), blob)):
            return bytes([_SIGNED]) + _string(signature)
        return bytes([_FAILURE])

    def _signed(self, request: paramiko.Message, blob: bytes) -> bytes:
        """Return the signature, or empty bytes if the request is for another key or a refused algorithm."""
        key, data, flags = request.get_binary(), request.get_binary(), request.get_int()
        if key != blob:
            return b""
        if not isinstance(self._key, paramiko.RSAKey):
            return bytes(self._key.sign_ssh_data(data).asbytes())
        algorithm = next((name for flag, name in _RSA.items() if flags & flag), "")
        return bytes(self._key.sign_ssh_data(data, algorithm).asbytes()) if algorithm else b""


def _string(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content
