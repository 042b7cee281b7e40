"""Files of a lease, one by one and as whole trees. No content is held in memory as a whole."""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings
from django.http import HttpResponse, StreamingHttpResponse
from rest_framework.request import Request

from leases.client.values import FileInfo
from leases.hostcalls import of_lease
from leases.operations import removal, using
from leases.rest import queries, transfer
from leases.rest.endpoint import Asked, Endpoint, Page, operation
from leases.rest.models import Scope
from leases.rest.parsing import AnyBytes
from leases.rest.values import Transferred
from leases.rest.views.work import BYTES, job_response

TAR = "application/x-tar"
REMOVE_AT_ONCE = 2.0
"""Seconds that a request removes a folder before a job goes on."""


class Uploading(Endpoint):
    """An address that takes the bytes of a file."""

    parser_classes = [AnyBytes]
    takes_chunks = True

    def largest(self, request: Request) -> int:
        """Bytes that are taken."""
        return int(settings.DRYDOCK.file_limit_bytes)


class File(Uploading):
    """One file."""

    @operation("Read a file", gives=BYTES, query=queries.File)
    def get(self, asked: Asked, id: int) -> StreamingHttpResponse:
        """Its bytes, whatever its size."""

        def parts() -> Iterator[bytes]:
            return using.filesystem(asked.client.who, id).read_parts(asked.query.path, timeout=transfer.seconds())

        found = transfer.Parts(asked.request, parts)
        return StreamingHttpResponse(found, content_type=BYTES, headers={"Content-Disposition": "attachment"})

    @operation("Write a file", scope=Scope.LEASE, body=BYTES, query=queries.File)
    def put(self, asked: Asked, id: int) -> None:
        """Write it in one step: readers see what was there before, or all of the new."""
        parts = transfer.received(asked.request, self.largest(asked.request))
        with transfer.place(asked.request):
            using.write_parts(asked.client.who, id, asked.query.path, parts, timeout=transfer.seconds())

    @operation(
        "Remove a file or folder", scope=Scope.LEASE, query=queries.Removal, asks=of_lease,
        also={202: "It is large: a job on the host, at `Location`, removes the rest."},
    )  # fmt: skip
    def delete(self, asked: Asked, id: int) -> HttpResponse | None:
        """What is not there is no error."""
        q = asked.query
        job = removal.begin(asked.client.who, id, q.path, recursive=q.recursive, seconds=REMOVE_AT_ONCE)
        return None if job is None else job_response(job)


class Files(Endpoint):
    """A folder."""

    @operation("List a folder", gives=list[FileInfo], query=queries.Place, asks=of_lease)
    def get(self, asked: Asked, id: int) -> Page:
        """What is in it, by name."""
        return Page(results=asked.client.list_files(id, asked.query.path))


class Tree(Uploading):
    """A file or folder with all that is in it, as a tar archive with one entry at its top."""

    def largest(self, request: Request) -> int:
        """Bytes that are taken."""
        return int(settings.DRYDOCK.tree_limit_bytes)

    @operation("Copy a tree out", gives=TAR, query=queries.Place)
    def get(self, asked: Asked, id: int) -> StreamingHttpResponse:
        """Links that lead out of it, pipes and devices are left out."""
        media_type = BYTES if asked.header("Accept").strip() == BYTES else TAR
        largest = self.largest(asked.request)
        parts = transfer.Parts(asked.request, lambda: transfer.packed(asked.client, id, asked.query.path, largest))
        return StreamingHttpResponse(parts, content_type=media_type)

    @operation("Copy a tree in", gives=Transferred, scope=Scope.LEASE, body=TAR, query=queries.Place)
    def put(self, asked: Asked, id: int) -> Transferred:
        """Its top entry is put at `path`."""
        with transfer.place(asked.request):
            using.filesystem(asked.client.who, id)  # before anything is read: whose it is, and whether it has one
            with transfer.unpacked(asked.request, self.largest(asked.request)) as local:
                done = using.upload(asked.client.who, id, local.place, asked.query.path, timeout=transfer.seconds())
                return transfer.transferred(local, done)
