"""Asking for leases and holding them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from drydock_client.values import Explanation, LeaseInfo

Request = Mapping[str, Any]
"""The fields of `leases.requests.LeaseRequest`."""


class Leases(Protocol):
    """Asking for leases and holding them."""

    def request(self, request: Request) -> LeaseInfo:
        """Ask for one lease; granted at once where there is room."""

    def request_group(
        self, requests: Sequence[Request], *, same: str = "", different: str = "", key: str | None = None
    ) -> list[LeaseInfo]:
        """Ask for several, granted all together or not at all."""

    def explain(self, request: Request) -> Explanation:
        """What would come of a request now. Nothing is written."""

    def lease(self, id: int) -> LeaseInfo:
        """One lease. Raises NotFound."""

    def leases(
        self, *, states: Collection[str] | None = None, type: str = "", label: str = "", name: str = "",
        resource: int | None = None, group: int | None = None, held: bool = False, limit: int = 200,
    ) -> list[LeaseInfo]:  # fmt: skip
        """Leases, newest first; without `states` those that are not over."""

    def release(self, id: int, *, message: str = "") -> LeaseInfo:
        """End a lease, or cancel one that waits."""

    def extend(self, id: int, *, ttl: str | None = None, until: dt.datetime | None = None) -> LeaseInfo:
        """Let it last until then, or `ttl` from now."""

    def heartbeat(self, id: int) -> None:
        """Say that the owner lives."""

    def hold(self, id: int, *, ttl: str | None = None, reason: str = "") -> LeaseInfo:
        """Keep its resource as it is after its end, for debugging."""

    def unhold(self, id: int) -> LeaseInfo:
        """End the hold."""

    def retry(self, id: int) -> LeaseInfo:
        """Try again now what waits for its next try."""

    def private_key(self, id: int) -> str:
        """The private half of its generated key pair; its owner alone, and recorded."""
