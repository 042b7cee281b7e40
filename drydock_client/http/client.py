"""`drydock_client.protocol.Client` on a server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from drydock_client import following
from drydock_client.http.catalogue import HttpCatalogue
from drydock_client.http.connection import Connection
from drydock_client.http.costs import HttpCosts
from drydock_client.http.files import HttpFiles
from drydock_client.http.fleet import HttpFleet
from drydock_client.http.jobs import HttpJobs
from drydock_client.http.leases import HttpLeases
from drydock_client.http.machines import HttpMachines
from drydock_client.http.operating import HttpAccess, HttpBlueprints, HttpResources, HttpUsers
from drydock_client.http.tokens import HttpTokens
from drydock_client.protocol import Attendance
from drydock_client.values import EventInfo, from_json
from drydock_client.waiting import Waits

_LOOK_EVERY = 2.0
_FOLLOW_EVERY = 0.5


class Onlooker:
    """Whether workers of the server live; it is their operator's business."""

    private = False

    def __init__(self, http: Connection) -> None:
        self._http = http
        self._looked, self._alive = -_LOOK_EVERY, True

    def __enter__(self) -> Attendance:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing was begun."""

    def look(self) -> bool:
        """As the server sees it, asked at most every other second."""
        if time.monotonic() - self._looked >= _LOOK_EVERY:
            self._alive = bool(self._http.get("workers")["alive"])
            self._looked = time.monotonic()
        return self._alive


class HttpClient(
    HttpLeases,
    HttpMachines,
    HttpJobs,
    HttpFiles,
    HttpResources,
    HttpBlueprints,
    HttpAccess,
    HttpUsers,
    HttpCatalogue,
    HttpCosts,
    HttpTokens,
    HttpFleet,
    Waits,
):
    """A client of the server at `url`, for whom the token speaks; operators may ask for another `owner`. `ca`: a file
    of certificates to trust instead of the system's (else DRYDOCK_CA).

    Asks the server at once who that is. Raises NotAllowed for a token it does not take, ServerUnreachable, and
    NotAllowed where the token would be sent in the clear.
    """

    def __init__(self, url: str, token: str, *, owner: str | None = None, ca: str | None = None) -> None:
        self.http = Connection(url, token, ca=ca)
        self.owner = owner
        said = self.http.get("me")
        self.name: str = said["name"]
        self.operator: bool = said["operator"]

    def events(
        self, *, lease: int | None = None, resource: int | None = None, blueprint: str = "", kind: str = "",
        after: int = 0, limit: int = 200, newest: bool = False,
    ) -> list[EventInfo]:  # fmt: skip
        query = {
            "lease": lease, "resource": resource, "blueprint": blueprint, "kind": kind, "after": after,
            "limit": max(1, min(limit, following.AT_ONCE)), "newest": newest,
        }  # fmt: skip
        return [from_json(EventInfo, one) for one in self.http.get("events", query)["results"]]

    def follow(
        self, *, lease: int | None = None, resource: int | None = None, blueprint: str = "", kind: str = "",
        after: int | None = None, stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[EventInfo]:  # fmt: skip
        about: dict[str, Any] = {"lease": lease, "resource": resource, "blueprint": blueprint, "kind": kind}
        last = self.events(newest=True, limit=1) if after is None else []
        begin = after if after is not None else last[0].id if last else 0
        return following.follow(
            lambda cursor: self.events(after=cursor, limit=following.AT_ONCE, **about), after=begin,
            every=_FOLLOW_EVERY, stop=stop,
        )  # fmt: skip

    def attended(self) -> Attendance:
        return Onlooker(self.http)

    def close(self) -> None:
        """Give connections back. It opens them again when it is used again."""
        self.http.close()
