"""Whether this installation may touch anything outside, what it would do, and confirming it."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field

from drydock.core.errors import Conflict
from leases.engine.core import installation
from leases.engine.core.database import rows
from leases.engine.upkeep import pools
from leases.given import checked
from leases.models import Installation, Stray
from leases.operations.callers import Caller, operator_only

_AT_MOST = 1000


@dataclass(frozen=True, kw_only=True)
class Held:
    """One thing that is not done while the installation is suspended."""

    what: str
    """`destroy`, `build`, `activate`, ... for a plan; `retire`, `expire`, `orphan` for what a sweep would begin."""
    name: str
    message: str


@dataclass(frozen=True, kw_only=True)
class InstallationInfo:
    """The installation. `problem` says why it is suspended; `held` lists what is not done for that reason."""

    uuid: str
    epoch: int
    problem: str
    confirmed_at: dt.datetime | None
    confirmed_by: str
    held: list[Held] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class StrayInfo:
    """An orphan: what it is called, through which blueprint it was seen, and what becomes of it."""

    key: str
    blueprint: str
    first_seen_at: dt.datetime
    seen_at: dt.datetime
    message: str


@dataclass(frozen=True, kw_only=True)
class WorkerInfo:
    """A worker, and how long ago (seconds) it was last seen."""

    name: str
    queues: list[str]
    age: float
    lost: bool


def standing(who: Caller) -> InstallationInfo:
    """How it stands. While it is suspended, everything that it would do is listed and none of it is done."""
    operator_only(who, "look at the installation")
    here = installation.current()
    row = Installation.objects.get(pk=1)
    return InstallationInfo(
        uuid=str(row.uuid), epoch=row.epoch, problem=here.problem, confirmed_at=row.confirmed_at,
        confirmed_by=row.confirmed_by, held=_held() if here.problem else [],
    )  # fmt: skip


_LISTED = (
    "SELECT n.phase, r.name, coalesce('for lease ' || n.lease_id || ': ', '') || n.sentence FROM leases_run n"
    " JOIN leases_resource r ON r.id = n.resource_id ORDER BY n.id",
    "SELECT 'expire', 'lease ' || id, 'Its time is over.' FROM leases_lease"
    " WHERE state IN ('pending', 'acquired', 'active') AND until <= statement_timestamp() ORDER BY id",
    "SELECT 'expire', 'lease ' || id, 'No heartbeat came in time.' FROM leases_lease"
    " WHERE state IN ('acquired', 'active') AND heartbeat_at + heartbeat_limit < statement_timestamp() ORDER BY id",
    "SELECT 'release', 'lease ' || id, 'It was asked to end.' FROM leases_lease"
    " WHERE state IN ('pending', 'acquired', 'active') AND release_wanted <> '' ORDER BY id",
    "SELECT 'orphan', key, message FROM leases_stray ORDER BY id",
)


def _held() -> list[Held]:
    found = [row for sql in _LISTED for row in rows(f"{sql} LIMIT {_AT_MOST}")]
    found += [("retire", f"resource {pk}", message) for pk, message in pools.would_retire()]
    return [Held(what=what, name=name, message=message) for what, name, message in found]


def confirm(who: Caller) -> InstallationInfo:
    """Go on from this database, which alone speaks for the installation from now on. Raises Conflict when nothing is
    to be confirmed."""
    operator_only(who, "confirm the installation")
    if not installation.confirm(actor=who.actor):
        raise Conflict("The installation is not suspended.", hint="Nothing is to be confirmed.")
    return standing(who)


@checked
def suspend(who: Caller, message: str) -> InstallationInfo:
    """Touch nothing outside until somebody confirms. Raises Conflict when it is suspended already."""
    operator_only(who, "suspend the installation")
    if not installation.suspend(message or f"Suspended by {who.name}.", actor=who.actor):
        raise Conflict("The installation is suspended already.")
    return standing(who)


def strays(who: Caller) -> list[StrayInfo]:
    """What stands at providers under our name without a row."""
    operator_only(who, "look at orphans")
    return [
        StrayInfo(key=s.key, blueprint=s.blueprint.name, first_seen_at=s.first_seen_at, seen_at=s.seen_at,
                  message=s.message)
        for s in Stray.objects.select_related("blueprint")[:_AT_MOST]
    ]  # fmt: skip


def workers(who: Caller, lost_after: float) -> list[WorkerInfo]:
    """Every worker that has not said good-bye; those not seen for `lost_after` seconds count as lost."""
    operator_only(who, "look at workers")
    found = rows(
        "SELECT name, queues, greatest(0, extract(epoch FROM statement_timestamp() - seen_at))::float8"
        " FROM leases_worker ORDER BY name"
    )
    return [WorkerInfo(name=n, queues=list(q), age=round(age, 1), lost=age > lost_after) for n, q, age in found]
