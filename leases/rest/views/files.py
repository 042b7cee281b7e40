"""Files of a lease, individually and as whole trees. Contents are streamed, and never held in memory as a whole."""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings
from django.http import HttpResponse, StreamingHttpResponse
from rest_framework.request import Request

from leases.hostcalls import of_lease
from leases.operations import interfaces, jobs
from leases.rest import queries, transfer
from leases.rest.endpoint import Asked, Endpoint, operation
from leases.rest.models import Scope
from leases.rest.parsing import AnyBytes
from leases.rest.values import Transferred
from leases.rest.views.work import BYTES, job_response

TAR = "application/x-tar"
REMOVE_AT_ONCE = 2.0
"""Seconds that a request spends on removing a folder before a job takes over."""


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
            return interfaces.filesystem(asked.client.who, id).read_parts(asked.query.path, timeout=transfer.seconds())

        found = transfer.Parts(asked.request, parts)
        return StreamingHttpResponse(found, content_type=BYTES, headers={"Content-Disposition": "attachment"})

    @operation("Write a file", scope=Scope.LEASE, body=BYTES, query=queries.File)
    def put(self, asked: Asked, id: int) -> None:
        """Replace the file atomically: readers see either the previous content or all of the new content."""
        parts = transfer.received(asked.request, self.largest(asked.request))
        with transfer.place(asked.request):
            interfaces.write_parts(asked.client.who, id, asked.query.path, parts, timeout=transfer.seconds())

    @operation(
        "Remove a file or folder", scope=Scope.LEASE, query=queries.Removal, asks=of_lease,
        also={202: "It is large: a job on the host, at `Location`, removes the rest."},
    )  # fmt: skip
    def delete(self, asked: Asked, id: int) -> HttpResponse | None:
        """Remove a file, or, with `recursive`, a folder and its contents. A missing path is not an error."""
        q = asked.query
        job = jobs.begin_removal(asked.client.who, id, q.path, recursive=q.recursive, seconds=REMOVE_AT_ONCE)
        return None if job is None else job_response(job)


class Tree(Uploading):
    """A file, or a folder with its contents, as a tar archive with one top-level entry."""

    def largest(self, request: Request) -> int:
        """Return the maximum size of an archive in bytes."""
        return int(settings.DRYDOCK.tree_limit_bytes)

    @operation("Copy a tree out", gives=TAR, query=queries.Place)
    def get(self, asked: Asked, id: int) -> StreamingHttpResponse:
        """Return a file or folder as a tar archive. Pipes, devices, and links that lead out of the folder are left
        out."""
        media_type = BYTES if asked.header("Accept").strip() == BYTES else TAR
        largest = self.largest(asked.request)
        parts = transfer.Parts(asked.request, lambda: transfer.packed(asked.client, id, asked.query.path, largest))
        return StreamingHttpResponse(parts, content_type=media_type)

    @operation("Copy a tree in", gives=Transferred, scope=Scope.LEASE, body=TAR, query=queries.Place)
    def put(self, asked: Asked, id: int) -> Transferred:
        """Unpack a tar archive; its top-level entry becomes `path`."""
        with transfer.place(asked.request):
            interfaces.filesystem(asked.client.who, id)  # before anything is read: whose it is, and whether it has one
            with transfer.unpacked(asked.request, self.largest(asked.request)) as local:
                done = interfaces.upload(
                    asked.client.who, id, local.place, asked.query.path, timeout=transfer.seconds()
                )
                return transfer.transferred(local, done)
