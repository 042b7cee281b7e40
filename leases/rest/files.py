"""Files and pages of a lease, one by one and as trees. They are streamed and never held in memory as a whole."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, cast

from django.conf import settings
from django.http import HttpResponse, StreamingHttpResponse
from rest_framework.request import Request

from drydock.body_deadline import WATCH
from drydock.core.errors import InvalidRequest
from drydock_client import trees
from drydock_client.values import JobInfo
from interfaces.filesystem.contract import Transfer
from leases.local import LocalClient
from leases.operations import interfaces, jobs
from leases.places import PLACES
from leases.rest import queries
from leases.rest.endpoint import Asked, Endpoint, json_response, operation
from leases.rest.models import Scope, Token
from leases.rest.parsing import AnyBytes
from leases.rest.problems import BodyTooLarge
from leases.rest.schema import BYTES
from leases.rest.values import Address, Transferred

PART = 1 << 16
TAR = "application/x-tar"
REMOVE_AT_ONCE = 2.0
"""Seconds that a request spends on removing a folder before a job continues the removal."""


def reader(request: Request, limit: int) -> Callable[[int], bytes]:
    """Return a function that reads the body of a request. A body without a length is read to its end.

    The function raises BodyTooLarge, and InvalidRequest if the client disconnects before the end.
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
    """Return the result of a copy, with the names of all entries that were skipped while unpacking or copying."""
    skipped = (*sent.skipped, *done.skipped)[: trees.MOST_SKIPPED]
    return Transferred(files=done.files, bytes=done.bytes, skipped=skipped)


@contextmanager
def place(request: Request) -> Iterator[None]:
    """Count this block as a transfer of a file or tree. Raises NoPlace if too many transfers are running.

    The connection is shut down after `DRYDOCK_TRANSFER_SECONDS`.
    """
    what = "Too many files and trees are being copied at the same time."
    with PLACES.held("transfer", cast(Token, request.auth).holder, what):
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
    """The parts of a response body, which are read while they are sent.

    The first part is read in advance, so that errors are raised before the response begins. The transfer counts
    against the limit until `close` is called. Raises NoPlace, and any error from reading the first part.
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
        """End the transfer."""
        self._held.close()


def packed(client: LocalClient, lease_id: int, path: str, limit: int) -> Iterator[bytes]:
    """Yield a tree of the lease as the parts of a tar archive.

    The tree is first copied to a temporary folder, so that errors of the host are raised before the first byte is
    sent.
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


class Uploading(Endpoint):
    """The base class of views that receive the contents of files."""

    parser_classes = [AnyBytes]
    takes_chunks = True

    def largest(self, request: Request) -> int:
        """Return the maximum size of a file in bytes."""
        return int(settings.DRYDOCK.file_limit_bytes)


class File(Uploading):
    """A single file."""

    @operation("Read a file", gives=BYTES, query=queries.File)
    def get(self, asked: Asked, id: int) -> StreamingHttpResponse:
        """Return the content of a file of any size."""

        def parts() -> Iterator[bytes]:
            return interfaces.filesystem(asked.client.who, id).read_parts(asked.query.path, timeout=seconds())

        found = Parts(asked.request, parts)
        return StreamingHttpResponse(found, content_type=BYTES, headers={"Content-Disposition": "attachment"})

    @operation("Write a file", scope=Scope.LEASE, body=BYTES, query=queries.File)
    def put(self, asked: Asked, id: int) -> None:
        """Replace the file atomically: readers see either the previous content or all of the new content."""
        parts = received(asked.request, self.largest(asked.request))
        with place(asked.request):
            interfaces.write_parts(asked.client.who, id, asked.query.path, parts, timeout=seconds())

    @operation(
        "Remove a file or folder", scope=Scope.LEASE, query=queries.Removal, host="lease",
        also={202: "The folder is large: a job on the host, at `Location`, removes the rest."},
    )  # fmt: skip
    def delete(self, asked: Asked, id: int) -> HttpResponse | None:
        """Remove a file or, if `recursive` is true, a folder and its contents. A missing path is not an error."""
        q = asked.query
        job = jobs.begin_removal(asked.client.who, id, q.path, recursive=q.recursive, seconds=REMOVE_AT_ONCE)
        return None if job is None else _begun(job)


class Tree(Uploading):
    """A file, or a folder with its contents, as a tar archive with one top-level entry."""

    def largest(self, request: Request) -> int:
        """Return the maximum size of an archive in bytes."""
        return int(settings.DRYDOCK.tree_limit_bytes)

    @operation("Download a tree", gives=TAR, query=queries.Place)
    def get(self, asked: Asked, id: int) -> StreamingHttpResponse:
        """Return a file or folder as a tar archive.

        Pipes, devices, and links that lead outside the folder are omitted.
        """
        media_type = BYTES if asked.header("Accept").strip() == BYTES else TAR
        largest = self.largest(asked.request)
        parts = Parts(asked.request, lambda: packed(asked.client, id, asked.query.path, largest))
        return StreamingHttpResponse(parts, content_type=media_type)

    @operation("Upload a tree", gives=Transferred, scope=Scope.LEASE, body=TAR, query=queries.Place)
    def put(self, asked: Asked, id: int) -> Transferred:
        """Unpack a tar archive; its top-level entry becomes `path`."""
        with place(asked.request):
            interfaces.filesystem(asked.client.who, id)  # before anything is read: whose it is, and whether it has one
            with unpacked(asked.request, self.largest(asked.request)) as local:
                done = interfaces.upload(asked.client.who, id, local.place, asked.query.path, timeout=seconds())
                return transferred(local, done)


def _begun(job: JobInfo) -> HttpResponse:
    return json_response(job, status=202, headers={"Location": f"/api/v1/jobs/{job.id}"})


class Page(Uploading):
    """A single page."""

    @operation("Publish a page", gives=Address, scope=Scope.LEASE, body=BYTES, query=queries.File)
    def put(self, asked: Asked, id: int) -> Address:
        """Publish a page atomically and return its URL."""
        with place(asked.request):
            interfaces.interface(asked.client.who, id, "httpd")  # whose it is, before anything is read
            content = b"".join(received(asked.request, self.largest(asked.request)))
            return Address(uri=asked.client.publish(id, asked.query.path, content))


class Pages(Tree):
    """A folder of pages."""

    http_method_names = ["put"]

    @operation("Publish a folder", gives=Transferred, scope=Scope.LEASE, body=TAR, query=queries.Place)
    def put(self, asked: Asked, id: int) -> Transferred:
        """Publish the contents of a tar archive's top-level entry below `path`."""
        with place(asked.request):
            interfaces.interface(asked.client.who, id, "httpd")  # whose it is, before anything is read
            with unpacked(asked.request, self.largest(asked.request)) as local:
                done = interfaces.publish_tree(asked.client.who, id, local.place, asked.query.path)
                return transferred(local, done)
