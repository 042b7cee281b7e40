"""Limits on the duration of a lease, which the installation, quotas and blueprints set.

The shortest limit applies. The limits of quotas and of the installation are known when a lease is requested. A
blueprint's limit is known at that time only if the request names blueprints, so all limits are applied again when the
lease becomes active.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from django.conf import settings
from django.contrib.auth import get_user_model

from drydock.core.units import written
from leases.engine.core.database import rows, run
from leases.engine.core.transitions import record_event
from leases.models import Lease


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A maximum or default duration of an active lease, and where it is set."""

    span: dt.timedelta
    source: str
    """The source of the limit, as the end of a sentence, such as `the limit of the blueprint lab`."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The default and the maximum durations that quotas or blueprints set."""

    defaults: tuple[Limit, ...] = ()
    maxima: tuple[Limit, ...] = ()


def shortest(found: Iterable[Limit | None]) -> Limit | None:
    """Return the limit with the shortest duration, or None if there is no limit."""
    return min((one for one in found if one is not None), key=lambda one: one.span, default=None)


def of_installation() -> Limit | None:
    """Return the maximum duration from the settings, or None if none is set."""
    hours = settings.DRYDOCK.lease_hours_limit
    source = "the limit of this installation (DRYDOCK_LEASE_HOURS_LIMIT)"
    return Limit(span=dt.timedelta(hours=hours), source=source) if hours else None


def default_of_installation() -> Limit | None:
    """Return the default duration from the settings, or None if none is set."""
    hours = settings.DRYDOCK.lease_hours
    source = "the default of this installation (DRYDOCK_LEASE_HOURS)"
    return Limit(span=dt.timedelta(hours=hours), source=source) if hours else None


_OF_QUOTAS = """
    SELECT u.username, 'user', q.default_ttl, q.max_ttl FROM leases_quota q JOIN {users} u ON u.id = q.user_id
    WHERE q.user_id = %s
    UNION ALL
    SELECT g.name, 'group', q.default_ttl, q.max_ttl FROM leases_quota q JOIN auth_group g ON g.id = q.group_id
    WHERE g.{by} = %s"""


def of_quotas(owner_id: int | None, group: int | str | None) -> Limits:
    """Return the default and maximum durations that quotas set for an owner and a charged group.

    The group is given by id or name.
    """
    by = "name" if isinstance(group, str) else "id"
    found = rows(_OF_QUOTAS.format(users=get_user_model()._meta.db_table, by=by), (owner_id, group), hot=True)
    return _limits((f"the quota of the {sort} {name}", usual, longest) for name, sort, usual, longest in found)


def of_blueprints(chosen: Collection[str] | Collection[int]) -> Limit | None:
    """Return the maximum duration of a lease on any of these blueprints, given by name or id.

    This is the longest of the blueprints' limits, or None if one of the blueprints has no limit.
    """
    by = "name" if all(isinstance(one, str) for one in chosen) else "id"
    found = rows(
        f"SELECT name, max_ttl FROM blueprints_blueprint WHERE {by} = ANY(%s) AND removed_at IS NULL",
        (list(chosen),),
    )
    limits = [Limit(span=span, source=_of_blueprint("limit", name)) for name, span in found if span is not None]
    return max(limits, key=lambda one: one.span) if limits and len(limits) == len(found) else None


def of_lease(lease: Lease) -> Limit | None:
    """Return the limit on the duration of a lease with the shortest duration, or None if the duration is not limited.

    Takes the blueprint's limit from the blueprint of the lease's resource or, if the lease has no resource yet, from
    the blueprints that it names.
    """
    resource, named = lease.resource, lease.allowed_blueprints
    on = [resource.blueprint_id] if resource is not None else named or ()
    return shortest(
        (
            of_installation(),
            *of_quotas(lease.owner_id, lease.charged_group_id).maxima,
            of_blueprints(on) if on else None,
        )
    )


_ACTIVE = """
    SELECT l.active_at, l.until, l.limited, l.ttl_defaulted, l.owner_id, l.charged_group_id,
        b.name, b.default_ttl, b.max_ttl
    FROM leases_lease l JOIN leases_resource r ON r.id = l.resource_id JOIN blueprints_blueprint b ON b.id = r.blueprint_id
    WHERE l.id = %s"""


def shorten(lease_id: int) -> None:
    """Apply all limits on the duration to a lease that has just become active.

    If the owner asked for more than a limit allows, sets a message on the lease. Call this with the lease locked.
    """
    active_at, until, limited, defaulted, owner, group, name, usual, longest = rows(_ACTIVE, (lease_id,))[0]
    of_blueprint = _limits(
        [((_of_blueprint("default", name), usual, None)), (_of_blueprint("limit", name), None, longest)]
    )
    maxima = (of_installation(), *of_quotas(owner, group).maxima, *of_blueprint.maxima) if limited else ()
    limit = shortest((*maxima, *(of_blueprint.defaults if defaulted else ())))
    if limit is None or (until is not None and until <= active_at + limit.span):
        return
    run("UPDATE leases_lease SET until = %s WHERE id = %s", (active_at + limit.span, lease_id))
    if until is not None and not defaulted:
        asked = written(dt.timedelta(seconds=round((until - active_at).total_seconds())))
        message = f"The lease lasts {written(limit.span)} instead of {asked}, because of {limit.source}."
        run("UPDATE leases_lease SET message = %s WHERE id = %s", (message, lease_id))
        record_event("lease.shortened", message, lease_id=lease_id)


def _of_blueprint(what: str, name: str) -> str:
    return f"the {what} of the blueprint {name}"


def _limits(found: Iterable[tuple[str, dt.timedelta | None, dt.timedelta | None]]) -> Limits:
    said = list(found)
    return Limits(
        defaults=tuple(Limit(span=usual, source=source) for source, usual, _ in said if usual is not None),
        maxima=tuple(Limit(span=longest, source=source) for source, _, longest in said if longest is not None),
    )
