"""The installation: its workers, its suspension, and what operators can do about work that makes no progress."""

from __future__ import annotations

import datetime as dt
import os
import socket
from dataclasses import asdict, dataclass, field

from django.conf import settings
from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Now

from blueprints import registry
from blueprints.answers import Resolution
from blueprints.models import Blueprint, RememberedError
from drydock.core.errors import Busy, Conflict, InvalidRequest, NotFound
from drydock_client.values import Workers
from leases.engine.core import installation, specs
from leases.engine.core.database import rows
from leases.engine.core.transitions import record_event
from leases.engine.resources import retirement
from leases.engine.upkeep import pools
from leases.messaging import handlers, hints, inline
from leases.models import Installation, Lease, Resource, Run, Stray, Worker
from leases.operations.callers import Caller, operator_only
from leases.reasons import Reason
from leases.reports.cleaning import IS_CLEANED
from leases.validation.input_checks import checked

_AT_MOST = 1000


@dataclass(frozen=True, kw_only=True)
class Held:
    """An action that is postponed until the suspended installation is confirmed."""

    what: str
    """A phase such as `destroy` or `build`, or an action of the sweep: `retire`, `expire`, `clean` or `orphan`."""
    name: str
    message: str


@dataclass(frozen=True, kw_only=True)
class InstallationInfo:
    """The status of the installation. `problem` says why it is suspended, and `held` lists the postponed actions."""

    uuid: str
    epoch: int
    problem: str
    confirmed_at: dt.datetime | None
    confirmed_by: str
    held: list[Held] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class StrayInfo:
    """An orphan: its name, the blueprint whose search found it, and what will be done with it."""

    key: str
    blueprint: str
    first_seen_at: dt.datetime
    seen_at: dt.datetime
    message: str


@dataclass(frozen=True, kw_only=True)
class WorkerInfo:
    """A worker, and how many seconds ago the worker sent its last heartbeat."""

    name: str
    queues: list[str]
    age: float
    lost: bool


def standing(who: Caller) -> InstallationInfo:
    """Return the status of the installation. If it is suspended, this includes all postponed actions."""
    operator_only(who, "see the installation")
    here = installation.current()
    row = Installation.objects.get(pk=1)
    return InstallationInfo(
        uuid=str(row.uuid), epoch=row.epoch, problem=here.problem, confirmed_at=row.confirmed_at,
        confirmed_by=row.confirmed_by, held=_held() if here.problem else [],
    )  # fmt: skip


_LISTED = (
    "SELECT n.phase, r.name, coalesce('for lease ' || n.lease_id || ': ', '') || n.sentence FROM leases_run n"
    " JOIN leases_resource r ON r.id = n.resource_id ORDER BY n.id",
    "SELECT 'expire', 'lease ' || id, 'The lease expired.' FROM leases_lease"
    " WHERE state IN ('pending', 'acquired', 'active') AND until <= statement_timestamp() ORDER BY id",
    "SELECT 'expire', 'lease ' || id, 'No heartbeat came in time.' FROM leases_lease"
    " WHERE state IN ('acquired', 'active') AND heartbeat_at + heartbeat_limit < statement_timestamp() ORDER BY id",
    "SELECT 'release', 'lease ' || id, 'It was asked to end.' FROM leases_lease"
    " WHERE state IN ('pending', 'acquired', 'active') AND release_wanted <> '' ORDER BY id",
    "SELECT 'clean', r.name, 'After lease ' || d.lease_id || '.' FROM leases_debt d JOIN leases_resource r"
    " ON r.id = d.resource_id WHERE NOT EXISTS (SELECT FROM leases_run n WHERE n.resource_id = r.id"
    f" AND {IS_CLEANED}) ORDER BY d.id",
    "SELECT 'orphan', key, message FROM leases_stray ORDER BY id",
)


def _held() -> list[Held]:
    found = [row for sql in _LISTED for row in rows(f"{sql} LIMIT {_AT_MOST}")]
    found += [("retire", f"resource {pk}", message) for pk, message in pools.would_retire()]
    return [Held(what=what, name=name, message=message) for what, name, message in found]


