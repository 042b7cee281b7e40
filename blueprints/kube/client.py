"""The official Kubernetes client with our own transport below. Only this module imports it.

The client writes certificates and keys to temporary files, and follows redirects and proxies. Here they stay in memory
(OpenSSL reads the client certificate from a memfd, which ends with the process), nothing is redirected, and every
request ends at its deadline, however slowly the server answers.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import urllib3
from kubernetes.client import ApiClient, Configuration
from kubernetes.client.rest import RESTClientObject
from urllib3.connection import HTTPSConnection
from urllib3.connectionpool import HTTPSConnectionPool

from blueprints.bmc import tls
from blueprints.kube.credential import Access, Source, host_of
from blueprints.kube.errors import (
    AnswerTooLong,
    ApiUnavailable,
    CertificateUntrusted,
    CredentialInvalid,
    KubeError,
)
from blueprints.kube.transport import Reply
from drydock.core import clock
from interfaces.deadline import Deadline

_REREAD = 60.0
"""Seconds after which a token that is renewed by itself is read again, as client-go does."""
_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPIDLE", 4), 30),
    (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPINTVL", 5), 10),
    (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPCNT", 6), 3),
)


class Connection:
    """Access to one API server, used by one thread at a time."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._channel: _Channel | None = None
        self._read_at = clock.monotonic()

    @property
    def where(self) -> str:
        """Host and port of the server, for messages."""
        return host_of(self._source.access().server)

    @property
    def namespace(self) -> str:
        """The namespace that the credential names."""
        return self._source.access().namespace

    def hidden(self, text: str) -> str:
        """Return a text without the secrets of the credential."""
        for secret in self._source.access().secrets:
            text = text.replace(secret, "***")
        return text

    def close(self) -> None:
        """Close the connection. It is opened again when it is used."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def call(
        self, method: str, path: str, *, query: Sequence[tuple[str, str]] = (), body: Any = None,
        content_type: str = "application/json", deadline: float, most: int,
    ) -> Reply:  # fmt: skip
        """Send a request, and return the answer whatever its status. After a 401 the credential is read again, once.

        `deadline` is in seconds, and `most` the bytes that the answer may have. Raises ApiUnavailable,
        CertificateUntrusted, CredentialInvalid, AnswerTooLong.
        """
        until = Deadline(deadline)
        self._refresh()
        reply = self._sent(method, path, query, body, content_type, until, most)
        if reply.status == 401 and self._source.renewed():
            self.close()
            reply = self._sent(method, path, query, body, content_type, until, most)
        return reply

    def stream(self, path: str, *, query: Sequence[tuple[str, str]], deadline: float, idle: float) -> Stream:
        """Open a connection of its own for an answer that is read line by line, such as a watch.

        The answer must begin within `deadline` seconds, and no pause in it may be longer than `idle` seconds.
        """
        self._refresh()
        stream = self._streamed(path, query, deadline, idle)
        if stream.status == 401 and self._source.renewed():
            stream.close()
            self.close()
            stream = self._streamed(path, query, deadline, idle)
        return stream

    def _refresh(self) -> None:
        if self._source.rotates and clock.monotonic() - self._read_at > _REREAD:
            self._read_at = clock.monotonic()
            if self._source.renewed():
                self.close()

    def _sent(
        self, method: str, path: str, query: Sequence[tuple[str, str]], body: Any, content_type: str, until: Deadline,
        most: int,
    ) -> Reply:  # fmt: skip
        """Send a request. A GET on a reused connection that has ended is sent again once."""
        for attempt in (1, 2):
            channel = self._channel = self._channel or _Channel(self._source.access())
            reused = channel.used
            try:
                with channel.ending_at(until):
                    response = channel.request(method, path, query, body, content_type, until.remaining)
                    return Reply(response.status, dict(response.headers), _body(response, most, until, channel.where))
            except KubeError:
                self.close()
                raise
            except Exception as error:
                self.close()
                failure = channel.failure(error, until, changes=method != "GET")
                ended = isinstance(failure, ApiUnavailable) and reused and attempt == 1 and method == "GET"
                if not ended or until.expired:
                    raise failure from error
        raise AssertionError

    def _streamed(self, path: str, query: Sequence[tuple[str, str]], deadline: float, idle: float) -> Stream:
        channel, until = _Channel(self._source.access()), Deadline(deadline)
        try:
            with channel.ending_at(until):
                response = channel.request("GET", path, query, None, "", idle)
            return Stream(channel, response)
        except Exception as error:
            channel.close()
            raise channel.failure(error, until, changes=False) from error


class Stream:
    """An answer that is read line by line. `close` may be called by another thread, and ends a read that waits."""

    def __init__(self, channel: _Channel, response: Any) -> None:
        self._channel, self._response = channel, response
        self.status: int = response.status
        self.headers = dict(response.headers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the answer and its connection. Never raises."""
        self._channel.end()
        with contextlib.suppress(Exception):
            self._response.close()
        self._channel.close()

    def body(self, *, deadline: float, most: int) -> bytes:
        """Read the rest as a whole, such as the body of an error."""
        until = Deadline(deadline)
        try:
            with self._channel.ending_at(until):
                return _body(self._response, most, until, self._channel.where)
        except KubeError:
            raise
        except Exception as error:
            raise self._channel.failure(error, until, changes=False) from error

    def lines(self, most: int) -> Iterator[bytes]:
        """Return the lines until the server ends the answer. The beginning of a line that does not end is left out.

        Raises ApiUnavailable if the connection breaks, and AnswerTooLong for a line of more than `most` bytes.
        """
        rest: list[bytes] = []
        size = 0
        while part := self._read():
            *whole, last = part.split(b"\n")
            for line in whole:
                yield b"".join((*rest, line))
                rest, size = [], 0
            rest.append(last)
            size += len(last)
            if size > most:
                raise AnswerTooLong(
                    f"The API server at {self._channel.where} sent a line of more than {most >> 20} MiB."
                )

    def _read(self) -> bytes:
        try:
            part: bytes = self._response.read1(65536, decode_content=True)
            return part
        except Exception as error:
            raise self._channel.failure(error, None, changes=False) from error


