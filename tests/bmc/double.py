"""A Redfish BMC on this machine: sushy-tools' application over machines in memory, with TLS, sessions and faults.

    with redfish_double(on_power=started) as double:
        session = Redfish().open(double.access(), double.credential(), deadline=30)

`double.machine` is the first machine. What a test wants to go wrong, it adds to `double.faults`.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import importlib.util
import io
import json
import logging
import re
import socket
import ssl
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import trustme
from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

from blueprints.bmc.values import PowerState
from tests.bmc.machine import Machine, Media, Systems
from tests.bmc.resources import Resources

USERNAME, PASSWORD = "drydock", "a-secret-of-the-double"

Kind = Literal[
    "lost", "dropped", "silence", "unavailable", "unauthorized", "error", "error_in_200", "truncated", "cut",
    "not_json", "redirect", "endless",
]  # fmt: skip


@dataclass
class Fault:
    """What goes wrong with the next `times` requests of a method to a path; both are regular expressions.

    lost: carried out, but the connection ends without an answer. dropped: not carried out either. silence: no answer
    until the double ends. unavailable: 503 with Retry-After `value`. unauthorized: 401. error: 400 with the text
    `value`. error_in_200: an error body with status 200. truncated: half of the JSON. cut: the connection ends in the
    middle of the body. not_json: a page of HTML. redirect: 302 to the address `value`. endless: each page of a
    collection names a next one.
    """

    kind: Kind
    path: str = ".*"
    method: str = ".*"
    times: int = 1_000_000
    value: str = ""


@dataclass(frozen=True)
class Call:
    """A request that the double has seen. `credential` is what it carried: "", "basic" or "token"."""

    method: str
    path: str
    credential: str
    body: Any = None


@dataclass(kw_only=True, eq=False)
class RedfishDouble:
    """A running double."""

    machines: list[Machine]
    resources: Resources
    server: Server
    ca: str
    fingerprint: str
    faults: list[Fault] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    address = "127.0.0.1"

    @property
    def port(self) -> int:
        return int(self.server.server_address[1])

    @property
    def url(self) -> str:
        return f"{'https' if self.fingerprint else 'http'}://{self.address}:{self.port}"

    @property
    def machine(self) -> Machine:
        """The first machine."""
        return self.machines[0]

    @property
    def sessions(self) -> int:
        """The number of open sessions."""
        return len(self.resources.sessions)

    def access(self, **changes: Any) -> dict[str, Any]:
        """Return the fields of the driver's Access for this double, with its certificate pinned."""
        tls = {"fingerprint": self.fingerprint} if self.fingerprint else {"tls": "off"}
        return {"address": self.address, "port": self.port, **tls, **changes}

    def credential(self) -> dict[str, str]:
        """Return the fields of the driver's Credential for this double."""
        return {"username": self.resources.username, "password": self.resources.password}

    def fault(self, kind: Kind, path: str = ".*", method: str = ".*", times: int = 1_000_000, value: str = "") -> Fault:
        """Add a fault, and return it. It ends after `times` requests, or when it is removed from `faults`."""
        self.faults.append(made := Fault(kind, path, method, times, value))
        return made

    def called(self, method: str, path: str = ".*") -> list[Call]:
        """Return the requests of a method to paths that match."""
        return [call for call in self.calls if call.method == method and re.fullmatch(path, call.path)]

    def stop(self) -> None:
        """End the server, its connections, its threads, and what is under way at machines."""
        self.server.stop()
        for machine in self.machines:
            machine.stop()

    # The application with faults around it

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        credential = "token" if "HTTP_X_AUTH_TOKEN" in environ else "basic" if "HTTP_AUTHORIZATION" in environ else ""
        self.calls.append(Call(method, path, credential, json.loads(body) if body else None))
        fault = self._next(method, path)
        return _FAULTS[fault.kind](self, fault, environ, start) if fault else self.application(environ, start)

    application: Any = None

    def _next(self, method: str, path: str) -> Fault | None:
        for fault in list(self.faults):
            if re.fullmatch(fault.method, method) and re.fullmatch(fault.path, path):
                fault.times -= 1
                if fault.times <= 0:
                    self.faults.remove(fault)
                return fault
        return None