def confirm(who: Caller) -> InstallationInfo:
    """Confirm that this database belongs to the installation. Raises Conflict if the installation is not suspended."""
    operator_only(who, "confirm the installation")
    if not installation.confirm(actor=who.actor):
        raise Conflict("The installation is not suspended.", hint="There is nothing to confirm.")
    return standing(who)


@checked
def suspend(who: Caller, message: str) -> InstallationInfo:
    """Suspend the installation: nothing outside the database is changed until an operator confirms the installation.

    Raises Conflict if the installation is already suspended.
    """
    operator_only(who, "suspend the installation")
    if not installation.suspend(message or f"Suspended by {who.name}.", actor=who.actor):
        raise Conflict("The installation is already suspended.")
    return standing(who)


def strays(who: Caller) -> list[StrayInfo]:
    """Return the objects at providers that have our tags and belong to no resource."""
    operator_only(who, "see orphans")
    return [
        StrayInfo(key=s.key, blueprint=s.blueprint.name, first_seen_at=s.first_seen_at, seen_at=s.seen_at,
                  message=s.message)
        for s in Stray.objects.select_related("blueprint")[:_AT_MOST]
    ]  # fmt: skip


def workers(who: Caller, lost_after: float) -> list[WorkerInfo]:
    """Return all workers that have not shut down. Workers without a heartbeat for `lost_after` seconds are lost."""
    operator_only(who, "see workers")
    found = rows(
        "SELECT name, queues, greatest(0, extract(epoch FROM statement_timestamp() - seen_at))::float8"
        " FROM leases_worker ORDER BY name"
    )
    return [WorkerInfo(name=n, queues=list(q), age=round(age, 1), lost=age > lost_after) for n, q, age in found]


def worker_alive() -> bool:
    """Return whether a worker in another process sent a heartbeat recently.

    A worker of the private engines on this machine counts only if its process is still running.
    """
    return any(_there(name) for name in workers_seen())


def workers_seen() -> list[str]:
    """Return the names (host:process) of the workers that sent a heartbeat recently."""
    found = rows(
        "SELECT name FROM leases_worker WHERE seen_at > clock_timestamp() - %s * interval '1 s'",
        (settings.DRYDOCK.lost_worker_seconds,),
    )
    return [name for (name,) in found]


def workers_alive(who: Caller) -> Workers:
    """Return whether a worker sent a heartbeat recently. Operators also get the names of such workers."""
    names = workers_seen()
    return Workers(alive=bool(names), names=tuple(names) if who.operator else ())


def unattended() -> Q:
    """Return the query condition for leases that wait while no worker and no sweep is running.

    This is assumed if no worker sent a heartbeat and no sweep was completed for some seconds. While the broker is
    unavailable, Celery beat runs the sweeps itself.
    """
    lately = Now() - dt.timedelta(seconds=settings.DRYDOCK.lost_worker_seconds)
    nobody = ~Exists(Worker.objects.filter(seen_at__gt=lately)) & ~Exists(
        Installation.objects.filter(swept_at__gt=lately)
    )
    waits = {"state__in": ("pending", "acquired", "released"), "held": False, "since__lt": Now() - _AT_ONCE}
    return Q(nobody, **waits)


_AT_ONCE = dt.timedelta(seconds=5)
"""How long a missing worker is not reported. A command that waits starts a worker of its own within this time."""


def _there(name: str) -> bool:
    """Return whether the process with this name (host:process) still runs.

    Only private engines can tell. Otherwise the process is assumed to run.
    """
    host, _, process = name.rpartition(":")
    if not settings.DRYDOCK.private_database or host != socket.gethostname() or not process.isdigit():
        return True
    return int(process) != os.getpid() and _lives(int(process))


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def failing_blueprints() -> dict[str, str]:
    """Return a mapping from the name of each failing blueprint to why it cannot work. Checks only enabled blueprints.

    Asks the kinds of the blueprints, which may call providers, but creates nothing.
    """
    found = {}
    for blueprint in Blueprint.objects.filter(enabled=True).order_by("name"):
        if said := _fatal(blueprint):
            found[blueprint.name] = said
    return found


def _fatal(blueprint: Blueprint) -> str:
    try:
        problems = registry.kind(blueprint.kind).check_blueprint(specs.blueprint_view(blueprint, secrets=True))
    except Exception as error:  # any exception concerns only this blueprint
        return f"{type(error).__name__}: {error}"
    return "; ".join(problem.message for problem in problems if problem.fatal)


