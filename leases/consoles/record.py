"""The record of a console: the newest part of what its machine printed, in rows that are few and bounded."""

from __future__ import annotations

import uuid

from leases.engine.core.database import short
from leases.models import Console, ConsoleInput, ConsoleOutput

KEPT = 256 << 10
"""Bytes of a record that are kept, at least; the oldest are deleted."""
_ROW = 4 << 10
"""Bytes up to which a row grows, so that a record of single keystrokes does not have a row for each."""


class TokenLost(Exception):
    """Another process holds the line now."""


class Record:
    """Appends to the record of one console, for the process that holds its token."""

    def __init__(self, lease_id: int, token: uuid.UUID, size: int) -> None:
        self._lease_id, self._token, self._size = lease_id, token, size
        self._row, self._start, self._content = 0, 0, b""

    def append(self, content: bytes) -> None:
        """Append bytes without secrets. Raises TokenLost."""
        if not content:
            return
        joined = self._content + content
        grows = bool(self._row) and len(joined) <= _ROW
        if grows:
            start, whole, row = self._start, joined, self._row
        else:
            start, whole, row = self._size, content, 0
        end = self._size + len(content)
        self._row = _store(self._lease_id, self._token, row, start, end, whole)
        self._start, self._content, self._size = start, whole, end


@short
def _store(lease_id: int, token: uuid.UUID, row: int, start: int, end: int, whole: bytes) -> int:
    """Write a row, or enlarge the one with the id `row`, and delete the oldest. Return the id of the row."""
    if not Console.objects.filter(pk=lease_id, token=token).update(size=end):
        raise TokenLost
    if row:
        ConsoleOutput.objects.filter(pk=row).update(end=end, content=whole)
        return row
    ConsoleOutput.objects.filter(lease_id=lease_id, end__lte=end - KEPT).delete()
    return ConsoleOutput.objects.create(lease_id=lease_id, start=start, end=end, content=whole).pk


def part(lease_id: int, offset: int, limit: int) -> tuple[int, bytes]:
    """Return the part of a record that begins at an offset, at most `limit` bytes, and the offset at which it begins.

    It begins later than at `offset` if those bytes are no longer kept. It is empty only if there is nothing more.
    """
    found, begins = bytearray(), offset
    rows = ConsoleOutput.objects.filter(lease_id=lease_id, end__gt=offset).order_by("start")
    for row in rows[: limit // _ROW + 2]:
        if not found:
            begins = max(offset, row.start)
        found += bytes(row.content)[max(0, begins + len(found) - row.start) :]
        if len(found) >= limit:
            break
    return begins, bytes(found[:limit])


def newest(lease_id: int, most: int) -> bytes:
    """Return the last bytes of a record."""
    size = Console.objects.filter(pk=lease_id).values_list("size", flat=True).first() or 0
    found, offset = bytearray(), max(0, size - most)
    while offset < size:
        begins, content = part(lease_id, offset, most)
        if not content:
            break
        found += content
        offset = begins + len(content)
    return bytes(found[-most:])


def erase(lease_id: int) -> None:
    """Delete the record of a lease that has ended, and what was typed and not sent."""
    ConsoleOutput.objects.filter(lease_id=lease_id).delete()
    ConsoleInput.objects.filter(lease_id=lease_id).delete()