class _Gone(ConnectionError):
    """The connection was ended on purpose."""


def _collected(double: RedfishDouble, environ: dict[str, Any]) -> tuple[str, list[tuple[str, str]], bytes]:
    """Carry a request out, and return status, headers and body."""
    told: list[Any] = []
    parts = double.application(environ, lambda status, headers, _=None: told.extend((status, headers)))
    try:
        return told[0], told[1], b"".join(parts)
    finally:
        getattr(parts, "close", lambda: None)()


def _answer(start: Callable[..., Any], status: str, body: bytes, *headers: tuple[str, str]) -> list[bytes]:
    named = {name.lower() for name, _ in headers}
    plain = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    start(status, [*headers, *(one for one in plain if one[0].lower() not in named)])
    return [body]


def _said(text: str) -> bytes:
    return json.dumps({"error": {"code": "Base.1.8.GeneralError", "message": text}}).encode()


def _lost(double: RedfishDouble, fault: Fault, environ: dict[str, Any], start: Any) -> Any:
    _collected(double, environ)
    return _dropped(double, fault, environ, start)


def _dropped(double: RedfishDouble, fault: Fault, environ: dict[str, Any], start: Any) -> Any:
    with contextlib.suppress(OSError):
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    raise _Gone


def _silence(double: RedfishDouble, fault: Fault, environ: dict[str, Any], start: Any) -> Any:
    double.server.stopping.wait(300)
    raise _Gone


def _unavailable(double: RedfishDouble, fault: Fault, environ: dict[str, Any], start: Any) -> Any:
    after = [("Retry-After", fault.value)] if fault.value else []
    return _answer(start, "503 Service Unavailable", _said("The service is temporarily unavailable."), *after)


def _unauthorized(double: RedfishDouble, fault: Fault, environ: dict[str, Any], start: Any) -> Any:
    return _answer(start, "401 Unauthorized", _said("The credentials are invalid."))


def _error(double: RedfishDouble, fault: Fault, environ: dict[str, Any], start: Any) -> Any:
    return _answer(start, "400 Bad Request", _said(fault.value))


def _error_in_200(double: RedfishDouble, fault: Fault, environ: dict[str, Any], start: Any) -> Any:
    return _answer(start, "200 OK", _said(fault.value or "An internal error occurred."))