class _Channel:
    """The official client with one connection, which can be ended from outside."""

    def __init__(self, access: Access) -> None:
        self.where = host_of(access.server)
        self.used = False
        self.secured = False
        """Whether the TLS handshake is over, so that a request may have been sent."""
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()
        configuration = Configuration(host=access.server, retries=0, proxy="", no_proxy="*")
        if access.token:
            configuration.api_key = {"BearerToken": access.token}
            configuration.api_key_prefix = {"BearerToken": "Bearer"}
        self._api = ApiClient(configuration)
        self._api.user_agent = "drydock"
        self._api.rest_client = _Rest(configuration, access, self)

    def request(
        self, method: str, path: str, query: Sequence[tuple[str, str]], body: Any, content_type: str, timeout: float
    ) -> urllib3.BaseHTTPResponse:
        """Send a request and return the answer, whose body is not read yet."""
        headers = {"Accept": "application/json"} | ({"Content-Type": content_type} if body is not None else {})
        prepared = self._api.param_serialize(
            method, path, query_params=list(query), header_params=headers, body=body, auth_settings=["BearerToken"]
        )
        read = urllib3.Timeout(connect=max(timeout, 0.01), read=max(timeout, 0.01))
        answer = self._api.call_api(*prepared, _request_timeout=(read.connect_timeout, read.read_timeout))
        self.used = True
        response: urllib3.BaseHTTPResponse = answer.response
        return response

    @contextlib.contextmanager
    def ending_at(self, until: Deadline) -> Iterator[None]:
        """End the connection at a deadline if it is still used then."""
        timer = threading.Timer(until.remaining, self.end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def opened(self, connection: socket.socket) -> socket.socket:
        """Note the socket of the connection."""
        with self._lock:
            if self._socket is not None:
                self._socket.close()
            self._socket = connection.dup()
        return connection

    def end(self) -> None:
        """End the connection, whatever waits for it."""
        with self._lock, contextlib.suppress(OSError):
            if self._socket is not None:
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Forget the connection."""
        self._api.rest_client.close()
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None

    def failure(self, error: Exception, until: Deadline | None, *, changes: bool) -> KubeError:
        """Return the error for a request that failed below HTTP."""
        if isinstance(error, KubeError):
            return error
        unverified = tls.unverified(error)
        if unverified:
            return CertificateUntrusted(
                f"The certificate of the API server at {self.where} is not trusted: {unverified}.",
                hint="Correct the CA in the credential.",
            )
        causes = list(tls.causes(error))
        if until is not None and until.expired:
            said = f"did not answer within {until.seconds:.3g} s"
        elif any(isinstance(one, TimeoutError) or type(one) in _TIMEOUTS for one in causes):
            said = "does not answer"
        else:
            said = f"cannot be reached: {tls.reason_of(error)}"
        return ApiUnavailable(f"The API server at {self.where} {said}.", sent=changes and self.secured)


_TIMEOUTS = (urllib3.exceptions.ConnectTimeoutError, urllib3.exceptions.ReadTimeoutError)
"""Exactly these classes: a refused connection is a subclass of the first."""


class _Rest(RESTClientObject):  # type: ignore[misc]
    """The HTTP of the official client, on connections that trust and end as we say."""

    def __init__(self, configuration: Configuration, access: Access, channel: _Channel) -> None:
        super().__init__(configuration)
        options: dict[str, Any] = {"server_hostname": access.server_name} if access.server_name else {}
        options["socket_options"] = [*HTTPSConnection.default_socket_options, *_KEEPALIVE]
        self.pool_manager = _Pools(1, maxsize=1, ssl_context=_context(access), **options)
        self.pool_manager.pool_classes_by_scheme = {"https": _pool(channel)}


class _Pools(urllib3.PoolManager):
    """Sends each request once, to the server that it is for."""

    def urlopen(self, method: str, url: str, redirect: bool = True, **options: Any) -> Any:  # type: ignore[override]
        """Send a request without retries and redirects."""
        return super().urlopen(method, url, redirect=False, **(options | {"retries": False}))


def _pool(channel: _Channel) -> type[HTTPSConnectionPool]:
    class Secured(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            channel.secured = False
            return channel.opened(super()._new_conn())

        def connect(self) -> None:
            super().connect()
            channel.secured = True

    class Pool(HTTPSConnectionPool):
        ConnectionCls = Secured

    return Pool


def _context(access: Access) -> ssl.SSLContext:
    """Return the TLS settings of an access. Raises CredentialInvalid."""
    try:
        context = ssl.create_default_context(cadata=access.ca or None)
    except (ssl.SSLError, ValueError):
        raise CredentialInvalid("The CA of the cluster is not a valid certificate.", field="ca") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if access.certificate:
        with _in_memory(access.certificate, access.key) as path:
            try:
                context.load_cert_chain(path, password=lambda: b"")
            except (ssl.SSLError, OSError, ValueError):
                raise CredentialInvalid(
                    "The client certificate and its key are invalid, or do not belong together.", field="kubeconfig"
                ) from None
    return context


@contextlib.contextmanager
def _in_memory(certificate: str, key: str) -> Iterator[str]:
    """Return a path from which OpenSSL reads certificate and key: memory that ends with the process."""
    if not hasattr(os, "memfd_create"):
        raise CredentialInvalid(
            "Client certificates can be used on Linux only, because elsewhere their keys would be written to a file.",
            hint="Use the token of a service account.",
        )
    descriptor = os.memfd_create("drydock", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(f"{certificate.rstrip()}\n{key.rstrip()}\n".encode())
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _body(response: Any, most: int, until: Deadline, where: str) -> bytes:
    """Read the body of an answer, which then can be followed by another one on the same connection."""
    parts, size = [], 0
    while part := response.read1(65536, decode_content=True):
        parts.append(part)
        size += len(part)
        if size > most:
            response.close()
            raise AnswerTooLong(f"The API server at {where} sent an answer of more than {most >> 10} KiB.")
        if until.expired:
            break
    if until.expired:  # the end of a connection that was ended then looks like that of the answer
        response.close()
        raise ApiUnavailable(f"The API server at {where} did not answer within {until.seconds:.3g} s.", sent=True)
    response.release_conn()
    return b"".join(parts)
