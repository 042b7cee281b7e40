"""The client of the REST API: `drydock_client.protocol.Client` over HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from drydock_client import events
from drydock_client.errors import Conflict, NotFound
from drydock_client.http.connection import Connection
from drydock_client.http.interfaces import HttpInterfaces
from drydock_client.http.jobs import HttpJobs
from drydock_client.http.operations import ALL, pages
from drydock_client.protocol import Attendance, Client
from drydock_client.values import EventInfo, TokenInfo, from_json

_LOOK_EVERY = 2.0
_FOLLOW_EVERY = 0.5


class Onlooker:
    """Tells a waiting program whether the server's workers are alive.

    Never starts a worker, because that is the task of the server's operator.
    """

    private = False

    def __init__(self, http: Connection) -> None:
        self._http = http
        self._looked, self._alive = -_LOOK_EVERY, True

    def __enter__(self) -> Attendance:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing, because nothing was started."""

    def look(self) -> bool:
        """Return whether the server reports that a worker is alive. Asks the server at most every two seconds."""
        if time.monotonic() - self._looked >= _LOOK_EVERY:
            self._alive = bool(self._http.get("workers")["alive"])
            self._looked = time.monotonic()
        return self._alive


class HttpClient(HttpJobs, HttpInterfaces, Client):
    """A client of the server at `url`, with the permissions of the token's user.

    An operator may give another `owner`, for whom leases are requested and listed. `ca` is a file of certificates to
    trust instead of the system's (default: DRYDOCK_CA). The constructor asks the server to which user the token
    belongs. Raises NotAllowed if the server refuses the token or if the token would be sent unencrypted, and
    ServerUnreachable.
    """

    def __init__(self, url: str, token: str, *, owner: str | None = None, ca: str | None = None) -> None:
        self.http = Connection(url, token, ca=ca)
        self.owner = owner
        said = self.http.get("me")
        self.name: str = said["name"]
        self.operator: bool = said["operator"]

    def named(self, name: str) -> int:
        found = self.leases(states=("pending", "acquired", "active", "released"), name=name, limit=10)
        own = [one for one in found if one.owner == self.name]
        if not own and len(found) > 1:
            raise Conflict(
                f"Several owners have a lease named {name!r}.", field="lease",
                hint=f"Give the id of the lease. To list the ids: drydock leases --name {name}",
            )  # fmt: skip
        live = sorted(own or found, key=lambda one: (one.state == "released", -one.id))
        for one in live or [one for one in self.leases(states=(), name=name, limit=10) if one.owner == self.name]:
            return one.id
        raise NotFound(f"{name!r} is not a lease number or name.", field="lease", hint="`drydock leases` lists them.")

    def follow(
        self, *, lease: int | None = None, resource: int | None = None, blueprint: str = "", kind: str = "",
        after: int | None = None, stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[EventInfo]:  # fmt: skip
        about: dict[str, Any] = {"lease": lease, "resource": resource, "blueprint": blueprint, "kind": kind}
        last = self.events(newest=True, limit=1) if after is None else []
        begin = after if after is not None else last[0].id if last else 0
        return events.follow(
            lambda cursor: self.events(after=cursor, limit=events.AT_ONCE, **about), after=begin,
            every=_FOLLOW_EVERY, stop=stop,
        )  # fmt: skip

    def attended(self) -> Attendance:
        return Onlooker(self.http)

    def close(self) -> None:
        """Close the connections. They are opened again when the client is next used."""
        self.http.close()

    # The tokens that the current token may create, see and revoke

    def create_token(
        self, name: str, *, scope: str = "lease", ttl: str | None = None, user: str | None = None
    ) -> tuple[TokenInfo, str]:
        """Create a token and return it with its secret, which is shown only once.

        The new token has no wider scope than the current token, expires no later, and is revoked together with it.
        """
        made = self.http.send("POST", "tokens", {"name": name, "scope": scope, "ttl": ttl, "user": user})
        return from_json(TokenInfo, made["about"]), str(made["token"])

    def tokens(self, *, user: str | None = None) -> list[TokenInfo]:
        """List tokens, newest first. Operators see the tokens of all users, or only those of `user`."""
        return [from_json(TokenInfo, one) for one in pages(self.http, "tokens", {"user": user}, ALL)]

    def revoke_token(self, id: int) -> TokenInfo:
        """Revoke a token, and all tokens that were created with that token."""
        return from_json(TokenInfo, self.http.send("DELETE", f"tokens/{id}"))
