"""A deadline for request bodies, because a thread that waits for a slow client cannot serve other requests.

Gunicorn has no such deadline. When the deadline passes, the connection is shut down for reading, which the waiting
thread sees as the end of the body.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

from django.conf import settings

from drydock.core import clock

_LOOK = 0.25

"""Seconds between two checks for deadlines that have passed."""


class DeadlineWatch:
    """Keeps the deadlines of connections. A thread shuts down every connection whose deadline has passed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._some = threading.Event()
        self._ends: dict[socket.socket, tuple[float, int]] = {}
        self._thread: threading.Thread | None = None

    def until(self, link: socket.socket, seconds: float, how: int = socket.SHUT_RD) -> None:
        """Shut the connection down after `seconds`, replacing any earlier deadline for it."""
        with self._lock:
            self._ends[link] = (clock.monotonic() + seconds, how)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="deadlines", daemon=True)
                self._thread.start()
        self._some.set()

    def forget(self, link: socket.socket) -> None:
        """Remove the deadline of a connection."""
        with self._lock:
            self._ends.pop(link, None)

    def _run(self) -> None:
        while self._some.wait():
            self._look()
            clock.sleep(_LOOK)

    def _look(self) -> None:
        now = clock.monotonic()
        with self._lock:
            for link in [link for link, (end, _) in self._ends.items() if end <= now]:
                _, how = self._ends.pop(link)
                with contextlib.suppress(OSError):  # it is closed already
                    link.shutdown(how)
            if not self._ends:
                self._some.clear()


WATCH = DeadlineWatch()


class Body:
    """The body of a request. Calls `ended` once all of it has been read."""

    def __init__(self, stream: Any, length: int | None, ended: Callable[[], None]) -> None:
        self._stream, self._left, self._ended = stream, length, ended
        self.done = False

    def read(self, size: int = -1) -> bytes:
        """Read up to `size` bytes, or everything if `size` is negative."""
        return self._got(self._stream.read(size) if size >= 0 else self._stream.read(), size)

    def readline(self, size: int = -1) -> bytes:
        """Read a line, or up to `size` bytes of it."""
        return self._got(self._stream.readline(size) if size >= 0 else self._stream.readline(), size)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.readline, b"")

    def _got(self, part: bytes, size: int) -> bytes:
        self._left = None if self._left is None else self._left - len(part)
        if not self.done and ((not part and size != 0) or self._left == 0):
            self.done = True
            self._ended()
        return part


class BodyDeadline:
    """WSGI middleware that cuts off request bodies that do not arrive within `DRYDOCK_BODY_SECONDS`."""

    def __init__(self, application: Any) -> None:
        self._application = application

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        """Answer a request."""
        link = environ.get("gunicorn.socket")
        if link is not None:
            self._bound(environ, link)
        return self._application(environ, start_response)

    def _bound(self, environ: dict[str, Any], link: socket.socket) -> None:
        WATCH.forget(link)
        announced = environ.get("CONTENT_LENGTH") or "0"
        chunked = bool(environ.get("HTTP_TRANSFER_ENCODING"))
        if announced == "0" and not chunked:
            return
        WATCH.until(link, settings.DRYDOCK.body_seconds)
        length = int(announced) if announced.isdigit() and not chunked else None
        environ["wsgi.input"] = Body(environ["wsgi.input"], length, lambda: WATCH.forget(link))
