"""Operations on erasure records: list them, as operators and as the owners of the leases before."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.db.models import Q, QuerySet

from drydock.core.errors import InvalidRequest
from drydock_client.values import ErasureInfo
from leases.models import ErasureRecord
from leases.operations.callers import Caller
from leases.validation.input_checks import checked

MOST = 1000
"""The maximum number of records in one result."""
_SAME = (
    "id", "recorded_at", "resource_name", "blueprint", "kind", "lease_name", "owner", "disk", "serial", "wwn", "model",
    "size_bytes", "method", "bytes", "started_at", "ended_at", "verified", "problem", "phase", "act", "step",
    "requested_by",
)  # fmt: skip


def visible(who: Caller) -> QuerySet[ErasureRecord]:
    """Return the records that the caller may see: all for operators, and those after their leases for owners."""
    return ErasureRecord.objects.all() if who.operator else ErasureRecord.objects.filter(owner_id=who.id)


@checked
def erasures(
    who: Caller, *, resource: int | None = None, name: str = "", lease: int | None = None, serial: str = "",
    since: dt.datetime | None = None, verified: bool | None = None, after: int = 0, limit: int = 200,
) -> list[ErasureInfo]:  # fmt: skip
    """Return erasure records in the order of their ids, starting after id `after`.

    `name` is that of the machine at the time, and `serial` the serial number or the WWN of a disk. `since` compares
    with the time at which a record was written.
    Raises InvalidRequest.
    """
    if not 1 <= limit <= MOST:
        raise InvalidRequest(f"The limit must be from 1 to {MOST}.", field="limit")
    if since is not None and since.tzinfo is None:
        raise InvalidRequest("since needs a time zone.", field="since")
    chosen: dict[str, Any] = {
        "resource_id": resource, "resource_name": name or None, "lease_id": lease, "recorded_at__gte": since,
        "verified": verified,
    }  # fmt: skip
    found = visible(who).filter(id__gt=after, **{column: one for column, one in chosen.items() if one is not None})
    if serial:
        found = found.filter(Q(serial=serial) | Q(wwn=serial) & ~Q(wwn=""))
    return [info(row) for row in found.order_by("id")[:limit]]


def info(row: ErasureRecord) -> ErasureInfo:
    """Return a record as a frozen value."""
    same = {name: getattr(row, name) for name in _SAME}
    return ErasureInfo(resource=row.resource_id, lease=row.lease_id, identities=tuple(row.identities), **same)
