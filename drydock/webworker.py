"""Gunicorn's threaded worker with one change: a request is passed to a thread only once its head is complete.

The original reads the head in a thread, for as long as the client takes, so a few clients that send slowly, or stop
sending, occupy every thread. Here the worker's main loop collects heads without blocking, for `HEAD_SECONDS` each.
Clients that do not read their answers are disconnected as well. Used with `--worker-class drydock.webworker.Worker`.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections import OrderedDict
from functools import partial
from selectors import EVENT_READ
from typing import Any

from gunicorn.workers.gthread import ThreadWorker

from drydock.core import clock

HEAD_SECONDS = 10.0
"""Seconds within which the head of a request must arrive."""
LARGEST_HEAD = 64 << 10
SEND_SECONDS = 30
"""Seconds after which a client that reads none of its answer is disconnected."""
_END = b"\r\n\r\n"
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class Worker(ThreadWorker):  # type: ignore[misc]
    """Serves requests whose heads are complete.

    If half of its connections are still sending their heads, it drops the oldest of those.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cfg.set("sendfile", False)  # Python's waits without end for a client that does not read
        self._heads: OrderedDict[Any, tuple[bytearray, float]] = OrderedDict()

    def enqueue_req(self, conn: Any) -> None:
        """Collect the head, then pass the connection to a thread."""
        if self.cfg.is_ssl:  # what comes is to be decrypted first, in a thread
            super().enqueue_req(conn)
            return
        if len(self._heads) >= max(1, self.worker_connections // 2):
            self._drop(next(iter(self._heads)))
        conn.sock.setblocking(False)
        conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_SECONDS, 0))
        begun = conn.parser.unreader.take_buffered() if conn.parser is not None else b""
        self._heads[conn] = bytearray(begun), clock.monotonic() + HEAD_SECONDS
        self.poller.register(conn.sock, EVENT_READ, partial(self._collect, conn))
        self._collect(conn)

    def _collect(self, conn: Any, _: Any = None) -> None:
        """Read the part of a head that has arrived."""
        head, _until = self._heads[conn]
        try:
            part = conn.sock.recv(LARGEST_HEAD)
        except BlockingIOError:  # nothing new; yet what was read ahead may be a whole head
            part = None
        except OSError:
            part = b""
        if part == b"":
            self._drop(conn)
            return
        head += part or b""
        if _END in head:
            self._serve(conn, bytes(head))
        elif len(head) >= LARGEST_HEAD:
            with contextlib.suppress(OSError):
                conn.sock.send(_TOO_LARGE)
            self._drop(conn)

    def _serve(self, conn: Any, head: bytes) -> None:
        self._forget(conn)
        conn.init()
        conn.parser.unreader.unread(head)
        super().enqueue_req(conn)

    def _drop(self, conn: Any) -> None:
        self._forget(conn)
        self.nr_conns -= 1
        conn.close()

    def _forget(self, conn: Any) -> None:
        del self._heads[conn]
        self.poller.unregister(conn.sock)

    def murder_pending(self) -> None:
        """Close connections whose heads did not arrive in time.

        If the worker is stopping, also close those that have sent no data.
        """
        super().murder_pending()
        now = clock.monotonic()
        for conn in [
            conn for conn, (head, until) in self._heads.items() if until <= now or not (head or self.alive)
        ]:  # fmt: skip
            self._drop(conn)
