"""An HTTPS server on this machine that answers as a test says, however wrong that is for an API server.

with double() as server:
    server.says("GET", "/api/v1/nodes", {"items": [], "metadata": {"resourceVersion": "1"}})
    cluster = connect(server.credential())
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import trustme

from blueprints.kube import Cluster, Credential, connect

TOKEN = "the-token-of-the-double"


@dataclass(frozen=True)
class Call:
    """A request that the double has seen."""

    method: str
    path: str
    query: dict[str, str]
    token: str
    media: str
    body: Any
    certificate: bool


Respond = Callable[["Handler", Call], None]


@dataclass
class Rule:
    method: str
    path: str
    respond: Respond
    times: int


@dataclass(eq=False)
class Double:
    """A running double."""

    server: ThreadingHTTPServer
    ca: str
    rules: list[Rule] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    tokens: set[str] = field(default_factory=lambda: {TOKEN})
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.server.server_address[1]}"

    def credential(self, **changes: Any) -> Credential:
        return Credential(**({"server": self.url, "token": TOKEN, "ca": self.ca} | changes))

    def cluster(self, **options: Any) -> Cluster:
        return connect(self.credential(), **({"deadline": 60.0} | options))

    def does(self, method: str, path: str, respond: Respond, times: int = 1_000_000) -> None:
        """Answer requests of a method to paths that match; earlier rules go first."""
        self.rules.append(Rule(method, path, respond, times))

    def says(
        self, method: str, path: str, body: Any, status: int = 200, times: int = 1_000_000, **headers: str
    ) -> None:
        """Answer with this body: bytes as they are, anything else as JSON."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()

        def respond(handler: Handler, call: Call) -> None:
            handler.answer(status, content, {name.replace("_", "-"): value for name, value in headers.items()})

        self.does(method, path, respond, times)

    def fails(self, method: str, path: str, code: int, reason: str = "", times: int = 1_000_000, **more: Any) -> None:
        """Answer with a Status."""
        headers = {name: more.pop(name) for name in ("Retry_After",) if name in more}
        self.says(method, path, status(code, reason, **more), code, times, **headers)

    def streams(self, path: str, lines: Iterable[Any], times: int = 1_000_000, *, cut: bool = False) -> None:
        """Answer watches with these lines; `cut` ends the connection without ending the answer."""
        sent = [line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines]

        def respond(handler: Handler, call: Call) -> None:
            handler.send_response(200)
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            for line in sent:
                handler.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
            if not cut:
                handler.wfile.write(b"0\r\n\r\n")
            handler.wfile.flush()
            handler.close_connection = cut
            if cut:
                handler.connection.shutdown(socket.SHUT_RDWR)

        self.does("GET", path, respond, times)

    def called(self, method: str, path: str = ".*") -> list[Call]:
        return [call for call in self.calls if call.method == method and re.fullmatch(path, call.path)]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    double: Double

    def handle_any(self) -> None:
        url = urlsplit(self.path)
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        call = Call(
            self.command, url.path, {key: values[-1] for key, values in parse_qs(url.query).items()},
            self.headers.get("Authorization", "").removeprefix("Bearer "), self.headers.get("Content-Type", ""),
            json.loads(content) if content else None, bool(self.connection.getpeercert()),
        )  # fmt: skip
        self.double.calls.append(call)
        if call.token not in self.double.tokens and not call.certificate:
            return self.answer(401, json.dumps(status(401, "Unauthorized")).encode())
        for rule in self.double.rules:
            if rule.times and rule.method == call.method and re.fullmatch(rule.path, call.path):
                rule.times -= 1
                return rule.respond(self, call)
        return self.answer(404, json.dumps(status(404, "NotFound")).encode())

    do_GET = do_POST = do_PATCH = do_DELETE = handle_any

    def answer(self, code: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in ({"Content-Type": "application/json"} | (headers or {})).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Tests look at `calls`."""

    def drip(self, content: bytes, pause: float = 0.05) -> None:
        """Send bytes one by one, until the client has enough."""
        with contextlib.suppress(OSError):
            for byte in content:
                self.wfile.write(bytes([byte]))
                if self.double.ended.wait(pause):
                    return


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    context: ssl.SSLContext

    def finish_request(self, request: Any, client_address: Any) -> None:
        with contextlib.suppress(OSError):
            request.settimeout(20)
            with self.context.wrap_socket(request, server_side=True) as secured:
                self.RequestHandlerClass(secured, client_address, self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that end connections are part of the tests."""


def status(code: int, reason: str = "", message: str = "", causes: Iterable[Any] = ()) -> dict[str, Any]:
    """Return a Status object."""
    made: dict[str, Any] = {"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason}
    return made | {"message": message or reason, "details": {"causes": list(causes)}}


@cache
def authority() -> trustme.CA:
    return trustme.CA(key_type=trustme.KeyType.ECDSA)


@cache
def _certificate() -> trustme.LeafCert:
    return authority().issue_cert("127.0.0.1", "localhost")


def ca() -> str:
    return authority().cert_pem.bytes().decode()


def kubeconfig(
    server: str, *, user: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return a kubeconfig with a client certificate of the double's authority."""
    leaf = authority().issue_cert("drydock@example.test")
    pem = b"".join(part.bytes() for part in leaf.cert_chain_pems)
    made = {
        "client-certificate-data": base64.b64encode(pem).decode(),
        "client-key-data": base64.b64encode(leaf.private_key_pem.bytes()).decode(),
    }
    there = {"server": server, "certificate-authority-data": base64.b64encode(ca().encode()).decode()}
    return {
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "clusters": [{"name": "here", "cluster": there | (cluster or {})}],
        "users": [{"name": "me", "user": made if user is None else user}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me", "namespace": "dpf"}}],
    }  # fmt: skip


@contextlib.contextmanager
def double() -> Iterator[Double]:
    """Run a double."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _certificate().configure_cert(context)
    authority().configure_trust(context)
    context.verify_mode = ssl.CERT_OPTIONAL
    handler = type("Here", (Handler,), {})
    server = _Server(("127.0.0.1", 0), handler)
    server.context = context
    handler.double = running = Double(server, ca())
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield running
    finally:
        running.ended.set()
        server.shutdown()
        server.server_close()
        thread.join(10)


def wait(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Wait until a condition holds; return whether it does."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True
