"""Files of a lease in memory, for tests: the real interface over a fake transport."""

from __future__ import annotations

from interfaces.contract import StillMine
from interfaces.fake import FakeTransport
from interfaces.filesystem.contract import UsageCheck
from interfaces.filesystem.rooted import RootedFilesystem
from interfaces.transport import Transport


def _always() -> None:
    """Let every operation continue, as for a lease that never ends."""


class FakeFilesystem(RootedFilesystem):
    """Files in memory, confined, checked and counted like real files. `FakeFilesystem()` is ready to use."""

    def __init__(
        self,
        transport: Transport | None = None,
        *,
        still_mine: StillMine = _always,
        root: str = "",
        usage_check: UsageCheck | None = None,
    ) -> None:
        super().__init__(transport or FakeTransport(), still_mine=still_mine, root=root, usage_check=usage_check)
