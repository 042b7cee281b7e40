"""HTTP to a Redfish service: one server, one deadline, no redirect elsewhere, no secret in what it says.

Imported by `redfish_client` only, when the driver is used: `requests` comes with the extra `redfish`.
"""

from __future__ import annotations

import contextlib
import email.utils
import json
import re
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit, urlunsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from blueprints.bmc import tls
from blueprints.bmc.errors import BmcAnswerInvalid, BmcBusy, BmcError, BmcRefused, BmcUnreachable
from interfaces.deadline import Deadline

MOST_BYTES = 16 << 20
"""Bytes of an answer, after which it is given up. The longest captured one has 1.1 MB."""
MOST_OF_SESSION = 64 << 20
"""Bytes of all answers of a session, after which it is ended."""
MOST_SAID = 300
"""Characters of what a BMC said that appear in a message."""
_HOPS = 3
_PORTS = {"https": 443, "http": 80}
_SUCCESS = re.compile(r"(Success|Created|NoOperation|ResetRequired|ExtendedInfo|Accepted\w*|Queued)\Z")


class Line:
    """The way to one BMC, with one connection at a time, which is ended at the deadline if it is still open then."""

    def __init__(self, address: str, port: int, trust: tls.Trust | None, *, deadline: float) -> None:
        self.where = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        self.url = f"{'https' if trust else 'http'}://{self.where}"
        self.trust = trust
        self.deadline = Deadline(deadline)
        self.secrets: set[str] = set()
        """Texts that no message may show."""
        self.received = 0
        """Bytes of all answers up to now."""
        self.address, self.port = address, port
        self._origin = ("https" if trust else "http", address.lower(), port)
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()
        self._watch = self._started(self.deadline.seconds)

    def finish(self, seconds: float) -> None:
        """Allow this many seconds from now, for ending a session, however many were left."""
        self._watch.cancel()
        self.deadline = Deadline(seconds, spare=seconds)
        self._watch = self._started(seconds)

    def close(self) -> None:
        """Forget the connection."""
        self._watch.cancel()
        self._note(None)

    def opened(self, connection: socket.socket) -> socket.socket:
        """Note a new connection, so that it can be ended at the deadline, whatever waits for it then."""
        self._note(connection.dup())
        return connection

    def _note(self, connection: socket.socket | None) -> None:
        with self._lock:
            if self._socket is not None:
                self._socket.close()
            self._socket = connection

    def _started(self, seconds: float) -> threading.Timer:
        watch = threading.Timer(seconds, self._end)
        watch.daemon = True
        watch.start()
        return watch

    def _end(self) -> None:
        with self._lock, contextlib.suppress(OSError):
            if self._socket is not None:
                self._socket.shutdown(socket.SHUT_RDWR)

    def own(self, location: str, path: str) -> str:
        """Return the address of a link that was found at a path. Raises BmcAnswerInvalid if it leads elsewhere."""
        try:
            url = urlsplit(urljoin(self.url + path, location))
            same = (url.scheme, url.hostname, url.port or _PORTS.get(url.scheme)) == self._origin
        except ValueError:
            raise BmcAnswerInvalid(f"The BMC at {self.where} refers to {self.said(location)}, no address.") from None
        if not same:
            raise BmcAnswerInvalid(
                f"The BMC at {self.where} refers to {self.said(location)} for {path}. That is another server, which"
                " must not get its credential, so it was not asked."
            )
        return self.url + urlunsplit(("", "", url.path or "/", url.query, ""))

    def said(self, text: str) -> str:
        """Return what the BMC said, without secrets, on one line of at most 300 characters."""
        plain = " ".join(self.redacted(text).split())
        return plain if len(plain) <= MOST_SAID else plain[: MOST_SAID - 1] + "…"

    def redacted(self, text: str) -> str:
        """Return a text without the secrets of this session."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    def late(self) -> BmcUnreachable:
        """Return the error for a deadline that has passed."""
        return BmcUnreachable(f"The BMC at {self.where} did not answer within {self.deadline.seconds:.3g} s.")

    def failure(self, error: Exception) -> BmcError:
        """Return the error for a connection that failed."""
        if self.deadline.expired or isinstance(error, requests.Timeout | urllib3.exceptions.TimeoutError):
            return self.late()
        unverified = tls.unverified(error)
        refused = (str(one) for one in tls.causes(error) if isinstance(one, urllib3.exceptions.SSLError))
        if self.trust and (unverified or any("ingerprint" in text for text in refused)):
            return self._untrusted(self.trust, unverified)
        return BmcUnreachable(f"The BMC at {self.where} cannot be reached: {tls.reason_of(error)}.")

    def _untrusted(self, trust: tls.Trust, reason: str) -> BmcError:
        try:
            certificate = tls.presented(self.address, self.port, deadline=max(self.deadline.remaining, 1.0))
        except BmcUnreachable as unreachable:
            return unreachable
        return trust.refusal(certificate, reason)


class _Adapter(HTTPAdapter):
    """Connections that trust as the line says, and that it can end."""

    def __init__(self, line: Line) -> None:
        self._line = line
        super().__init__(pool_connections=1, pool_maxsize=1, max_retries=0)

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **options: Any) -> None:
        trust = self._line.trust
        if trust:
            options |= {"ssl_context": trust.context(), "assert_fingerprint": trust.fingerprint or None}
        self.poolmanager = urllib3.PoolManager(connections, maxsize=maxsize, block=block, **options)
        self.poolmanager.pool_classes_by_scheme = _pools(self._line)

    def build_connection_pool_key_attributes(
        self, request: requests.PreparedRequest, verify: Any, cert: Any = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Leave TLS to the context of the pool. Authorities of requests are not added to it."""
        host, _ = super().build_connection_pool_key_attributes(request, verify, cert)
        return host, {}

    def cert_verify(self, conn: Any, url: Any, verify: Any, cert: Any) -> None:
        """Do nothing, for the same reason."""