def failing_resources() -> list[str]:
    """Return the names of the resources that failed their last check."""
    return list(
        Resource.objects.filter(check_failures__gt=0, gone_at=None).order_by("name").values_list("name", flat=True)
    )


@checked
def reclaim(who: Caller, *, type_: str = "", blueprint: str = "", limit: int = 100) -> list[int]:
    """Remove idle resources, which no lease holds. Return the ids of the removed resources.

    Starts with resources that need leases on other resources, because removing these frees the others too.
    """
    operator_only(who, "reclaim resources")
    held = Lease.objects.filter(for_resource=OuterRef("pk"), state__in=("pending", "acquired", "active"))
    found = Resource.objects.filter(
        state="active", used_slots=0, origin=Resource.Origin.BUILT, quarantined=False, in_maintenance=False,
        reserved_for=None,
    )  # fmt: skip
    chosen = {"type": type_, "blueprint__name": blueprint}
    found = found.filter(**{column: value for column, value in chosen.items() if value})
    ids = (
        found.annotate(holds_others=Exists(held))
        .order_by("-holds_others", "idle_since")
        .values_list("id", flat=True)[:limit]
    )
    return [pk for pk in ids if _give_up(pk, who.actor)]


def _give_up(resource_id: int, actor: str) -> bool:
    return retirement.retire_idle(resource_id, reason=Reason.RECLAIMED, message="Reclaimed.", actor=actor)


def sweep_now(who: Caller, *, here: bool | None = None) -> int:
    """Run every periodic check once. Return the number of items that were due or handled.

    If `here` is true, this process also carries out the work that the checks find. The default is true if no worker is
    alive, and false otherwise.
    """
    operator_only(who, "sweep")
    if here or (here is None and not worker_alive()):
        return inline.settle(tolerated=(Conflict, Busy))
    return handlers.sweep()


@checked
def clear_errors(who: Caller, *, blueprint: str = "", error_id: int | None = None) -> int:
    """Delete remembered errors, so that excluded offers are tried again at once. Return the number deleted."""
    operator_only(who, "clear remembered errors")
    found = RememberedError.objects.select_related("blueprint")
    chosen = {"blueprint__name": blueprint or None, "pk": error_id}
    gone = list(found.filter(**{column: value for column, value in chosen.items() if value is not None}))
    RememberedError.objects.filter(pk__in=[row.pk for row in gone]).delete()
    for row in gone:
        record_event("blueprint.error_cleared", row.message, actor=who.actor, blueprint_id=row.blueprint_id)
    for resource_type in sorted({row.blueprint.resource_type for row in gone}):
        hints.after_commit("serve", resource_type)
    return len(gone)


@checked
def resolve(
    who: Caller, *, lease_id: int | None = None, resource_id: int | None = None, yes: bool = True, message: str = "",
) -> None:  # fmt: skip
    """Record an operator's answer to a step that waits for a person. The step is then called again with this answer.

    `yes` means that the task has been done, or answers the question with yes.

    Raises InvalidRequest, NotFound, Conflict.
    """
    operator_only(who, "resolve holds")
    if (lease_id is None) == (resource_id is None):
        raise InvalidRequest("Give either a lease or a resource.", field="lease")
    column, pk = ("lease_id", lease_id) if lease_id is not None else ("resource_id", resource_id)
    waits = Run.objects.filter(**{column: pk}, **({} if lease_id is not None else {"lease": None}))
    found = list(waits.filter(waits_for="operator").values_list("id", "sentence"))
    answer = Resolution(yes=yes, text=message, actor=who.actor)
    due = {"waits_for": "", "hold_who": "", "due_at": Now(), "step_since": None, "resolution": asdict(answer)}
    if not found or not waits.filter(waits_for="operator").update(**due):
        error = Conflict if waits.exists() else NotFound
        raise error(f"{column.removesuffix('_id').capitalize()} {pk} is not waiting for an operator.")
    run_id, sentence = found[0]
    said = f"Answered {'yes' if yes else 'no'}{f' ({message})' if message else ''}: {sentence}"
    record_event("step.resolved", said, actor=who.actor, details={"yes": yes, "text": message}, **{column: pk})
    hints.after_commit("step", run_id)
