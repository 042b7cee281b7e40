"""HTTP requests to the server: TLS is verified, answers are bounded, and no redirect is followed."""

from __future__ import annotations

import http.client
import ipaddress
import json
import ssl
import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit

from drydock_agent.messages import BODY_BYTES, HardwareReport, Hello, Message, OrderResult, Orders, Receipt, Welcome
from drydock_agent.package import MOST_BYTES
from drydock_agent.program.errors import AgentError, NotAccepted, Refused, Unavailable
from drydock_agent.wire import Malformed

M = TypeVar("M", bound=Message)

SECONDS = 30.0
"""Timeout in seconds for each request, in addition to the time for which it asks the server to wait."""
PROGRAM = "/api/v1/agents/me/program"
"""The path from which agents fetch a new version of their program."""
_PROGRAM_SECONDS = 120.0
_PACKED = 4096
"""Bodies of at least this many bytes are compressed."""
_LATER = (408, 425, 429)


class Connection:
    """The addresses of a server that agents call. Each request has a connection of its own."""

    def __init__(self, server: str, *, ca: str = "", seconds: float = SECONDS) -> None:
        """Check the server's address. Raises AgentError."""
        parts = address_of(server)
        self.server = server.rstrip("/")
        self._host, self._port, self._path = str(parts.hostname), parts.port, parts.path.rstrip("/")
        self._tls = _context(ca) if parts.scheme == "https" else None
        self._seconds = seconds

    def join(self, code: str, hello: Hello) -> Welcome:
        """Join with a code. Raises AgentError."""
        return _answer(Welcome, self._send("POST", "hello", f"Join {code}", hello))

    def renew(self, token: str, hello: Hello) -> Welcome:
        """Say hello again, for a new token. Raises AgentError."""
        return _answer(Welcome, self._send("POST", "hello", f"Bearer {token}", hello))

    def report(self, token: str, report: HardwareReport) -> Receipt:
        """Report the hardware of the host. Raises AgentError."""
        return _answer(Receipt, self._send("PUT", "me/hardware", f"Bearer {token}", report))

    def orders(self, token: str, *, wait: int) -> Orders:
        """Return the orders of the agent. Without any, the server waits for up to `wait` seconds. Raises AgentError."""
        return _answer(Orders, self._send("GET", f"me/orders?wait={wait}", f"Bearer {token}", waits=wait))

    def answer(self, token: str, order: str, result: OrderResult) -> None:
        """Report what became of an order. Raises AgentError."""
        self._send("POST", f"me/orders/{order}", f"Bearer {token}", result)

    def program(self, token: str) -> bytes:
        """Return the file of the server's version of the agent. Raises AgentError."""
        return self._send("GET", "me/program", f"Bearer {token}", read=_read_program)

    def _send(
        self, method: str, path: str, authorization: str, message: Message | None = None, *, waits: float = 0.0,
        read: Callable[[http.client.HTTPResponse], bytes] | None = None,
    ) -> bytes:  # fmt: skip
        headers = {"Authorization": authorization, "Accept": "*/*" if read else "application/json"}
        headers["User-Agent"] = "drydock-agent"
        body = None
        if message is not None:
            body = message.to_body()
            headers["Content-Type"] = "application/json"
            if len(body) >= _PACKED:
                body, headers["Content-Encoding"] = message.to_body(compress=True), "gzip"
        opened = self._open(self._seconds + waits)
        try:
            opened.request(method, f"{self._path}/api/v1/agents/{path}", body, headers)
            with opened.getresponse() as response:
                content = read(response) if read and response.status == 200 else response.read(BODY_BYTES + 1)
        except ssl.SSLCertVerificationError as error:
            raise Unavailable(
                f"The certificate of {self.server} is not trusted: {error.verify_message}. Give the certificates of its"
                " authority: --ca FILE."
            ) from None
        except (OSError, http.client.HTTPException) as error:
            reason = "it did not answer in time" if isinstance(error, TimeoutError) else str(error) or repr(error)
            raise Unavailable(f"{self.server} cannot be reached: {reason}.") from None
        finally:
            opened.close()
        if read is None or response.status != 200:
            self._check(response, content)
        return content

    def _open(self, seconds: float) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=seconds)
        return http.client.HTTPSConnection(self._host, self._port, timeout=seconds, context=self._tls)

    def _check(self, response: http.client.HTTPResponse, content: bytes) -> None:
        """Raise the AgentError for a response that is not a success."""
        status = response.status
        if 200 <= status < 300 and len(content) <= BODY_BYTES:
            return
        said = _problem(content) or f"status {status}"
        if 300 <= status < 400:
            where = _line(response.getheader("Location", ""))
            raise Refused(f"{self.server} redirects to {where}. Join at that address if you trust it.", status=status)
        if status == 401:
            raise NotAccepted(said, status=status)
        if status in _LATER or status >= 500:
            raise Unavailable(
                f"{self.server} cannot answer now: {said}", retry_after=_seconds(response.getheader("Retry-After", ""))
            )
        if status == 404 and not _problem(content):
            said = "there is no Drydock server at this address that agents can join."
        raise Refused(f"{self.server} refused: {said}", status=status)


