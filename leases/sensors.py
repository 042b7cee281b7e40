"""Operations on what the sensors of resources measured: read it, as operators and as the holders of whole resources."""

from __future__ import annotations

import datetime as dt

from django.db.models import QuerySet

from drydock.core.errors import InvalidRequest, NotAllowed, NotFound
from drydock_client.values import SensorReadingInfo, SensorReportInfo
from leases.engine.actions.acts import holding_lease
from leases.models import Lease, Resource, SensorReport
from leases.operations import resources
from leases.operations.callers import Caller
from leases.validation.input_checks import checked

MOST = 1000
"""The maximum number of reports in one result."""


@checked
def sensors(
    who: Caller, resource_id: int, *, since: dt.datetime | None = None, after: int = 0, limit: int = 200
) -> list[SensorReportInfo]:
    """Return reports of the sensors of a resource in the order of their ids: the newest one, or all from `since` on.

    Owners get those that were read since their lease on the whole resource began, because earlier ones say how others
    used it. `after` continues after the report with this id.
    Raises InvalidRequest, NotFound, and NotAllowed if the caller holds only a part of the resource.
    """
    if not 1 <= limit <= MOST:
        raise InvalidRequest(f"The limit must be from 1 to {MOST}.", field="limit")
    if since is not None and since.tzinfo is None:
        raise InvalidRequest("since needs a time zone.", field="since")
    found = _visible(who, resource_id)
    if since is None and not after:
        return [info(row) for row in found.order_by("-id")[:1]]
    if since is not None:
        found = found.filter(at__gte=since)
    return [info(row) for row in found.filter(id__gt=after).order_by("id")[:limit]]


def _visible(who: Caller, resource_id: int) -> QuerySet[SensorReport]:
    """Return the reports of a resource that the caller may see."""
    found = SensorReport.objects.filter(resource=resource_id)
    lease_id = None if who.operator else holding_lease(resource_id, who.id)
    if lease_id is not None:
        began = Lease.objects.values_list("acquired_at", flat=True).get(pk=lease_id)
        return found.filter(at__gte=began) if began is not None else found.none()
    there = Resource.objects.all() if who.operator else resources.visible(who)
    if not there.filter(pk=resource_id).exists():
        raise NotFound(f"Resource {resource_id} does not exist, or you have no lease on it.", field="resource")
    if not who.operator:
        raise NotAllowed(
            f"The sensors of resource {resource_id} are shown only to the holder of an active lease on all of it.",
            hint="Request a whole resource (--exclusive), or ask an operator.",
        )
    return found


def info(row: SensorReport) -> SensorReportInfo:
    """Return a report as a frozen value."""
    readings = tuple(
        SensorReadingInfo(name=name, value=value, unit=unit, state=state) for name, value, unit, state in row.readings
    )
    return SensorReportInfo(id=row.pk, at=row.at, power_watts=row.power_watts, readings=readings)
