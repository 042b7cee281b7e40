"""The web server of a lease."""

from __future__ import annotations

from django.http import HttpResponse

from drydock_client.values import ServerInfo
from leases.hostcalls import of_lease
from leases.operations import interfaces
from leases.rest import bodies, queries, transfer
from leases.rest.endpoint import Asked, Endpoint, operation
from leases.rest.models import Scope
from leases.rest.values import Address, Transferred
from leases.rest.views.files import TAR, Tree, Uploading
from leases.rest.views.work import BYTES, PART, octets


class Page(Uploading):
    """A single page."""

    @operation("The address of a page", gives=Address, query=queries.Place, asks=of_lease)
    def get(self, asked: Asked, id: int) -> Address:
        """Return the address under which the page is served."""
        return Address(uri=asked.client.uri(id, asked.query.path))

    @operation("Publish a page", gives=Address, scope=Scope.LEASE, body=BYTES, query=queries.File)
    def put(self, asked: Asked, id: int) -> Address:
        """Publish a page atomically and return its address."""
        with transfer.place(asked.request):
            interfaces.interface(asked.client.who, id, "httpd")  # whose it is, before anything is read
            content = b"".join(transfer.received(asked.request, self.largest(asked.request)))
            return Address(uri=asked.client.publish(id, asked.query.path, content))

    @operation("Take a page or folder away", scope=Scope.LEASE, query=queries.File, asks=of_lease)
    def delete(self, asked: Asked, id: int) -> None:
        """Remove a page or folder. A missing one is not an error."""
        asked.client.unpublish(id, asked.query.path)


class Pages(Tree):
    """A folder of pages."""

    http_method_names = ["put"]

    @operation("Publish a folder", gives=Transferred, scope=Scope.LEASE, body=TAR, query=queries.Place)
    def put(self, asked: Asked, id: int) -> Transferred:
        """Publish the contents of a tar archive's top-level entry below `path`."""
        with transfer.place(asked.request):
            interfaces.interface(asked.client.who, id, "httpd")  # whose it is, before anything is read
            with transfer.unpacked(asked.request, self.largest(asked.request)) as local:
                done = interfaces.publish_tree(asked.client.who, id, local.place, asked.query.path)
                return transfer.transferred(local, done)


class Server(Endpoint):
    """The web server itself."""

    @operation("How the web server stands", gives=ServerInfo, asks=of_lease)
    def get(self, asked: Asked, id: int) -> ServerInfo:
        """Return whether the web server is stopped, running or failed, and its last output."""
        return asked.client.server(id)

    @operation(
        "Start, stop, reload or test it", gives=ServerInfo, scope=Scope.LEASE, body=bodies.ServerAct, asks=of_lease
    )
    def post(self, asked: Asked, id: int) -> ServerInfo:
        """Perform the action and return the resulting state of the web server."""
        return asked.client.server(id, asked.body.act)


class Log(Endpoint):
    """The logs of the web server."""

    @operation(
        "Read its log", gives=BYTES, query=queries.Log, headers={"Drydock-Next-Offset": PART["Drydock-Next-Offset"]},
        asks=of_lease,
    )  # fmt: skip
    def get(self, asked: Asked, id: int) -> HttpResponse:
        """Return a part of the `access` or `error` log."""
        q = asked.query
        part = asked.client.server_log(id, q.kind, offset=q.offset, limit=q.limit)
        return octets(part.content, {"Drydock-Next-Offset": str(part.next_offset)})