def address_of(server: str) -> SplitResult:
    """Return the parts of a server's address, which has a host. Raises AgentError if no token may be sent to it."""
    try:
        parts = urlsplit(server)
    except ValueError:
        raise AgentError(f"{server} is not the address of a server: its host is not valid.") from None
    try:
        parts.port  # noqa: B018  (raises)
    except ValueError:
        raise AgentError(f"{server}: the port is not a number from 1 to 65535.") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise AgentError(f"{server} is not the address of a server, such as https://drydock.example.org.")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise AgentError(f"The address of the server must have no user, query or fragment: {parts.hostname}.")
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        raise AgentError(f"{server} is not encrypted. Use https, because the agent's token is sent to it.")
    return parts


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _read_program(response: http.client.HTTPResponse) -> bytes:
    """Return a file that is larger than other answers, within `_PROGRAM_SECONDS`. Raises Unavailable."""
    length, until = response.length, time.monotonic() + _PROGRAM_SECONDS
    if length is None or length > MOST_BYTES:
        raise Unavailable("The server does not say how long the program is, or it is too long.")
    pieces = []
    while piece := response.read(1 << 16):
        pieces.append(piece)
        if time.monotonic() > until:
            raise Unavailable(f"The program did not arrive within {_PROGRAM_SECONDS:g} seconds.")
    content = b"".join(pieces)
    if len(content) != length:
        raise Unavailable(f"The download was cut: {len(content)} of {length} bytes arrived.")
    return content


def _context(ca: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca or None)
    except (OSError, ssl.SSLError) as error:
        raise AgentError(f"{ca} cannot be read as certificates: {error}.") from None


def _answer(kind: type[M], content: bytes) -> M:
    try:
        return kind.from_body(content)
    except Malformed as error:
        raise Unavailable(f"The server's answer is not understood: {error}.") from None


def _problem(content: bytes) -> str:
    """Return the error in a problem document as one line, or an empty string."""
    try:
        document: Any = json.loads(content)
        words = [str(document[name]) for name in ("detail", "hint") if document.get(name)]
        field = str(document.get("field") or "")
    except (ValueError, TypeError, AttributeError, RecursionError):
        return ""
    return _line((f"{field}: " if field and words else "") + " ".join(words))


def _line(text: str) -> str:
    """Return text of the server so that it can be printed: one line without control characters."""
    return "".join(one if one.isprintable() else " " for one in text[:1000])


def _seconds(text: str) -> float:
    return min(float(text), 600.0) if text.isascii() and text.isdecimal() and len(text) < 6 else 0.0
