"""`drydock_client.protocol.Client` over HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from drydock_client import following
from drydock_client.http.connection import Connection
from drydock_client.http.files import HttpFiles
from drydock_client.http.jobs import HttpJobs
from drydock_client.http.leases import HttpInstances, HttpLeases, HttpMachines
from drydock_client.http.operating import HttpBlueprints, HttpCosts, HttpOffers, HttpPermissions, HttpResources
from drydock_client.http.tokens import HttpTokens
from drydock_client.protocol import Attendance, Client
from drydock_client.values import EventInfo, from_json
from drydock_client.waiting import Waits

_LOOK_EVERY = 2.0
_FOLLOW_EVERY = 0.5


class Onlooker:
    """Reports whether the server's workers are alive. Starting workers is up to the server's operator."""

    private = False

    def __init__(self, http: Connection) -> None:
        self._http = http
        self._looked, self._alive = -_LOOK_EVERY, True

    def __enter__(self) -> Attendance:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing, because nothing was started."""

    def look(self) -> bool:
        """Return whether the server reports live workers. Asks the server at most every two seconds."""
        if time.monotonic() - self._looked >= _LOOK_EVERY:
            self._alive = bool(self._http.get("workers")["alive"])
            self._looked = time.monotonic()
        return self._alive


class HttpClient(
    Waits,
    HttpLeases,
    HttpMachines,
    HttpJobs,
    HttpFiles,
    HttpResources,
    HttpBlueprints,
    HttpPermissions,
    HttpOffers,
    HttpCosts,
    HttpInstances,
    HttpTokens,
    Client,
):
    """A client of the server at `url`, acting as the token's user; operators may act for another `owner`.

    `ca` is a file of certificates to trust instead of the system's (default: DRYDOCK_CA). The constructor asks the
    server which user the token belongs to. Raises NotAllowed if the server refuses the token or if the token would be
    sent unencrypted, and ServerUnreachable.
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
        """Close the connections. They are opened again when next used."""
        self.http.close()
