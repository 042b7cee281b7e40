"""The disk usage of a folder on a host, and a check of whether more may be written to it."""

from __future__ import annotations

from drydock.core import clock
from interfaces.command.contract import Command
from interfaces.errors import QuotaExceeded

MIB = 1 << 20
USED = 'du -skx -- "$1" 2>/dev/null | { read -r kib _ && echo "$kib"; }'
"""$1 a folder. Prints the disk usage below it in KiB."""
_FRESH = 5.0


def used_kib(command: Command, folder: str, seconds: float = 30.0) -> int:
    """Return the KiB on disk below the folder, as far as the account can read it."""
    return int(command.check(["/bin/sh", "-c", USED, "sh", folder], timeout=seconds).text or 0)


class Allowance:
    """A check that is called before every part of a write, and raises QuotaExceeded.

    The folder is measured again every few seconds, and whenever the data written since then could have used up the
    remaining space.
    """

    def __init__(self, command: Command, folder: str, limit_mib: int) -> None:
        self._command, self._folder = command, folder
        self._limit_mib = limit_mib
        self._used = 0
        self._measured: float | None = None

    def __call__(self, size: int) -> None:
        """Add `size` bytes that are about to be written. Raises QuotaExceeded if they do not fit."""
        if not self._fresh() or self._used + size > self._limit_mib * MIB:
            self._used = used_kib(self._command, self._folder) << 10
            self._measured = clock.monotonic()
        self._used += size
        if self._used > self._limit_mib * MIB:
            raise QuotaExceeded(f"The write would exceed the lease's limit of {self._limit_mib} MiB.")

    def _fresh(self) -> bool:
        return self._measured is not None and clock.monotonic() - self._measured < _FRESH
