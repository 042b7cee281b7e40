"""Requests to one server, with pooled connections, verified TLS and timeouts. Errors are raised as DrydockError."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

import urllib3
from urllib3.exceptions import HTTPError, MaxRetryError, SSLError

from drydock_client.errors import NotAllowed
from drydock_client.http import addresses
from drydock_client.http.failures import BadAnswer, ServerUnreachable, failure

CONNECT, READ, LONGEST = 10.0, 60.0, 86_400.0
_PATIENCE = 30
"""Maximum number of times that a request to a busy server is retried, each time after the delay that the server
names."""
_LARGEST_JSON = 256 << 20
_AGENT = "drydock-client"

Body = bytes | Iterator[bytes]


class Connection:
    """A server, and the token to send to it. Safe to use from several threads."""

    def __init__(self, url: str, token: str, *, ca: str | None = None) -> None:
        self.url = addresses.checked(url)
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise NotAllowed(
                "The token is empty or contains invalid characters.",
                hint="`drydock tokens create NAME` on the server creates one; `drydock login` stores it.",
            )
        self._headers = {"Authorization": f"Bearer {token}", "User-Agent": _AGENT}
        proxy = addresses.proxy_for(self.url)
        pool: dict[str, Any] = {"maxsize": 4, "cert_reqs": "CERT_REQUIRED", "ca_certs": addresses.trusted(ca)}
        self._pool = urllib3.ProxyManager(proxy, **pool) if proxy else urllib3.PoolManager(**pool)

    def get(self, path: str, query: Mapping[str, Any] | None = None, *, wait: float = 0.0) -> Any:
        """Return the JSON that the server sends for a path.

        Raises ServerUnreachable, BadAnswer, or the error that the server reports.
        """
        return self.json(self.ask("GET", path, query=query, read=READ + wait))

    def send(
        self, method: str, path: str, body: Any = None, *, query: Mapping[str, Any] | None = None, key: str = ""
    ) -> Any:
        """Send a request that changes something. Return the JSON of the answer, or None if the answer has no content.

        With an idempotency `key`, the request is sent again if its answer was lost.
        """
        content = b"" if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **({"Idempotency-Key": key} if key else {})}
        answer = self.ask(method, path, query=query, body=content, headers=headers, again=bool(key))
        return self.json(answer)

    def ask(
        self, method: str, path: str, *, query: Mapping[str, Any] | None = None, body: Body = b"",
        headers: Mapping[str, str] | None = None, read: float = READ, again: bool | None = None,
    ) -> urllib3.BaseHTTPResponse:  # fmt: skip
        """Send a request and return the answer, whose content the caller reads.

        Raises ServerUnreachable, or the error that the server reports.
        """
        url = f"{self.url}/api/v1/{quote(path)}" + _query(query)
        streamed = not isinstance(body, bytes)
        safe = method == "GET" if again is None else again
        retries = urllib3.Retry(
            total=_PATIENCE, connect=0 if streamed else 3, read=3 if safe else 0, other=0,
            status=0 if streamed else _PATIENCE, status_forcelist=(429, 503), allowed_methods=None,
            backoff_factor=0.2, backoff_max=2.0, backoff_jitter=0.2, redirect=False,
            raise_on_status=False,
        )  # fmt: skip
        try:
            answer = self._pool.request(
                method, url, body=body or None, headers={**self._headers, **(headers or {})}, retries=retries,
                timeout=urllib3.Timeout(connect=CONNECT, read=read), preload_content=False, redirect=False,
            )  # fmt: skip
            if answer.status < 300 or answer.status == 304:
                return answer
            content = answer.read(1 << 20)
        except HTTPError as error:
            raise unreachable(self.url, error) from None
        _give_back(answer)
        if 300 <= answer.status < 400:
            leads = answer.headers.get("Location", "elsewhere")
            raise BadAnswer(
                f"{self.url} redirects to {leads}.", hint="Use that address. A token is not sent along with a redirect."
            )
        raise failure(answer.status, content, self.url)

    def json(self, answer: urllib3.BaseHTTPResponse) -> Any:
        """Return the JSON of an answer, or None if the answer has no content."""
        content = self.content(answer, _LARGEST_JSON)
        if answer.status in (204, 304):
            return None
        try:
            return json.loads(content)
        except ValueError:
            raise BadAnswer(f"{self.url} does not answer like a Drydock server.", hint="Check the address.") from None

    def content(self, answer: urllib3.BaseHTTPResponse, limit: int) -> bytes:
        """Return the content of an answer.

        Raises BadAnswer if the content exceeds `limit` bytes, and ServerUnreachable if the connection breaks.
        """
        found = bytearray()
        for part in self.parts(answer):
            found += part
            if len(found) > limit:
                answer.close()
                raise BadAnswer(f"The answer has more than {limit} bytes.")
        return bytes(found)

    def parts(self, answer: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
        """Yield the content of an answer in parts."""
        try:
            yield from answer.stream(1 << 16)
        except HTTPError as error:
            raise unreachable(self.url, error) from None
        finally:
            answer.release_conn()

    def close(self) -> None:
        """Close the connections. They are opened again when next used."""
        self._pool.clear()


def _give_back(answer: urllib3.BaseHTTPResponse) -> None:
    """Read the rest of an answer and return its connection to the pool."""
    answer.drain_conn()
    answer.release_conn()


def unreachable(url: str, error: HTTPError) -> ServerUnreachable:
    """Convert a urllib3 error to a ServerUnreachable that says why the server could not be reached."""
    reason = error.reason if isinstance(error, MaxRetryError) and error.reason else error
    if isinstance(reason, SSLError):
        return ServerUnreachable(
            f"{url} could not prove its identity: {reason}.",
            hint=f"If its certificate authority is private: drydock --ca FILE, or {addresses.CA}.",
        )
    said = str(reason).rsplit(": ", 1)[-1] or type(reason).__name__
    return ServerUnreachable(
        f"{url} does not answer: {said}.", hint="Check that the server is running, and check the address."
    )


def _query(given: Mapping[str, Any] | None) -> str:
    chosen: list[tuple[str, str]] = []
    for name, value in (given or {}).items():
        for one in value if isinstance(value, list | tuple | set | frozenset) else [value]:
            if one is not None and one is not False and one != "":
                chosen.append((name, "true" if one is True else str(one)))
    return f"?{urlencode(chosen, errors='surrogateescape')}" if chosen else ""
