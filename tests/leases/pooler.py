"""A pooler between a test and PostgreSQL that loses connections as PgBouncer does.

It passes on the last error of the server, and sends one of its own after it.
"""

from __future__ import annotations

import contextlib
import select
import shutil
import socket
import struct
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FATAL = b"SFATAL\0VFATAL\0C%s\0M%s\0\0"
BY_SERVER, BY_POOLER = FATAL % (b"57P01", b"terminating connection"), FATAL % (b"08P01", b"server conn crashed?")


class Pooler:
    """A socket through which one reaches PostgreSQL, in a folder of its own and with the port number 1."""

    def __init__(self, server: Mapping[str, Any]) -> None:
        self._host, self._port = server.get("host") or "localhost", int(server.get("port") or 5432)
        self.losing = b""
        """The text of a statement at which the connection is lost, once."""
        # The path of a socket may have about 100 characters.
        self.folder = Path(tempfile.mkdtemp(prefix="dd-", dir="/tmp"))
        self._listens = socket.socket(socket.AF_UNIX)
        self._listens.bind(str(self.folder / ".s.PGSQL.1"))
        self._listens.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept no more connections."""
        self._listens.shutdown(socket.SHUT_RDWR)
        self._listens.close()
        shutil.rmtree(self.folder)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._listens.accept()[0]
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _server(self) -> socket.socket:
        if not self._host.startswith("/"):
            return socket.create_connection((self._host, self._port))
        made = socket.socket(socket.AF_UNIX)
        made.connect(f"{self._host}/.s.PGSQL.{self._port}")
        return made

    def _serve(self, client: socket.socket) -> None:
        with client, self._server() as server, contextlib.suppress(OSError):
            while True:
                for one in select.select([client, server], [], [])[0]:
                    data = one.recv(65536)
                    if not data:
                        return
                    if one is client and self.losing and self.losing in data:
                        self.losing = b""
                        client.sendall(_error(BY_SERVER) + _error(BY_POOLER))
                        return
                    (server if one is client else client).sendall(data)


def _error(said: bytes) -> bytes:
    return b"E" + struct.pack("!i", len(said) + 4) + said