def _truncated(double: RedfishDouble, fault: Fault, environ: dict[str, Any], start: Any) -> Any:
    status, _, body = _collected(double, environ)
    return _answer(start, status, body[: len(body) // 2])


def _cut(double: RedfishDouble, fault: Fault, environ: dict[str, Any], start: Any) -> Any:
    status, _, body = _collected(double, environ)
    _answer(start, status, body, ("Connection", "close"))
    return iter([body[: len(body) // 2]])


def _not_json(double: RedfishDouble, fault: Fault, environ: dict[str, Any], start: Any) -> Any:
    return _answer(start, "200 OK", b"<html><body>Log in</body></html>", ("Content-Type", "text/html"))


def _redirect(double: RedfishDouble, fault: Fault, environ: dict[str, Any], start: Any) -> Any:
    return _answer(start, "302 Found", b"", ("Location", fault.value))


def _endless(double: RedfishDouble, fault: Fault, environ: dict[str, Any], start: Any) -> Any:
    status, _, body = _collected(double, environ)
    page = json.loads(body)
    page["Members@odata.nextLink"] = f"{environ['PATH_INFO']}?$skip={len(double.calls)}"
    return _answer(start, status, json.dumps(page).encode())


_FAULTS: dict[str, Callable[..., Any]] = {
    "lost": _lost, "dropped": _dropped, "silence": _silence, "unavailable": _unavailable, "error": _error,
    "unauthorized": _unauthorized, "error_in_200": _error_in_200, "truncated": _truncated, "cut": _cut,
    "not_json": _not_json, "redirect": _redirect, "endless": _endless,
}  # fmt: skip


class _Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:
        pass


class Server(ThreadedWSGIServer):
    """Werkzeug's server. The TLS handshake takes place in the thread of its connection, so that no client blocks it."""

    daemon_threads = False

    def __init__(self, application: Any, context: ssl.SSLContext | None) -> None:
        super().__init__("127.0.0.1", 0, application, _Quiet)
        self.ssl_context = context
        self.stopping = threading.Event()
        self._open: set[socket.socket] = set()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), name="redfish-double")

    def start(self) -> None:
        self._thread.start()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            request.settimeout(60)
            if self.ssl_context:
                request = self.ssl_context.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
            self._open.add(request)
            if self.ssl_context:
                request.do_handshake()
            super().process_request_thread(request, client_address)
        except OSError:
            request.close()
        finally:
            self._open.discard(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            logging.getLogger(__name__).exception("the double failed")

    def stop(self) -> None:
        self.stopping.set()
        self.shutdown()
        self._thread.join()
        for one in list(self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self.server_close()


@cache
def _authority() -> trustme.CA:
    return trustme.CA()


def certificate(name: str = "127.0.0.1", *, ends: dt.datetime | None = None) -> tuple[ssl.SSLContext, str, str]:
    """Return the context of a server with a new certificate, its SHA-256 fingerprint, and the authority as PEM text."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    issued = _authority().issue_cert(name, not_after=ends)
    issued.configure_cert(context)
    der = ssl.PEM_cert_to_DER_cert(issued.cert_chain_pems[0].bytes().decode())
    return context, hashlib.sha256(der).hexdigest(), _authority().cert_pem.bytes().decode()


class _NoLeds:
    def get_indicator_state(self, identity: str) -> None:
        return None


_FREE: list[Any] = []
"""Applications that no double uses now. Making one takes as long as a short test."""


@contextlib.contextmanager
def _application(systems: Systems, resources: Resources) -> Iterator[Any]:
    """Lend an application of sushy-tools, of which a test may need two."""
    application = _FREE.pop() if _FREE else _made()
    application.config["DOUBLE"] = {
        "systems": systems, "vmedia": Media(systems), "indicators": _NoLeds(), "resources": resources,
    }  # fmt: skip
    application._cache = {}  # its drivers of chassis and managers, which know the machines
    try:
        yield application
    finally:
        _FREE.append(application)


def _made() -> Any:
    """Load the module of the application once more, as each has one, and replace its drivers."""
    spec = importlib.util.find_spec("sushy_tools.emulator.main")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    replaced = sys.modules.get(spec.name)
    sys.modules[spec.name] = module
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # webob imports cgi, which Python 3.13 lacks
            spec.loader.exec_module(module)
    finally:
        sys.modules.pop(spec.name)
        if replaced is not None:
            sys.modules[spec.name] = replaced

    def driver(name: str) -> property:
        return property(lambda application: application.config["DOUBLE"][name])

    ours = {name: driver(name) for name in ("systems", "vmedia", "indicators", "resources")}
    application = module.app
    application.__class__ = type("Application", (module.Application,), ours)
    application.logger.setLevel(logging.CRITICAL)
    application.before_request(lambda: application.resources.before())
    application.after_request(lambda response: application.resources.after(response))
    return application


@contextlib.contextmanager
def redfish_double(
    *machines: Machine,
    on_power: Callable[[PowerState], None] | None = None,
    power_delay: float = 0.0,
    tls: bool = True,
    auth: Iterable[str] = ("session", "basic"),
    username: str = USERNAME,
    password: str = PASSWORD,
    certified: str = "127.0.0.1",
    certified_until: dt.datetime | None = None,
) -> Iterator[RedfishDouble]:
    """Run a BMC of these machines, or of one that is off. `on_power` and `power_delay` are for that one.

    `certified` and `certified_until` are the name and the end of its certificate.
    """
    shown = list(machines) or [Machine(on_power=on_power, power_delay=power_delay)]
    systems = Systems(shown)
    resources = Resources(systems, username=username, password=password, auth=frozenset(auth))
    context, fingerprint, ca = certificate(certified, ends=certified_until) if tls else (None, "", "")
    with _application(systems, resources) as application:
        server = Server(application, context)
        double = RedfishDouble(machines=shown, resources=resources, server=server, ca=ca, fingerprint=fingerprint)
        double.application = application
        server.app = double
        server.start()
        try:
            yield double
        finally:
            double.stop()
