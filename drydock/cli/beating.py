"""Heartbeats beside a command, for leases that expect them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leases.client import Client, LeaseInfo

_SHARE = 0.3
"""The part of the shortest limit after which the next heartbeat is sent."""


class Heart:
    """Sends heartbeats from a thread of its own until the `with` ends."""

    def __init__(self, client: Client, infos: Sequence[LeaseInfo]) -> None:
        limits = {info.id: info.heartbeat_limit.total_seconds() for info in infos if info.heartbeat_limit}
        self._client, self._ids = client, list(limits)
        self.limit = min(limits.values(), default=0.0)
        """Seconds without a heartbeat after which the first of them ends; 0: none does."""
        self._every = self.limit * _SHARE
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Heart:
        if self._ids:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._ids:
            self._thread.join(5)

    def _beat(self) -> None:
        while not self._stop.wait(self._every):
            for pk in self._ids:
                try:
                    self._client.heartbeat(pk)
                except Exception:  # noqa: S112 - the lease's own state tells, and the next may arrive
                    continue
        self._client.close()
