"""Streaming of file contents, read from requests and written to responses in parts."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, cast

from django.conf import settings
from rest_framework.request import Request

from drydock.body_deadline import WATCH
from drydock.core.errors import InvalidRequest
from drydock_client import trees
from interfaces.filesystem.contract import Transfer
from leases.local import LocalClient
from leases.operations import interfaces
from leases.places import PLACES
from leases.rest.models import Token
from leases.rest.problems import BodyTooLarge
from leases.rest.values import Transferred

PART = 1 << 16


def reader(request: Request, limit: int) -> Callable[[int], bytes]:
    """Return a function that reads the body; one without a length is read to its end.

    The function raises BodyTooLarge, and InvalidRequest if the client disconnects in the middle.
    """
    announced = int(request.META.get("CONTENT_LENGTH") or 0)
    chunked = bool(request.META.get("HTTP_TRANSFER_ENCODING")) and not announced
    stream: Any = request.META["wsgi.input"] if chunked and request.META.get("wsgi.input_terminated") else None
    stream = stream or request._request
    got = 0

    def read(size: int) -> bytes:
        nonlocal got
        part = bytes(stream.read(size))
        got += len(part)
        if got > limit:
            raise BodyTooLarge(f"The body is larger than the {limit} bytes that are accepted.")
        if not part and got < announced:
            raise InvalidRequest(f"The body ended after {got} of {announced} bytes.")
        return part

    return read


def received(request: Request, limit: int) -> Iterator[bytes]:
    """Yield the body in parts. Raises what `reader` raises."""
    read = reader(request, limit)
    while part := read(PART):
        yield part


@contextmanager
def unpacked(request: Request, limit: int) -> Iterator[trees.Unpacked]:
    """Unpack the body, a tar archive, into a temporary folder. Raises InvalidRequest, TooMuch."""
    read = reader(request, limit)
    with tempfile.TemporaryDirectory(prefix="drydock-") as folder:
        yield trees.unpack(read, lambda name: Path(folder, name), limit=limit)


def transferred(sent: trees.Unpacked, done: Transfer) -> Transferred:
    """Return the result of a copy, with everything that was skipped while unpacking or copying."""
    skipped = (*sent.skipped, *done.skipped)[: trees.MOST_SKIPPED]
    return Transferred(files=done.files, bytes=done.bytes, skipped=skipped)


@contextmanager
def place(request: Request) -> Iterator[None]:
    """Reserve a place for transferring a file or tree. Raises Busy if all are taken.

    The connection is shut down after `DRYDOCK_TRANSFER_SECONDS`.
    """
    what = "Too many files and trees are being copied at the same time."
    with PLACES.held("transfer", cast(Token, request.auth).user_id, what):
        link = request.META.get("gunicorn.socket")
        if link is not None:
            WATCH.until(link, seconds(), socket.SHUT_RDWR)
        try:
            yield
        finally:
            if link is not None:
                WATCH.forget(link)
                if not getattr(request.META["wsgi.input"], "done", True):  # the server reads what is left of it
                    WATCH.until(link, settings.DRYDOCK.body_seconds)


def seconds() -> float:
    """Return the maximum duration of a transfer in seconds."""
    return float(settings.DRYDOCK.transfer_seconds)


class Parts:
    """The parts of a response body. The first is read in advance, so that errors are raised before the response begins.

    A place is reserved until the parts are closed. Raises Busy, and whatever reading the first part raises.
    """

    def __init__(self, request: Request, make: Callable[[], Iterator[bytes]]) -> None:
        with ExitStack() as stack:
            stack.enter_context(place(request))
            parts = make()
            stack.callback(getattr(parts, "close", lambda: None))
            self._parts = chain((next(parts, b""),), parts)
            self._held = stack.pop_all()

    def __iter__(self) -> Iterator[bytes]:
        return self._parts

    def close(self) -> None:
        """Release the place."""
        self._held.close()


def packed(client: LocalClient, lease_id: int, path: str, limit: int) -> Iterator[bytes]:
    """Yield a tree of the lease as a tar archive.

    The tree is first copied to a temporary folder, so that anything that fails on the host fails before the first byte
    is sent.
    """
    folder = tempfile.TemporaryDirectory(prefix="drydock-")
    name = path.rstrip("/").rsplit("/", 1)[-1] or "tree"
    local = Path(folder.name, name if name not in (".", "..") else "tree")
    try:
        interfaces.download(client.who, lease_id, path, local, limit=limit, timeout=seconds())
    except BaseException:
        folder.cleanup()
        raise
    return _packed(folder, local)


def _packed(folder: tempfile.TemporaryDirectory[str], local: Path) -> Iterator[bytes]:
    with folder:
        yield from trees.pack(local, "tree")
