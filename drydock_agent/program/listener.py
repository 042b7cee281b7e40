"""A small HTTP server for a few trusted callers: each shows a secret, bodies are bounded, and no request takes long."""

from __future__ import annotations

import contextlib
import hmac
import http.server
import json
import os
import socket
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from drydock_agent import wire
from drydock_agent.program.addresses import Address
from drydock_agent.program.errors import AgentError

SECONDS = 20.0
"""The longest time in seconds from a connection to its end."""
_IDLE = 5.0
_MOST_BODY = 1 << 20
_DRAINED = 65_536
_AT_ONCE = 16

Route = Callable[[object], tuple[int, Mapping[str, Any]]]
"""Maps the JSON document of a request, or None, to a status and a JSON document. May raise Malformed."""


class Listener:
    """An HTTP server on an address. `secret` returns what callers must present; an empty secret accepts no one."""

    def __init__(
        self, address: Address, routes: Mapping[tuple[str, str], Route], *, secret: Callable[[], str],
        tls: ssl.SSLContext | None = None, seconds: float = SECONDS,
    ) -> None:  # fmt: skip
        """Bind the address. Raises AgentError."""
        self.address = address
        made = type("_Handler", (_Handler,), {"routes": dict(routes), "secret": staticmethod(secret)})
        try:
            if address.path:
                Path(address.path).unlink(missing_ok=True)
            self._server = _Server(address, made, tls, seconds)
        except OSError as error:
            raise AgentError(f"The agent cannot listen on {address}: {error.strerror or error}.") from None

    @property
    def port(self) -> int:
        """The port that was bound; 0 for a Unix socket."""
        return 0 if self.address.path else int(self._server.server_address[1])

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Serve requests in other threads while the block runs."""
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()
            if self.address.path:
                Path(self.address.path).unlink(missing_ok=True)


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 16

    def __init__(
        self, address: Address, handler: type[http.server.BaseHTTPRequestHandler], tls: ssl.SSLContext | None,
        seconds: float,
    ) -> None:  # fmt: skip
        self.address_family = address.family
        self._tls, self._seconds, self._unix = tls, seconds, bool(address.path)
        self._places = threading.BoundedSemaphore(_AT_ONCE)
        super().__init__(address.bound, handler)

    def server_bind(self) -> None:
        before = os.umask(0o177) if self._unix else None
        try:
            super().server_bind()
        finally:
            if before is not None:
                os.umask(before)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for the connection, or close it if too many are open."""
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        # Each step of reading has a timeout of its own, so only this ends a caller that sends one byte at a time.
        end = threading.Timer(self._seconds, _cut, (request,))
        end.daemon = True
        end.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            end.cancel()
            self._places.release()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Agree on TLS in the thread of the connection, so that a slow caller does not block the others."""
        request.settimeout(_IDLE)
        if self._tls is None:
            super().finish_request(request, client_address)
            return
        with contextlib.suppress(OSError), self._tls.wrap_socket(request.dup(), server_side=True) as secured:
            secured.settimeout(_IDLE)
            super().finish_request(secured, client_address)
            secured.unwrap()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Drop the connection without a message, because callers cause these errors."""


def _cut(request: socket.socket) -> None:
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


class _Handler(http.server.BaseHTTPRequestHandler):
    routes: Mapping[tuple[str, str], Route]
    secret: Callable[[], str]
    server_version, sys_version = "drydock-agent", ""

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        scheme, _, given = self.headers.get("Authorization", "").partition(" ")
        known = self.secret()
        # Before anything that a stranger sends is read.
        if not known or scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), known.encode()):
            self._refuse(HTTPStatus.UNAUTHORIZED, "Present the secret: Authorization: Bearer SECRET.")
            return
        path = urlsplit(self.path).path
        route = self.routes.get((self.command, path))
        if route is None:
            known_path = any(one == path for _, one in self.routes)
            status = HTTPStatus.METHOD_NOT_ALLOWED if known_path else HTTPStatus.NOT_FOUND
            self._refuse(status, f"There is no {self.command} {path[:60]!r} here.")
            return
        try:
            status_code, document = route(self._document())
        except wire.Malformed as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))
            return
        self._send(status_code, document)

    def _document(self) -> object:
        """Return the JSON document of the body, or None without one. Raises Malformed."""
        length = self.headers.get("Content-Length", "0")
        if self.headers.get("Transfer-Encoding") or not (length.isascii() and length.isdecimal()):
            raise wire.Malformed("The body needs a Content-Length")
        if len(length) > 9 or int(length) > _MOST_BODY:
            raise wire.Malformed(f"The body has more than {_MOST_BODY} bytes")
        content = self.rfile.read(int(length))
        if len(content) != int(length):
            raise wire.Malformed("The body is shorter than its Content-Length")
        return wire.parsed(content) if content else None

    def _refuse(self, status: HTTPStatus, detail: str) -> None:
        self._send(int(status), {"detail": "".join(one if one.isprintable() else " " for one in detail[:500])})
        # A caller that is still sending would otherwise see a broken connection instead of the answer.
        length = self.headers.get("Content-Length", "")
        if length.isascii() and length.isdecimal() and len(length) < 10:
            with contextlib.suppress(OSError):
                self.rfile.read(min(int(length), _DRAINED))

    def _send(self, status: int, document: Mapping[str, Any]) -> None:
        content = json.dumps(document, allow_nan=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if status == HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", 'Bearer realm="drydock agent"')
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Write no log of requests."""

    def address_string(self) -> str:
        """Return an empty string: Unix sockets have no address, and names are not looked up."""
        return ""
