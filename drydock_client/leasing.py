"""Asking for leases and holding them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from drydock_client.values import Explanation, LeaseEnd, LeaseInfo

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

    def named(self, name: str) -> int:
        """The id of a lease by its name: the caller's own live one, else the newest that has ended; for operators
        also that of another owner. Raises NotFound, Conflict."""

    def leases(
        self, *, states: Collection[str] | None = None, type: str = "", label: str = "", name: str = "",
        resource: int | None = None, group: int | None = None, held: bool = False, limit: int = 200,
    ) -> list[LeaseInfo]:  # fmt: skip
        """Leases, newest first; without `states` those that are not over."""

    def wait(self, id: int, *, until: str = "active", timeout: float | None = None) -> LeaseInfo:
        """Wait until it is `active`, has `ended`, or is in a state. Raises LeaseFailed, TimedOut."""

    def wait_until_ended(self, id: int, *, timeout: float | None = None) -> LeaseEnd:
        """Wait until it is over. Returns how it ended, with the exit code of its workload and what it has cost."""

    async def await_until_ended(self, id: int, *, timeout: float | None = None) -> LeaseEnd:
        """The same for async code."""

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
