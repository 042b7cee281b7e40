"""Contents that pass through: read from the request and written to the answer part by part."""

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

from drydock.core.errors import InvalidRequest
from drydock.deadline import WATCH
from drydock_client import trees
from interfaces.filesystem.contract import Transfer
from leases.local import LocalClient
from leases.operations import using
from leases.places import PLACES
from leases.rest.models import Token
from leases.rest.problems import BodyTooLarge
from leases.rest.values import Transferred

PART = 1 << 16


def reader(request: Request, limit: int) -> Callable[[int], bytes]:
    """Reads the body; a body without a length is read to its end. Raises BodyTooLarge, InvalidRequest when the
    caller went away in the middle."""
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
            raise BodyTooLarge(f"The body has more than the {limit} bytes that are taken here.")
        if not part and got < announced:
            raise InvalidRequest(f"The body ended after {got} of {announced} bytes.")
        return part

    return read


def received(request: Request, limit: int) -> Iterator[bytes]:
    """The body, part by part. Raises as `reader`."""
    read = reader(request, limit)
    while part := read(PART):
        yield part


@contextmanager
def unpacked(request: Request, limit: int) -> Iterator[trees.Unpacked]:
    """The body, a tar archive, in a temporary folder. Raises InvalidRequest, TooMuch."""
    read = reader(request, limit)
    with tempfile.TemporaryDirectory(prefix="drydock-") as folder:
        yield trees.unpack(read, lambda name: Path(folder, name), limit=limit)


def transferred(sent: trees.Unpacked, done: Transfer) -> Transferred:
    """What was copied in, and what was left out on either part of the way."""
    skipped = (*sent.skipped, *done.skipped)[: trees.MOST_SKIPPED]
    return Transferred(files=done.files, bytes=done.bytes, skipped=skipped)


@contextmanager
def place(request: Request) -> Iterator[None]:
    """One of the places for files and trees, for `DRYDOCK_TRANSFER_SECONDS`; then the connection is shut. Raises Busy
    where all are taken."""
    what = "As many files and trees are being copied as may be at the same time."
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
    """The longest that a file or tree may take."""
    return float(settings.DRYDOCK.transfer_seconds)


class Parts:
    """The parts of an answer, the first read already, so that what is wrong is said before the answer begins. They
    have a place until they are closed. Raises Busy, and what the first part raises."""

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
        """Give the place back."""
        self._held.close()


def packed(client: LocalClient, lease_id: int, path: str, limit: int) -> Iterator[bytes]:
    """A tree of the lease as a tar archive, by way of a temporary folder. Whatever can go wrong on the host goes
    wrong before the first byte."""
    folder = tempfile.TemporaryDirectory(prefix="drydock-")
    name = path.rstrip("/").rsplit("/", 1)[-1] or "tree"
    local = Path(folder.name, name if name not in (".", "..") else "tree")
    try:
        using.download(client.who, lease_id, path, local, limit=limit, timeout=seconds())
    except BaseException:
        folder.cleanup()
        raise
    return _packed(folder, local)


def _packed(folder: tempfile.TemporaryDirectory[str], local: Path) -> Iterator[bytes]:
    with folder:
        yield from trees.pack(local, "tree")