def _pools(line: Line) -> dict[str, type[HTTPConnectionPool]]:
    class Plain(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            return line.opened(super()._new_conn())

    class Secured(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return line.opened(super()._new_conn())

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecuredPool(HTTPSConnectionPool):
        ConnectionCls = Secured

    return {"http": PlainPool, "https": SecuredPool}


class Http(requests.Session):
    """A session of `requests` in which every request keeps the rules of its line. Raises BmcError."""

    def __init__(self, line: Line) -> None:
        super().__init__()
        self.trust_env = False  # no proxy, no .netrc
        self._line = line
        for scheme in ("https://", "http://"):
            self.mount(scheme, _Adapter(line))

    def request(self, method: str, url: str, **options: Any) -> requests.Response:  # type: ignore[override]
        """Send a request and read its answer. Redirects are followed on the same server only, and only for GET."""
        options |= {"allow_redirects": False, "stream": True}
        for _ in range(_HOPS):
            response = self._tried(method, self._line.own(url, "/"), options)
            if response.is_redirect and method == "GET":
                url = self._line.own(response.headers["Location"], urlsplit(url).path)
                continue
            self._check(method, urlsplit(url).path, response)
            return response
        raise BmcAnswerInvalid(f"The BMC at {self._line.where} redirects {urlsplit(url).path} without end.")

    def _tried(self, method: str, url: str, options: Mapping[str, Any]) -> requests.Response:
        """Send a request. A GET whose connection ends is repeated once, as BMCs end idle connections at any time."""
        for attempt in (1, 2):
            if self._line.deadline.expired:
                raise self._line.late()
            try:
                response = super().request(method, url, **{**options, "timeout": self._line.deadline.remaining})
                response._content = self._body(response)
                return response
            except (requests.exceptions.ConnectionError, urllib3.exceptions.ProtocolError) as error:
                ended = not isinstance(error, requests.exceptions.SSLError | requests.exceptions.ConnectTimeout)
                if method != "GET" or attempt == 2 or not ended or self._line.deadline.expired:
                    raise self._line.failure(error) from error
            except (requests.exceptions.InvalidURL, UnicodeError) as error:
                raise BmcAnswerInvalid(
                    f"The BMC at {self._line.where} refers to {self._line.said(url)}, no address."
                ) from error
            except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
                raise self._line.failure(error) from error
        raise AssertionError

    def _body(self, response: requests.Response) -> bytes:
        parts, size = [], 0
        with contextlib.closing(response.raw):
            while part := response.raw.read1(65536, decode_content=True):
                parts.append(part)
                size += len(part)
                self._line.received += len(part)
                if size > MOST_BYTES or self._line.received > MOST_OF_SESSION:
                    most = MOST_BYTES if size > MOST_BYTES else MOST_OF_SESSION
                    whole = "" if size > MOST_BYTES else " in one session"
                    raise BmcAnswerInvalid(
                        f"The BMC at {self._line.where} answered with more than {most >> 20} MiB{whole}."
                    )
                if self._line.deadline.expired:
                    break
            response.raw.release_conn()
        if self._line.deadline.expired:  # the end of the connection that ended then looks like that of the answer
            raise self._line.late()
        return b"".join(parts)

    def _check(self, method: str, path: str, response: requests.Response) -> None:
        """Raise for answers of which sushy makes nothing, and make the body of others safe for it."""
        line, status = self._line, response.status_code
        body = _parsed(response.content)
        if status >= 400:
            text = message_of(body) or ("" if body else response.text[:2000])
            if status in (429, 503):
                raise _busy(line, response, text)
            _replace(response, line, body, text)
            return
        if response.is_redirect or 300 <= status < 400:
            raise BmcAnswerInvalid(
                f"The BMC at {line.where} redirects {method} {path}, and only reads are redirected. Nothing was done."
            )
        if method == "GET" and status == 200 and not isinstance(body, dict):
            raise BmcAnswerInvalid(
                f"The BMC at {line.where} answered {path} with something that is not JSON, or only the beginning of"
                f" it: {line.said(response.text[:1000]) or 'nothing'}"
            )
        if isinstance(body, dict) and _failed(method, body):
            raise BmcRefused(f"The BMC at {line.where} refused {method} {path}: {line.said(message_of(body))}")


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content) if content else None
    except (ValueError, RecursionError):
        return None


def message_of(body: Any) -> str:
    """Return the messages of an error body, the specific ones if there are any. Accepts anything that BMCs send."""
    error = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(error, dict):
        return error if isinstance(error, str) else ""
    infos = error.get("@Message.ExtendedInfo")
    infos = [infos] if isinstance(infos, dict) else infos if isinstance(infos, list) else []
    texts = [str(one["Message"]) for one in infos if isinstance(one, dict) and one.get("Message")]
    return " ".join(dict.fromkeys(texts)) or str(error.get("message") or "")


def _failed(method: str, body: Mapping[str, Any]) -> bool:
    """Return whether an answer with a status of success describes an error, as some BMCs answer."""
    error = body.get("error")
    if not isinstance(error, dict) or "@odata.id" in body:
        return False
    infos = [one for one in error.get("@Message.ExtendedInfo") or [] if isinstance(one, dict)]
    if any("Critical" in (one.get("Severity"), one.get("MessageSeverity")) for one in infos):
        return True
    names = [str(one["MessageId"]) for one in infos if one.get("MessageId")] or [str(error.get("code", ""))]
    return method == "GET" or not any(_SUCCESS.search(name) for name in names)


def _busy(line: Line, response: requests.Response, text: str) -> BmcBusy:
    after = _seconds(response.headers.get("Retry-After", ""))
    when = f" It asks to wait {after:.3g} s." if after is not None else ""
    said = line.said(text) or "it gave no reason."
    return BmcBusy(f"The BMC at {line.where} is busy: {said}{when}", retry_after=after)


def _seconds(text: str) -> float | None:
    """Return the seconds of a header Retry-After, which has a number or a date."""
    if re.fullmatch(r"\s*[0-9]{1,9}\s*", text):
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (TypeError, ValueError, OverflowError):
        return None


def _replace(response: requests.Response, line: Line, body: Any, text: str) -> None:
    """Give an error the form that sushy reads, without secrets, as it logs what it reads."""
    error = body.get("error") if isinstance(body, dict) else None
    infos = error.get("@Message.ExtendedInfo") if isinstance(error, dict) else None
    code = error.get("code") if isinstance(error, dict) else None
    safe = {
        "code": code if isinstance(code, str) else "Base.1.0.GeneralError",
        "message": text,
        "@Message.ExtendedInfo": [one for one in infos if isinstance(one, dict)] if isinstance(infos, list) else [],
    }
    response._content = line.redacted(json.dumps({"error": safe})).encode()
    response.encoding = "utf-8"
