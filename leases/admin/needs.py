"""What needs attention on the overview: each sort with its number and the rows it means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.db.models import QuerySet
from django.urls import reverse
from django.utils.http import urlencode

from blueprints.models import Reading, RememberedError
from drydock.core import clock
from leases.admin import cells
from leases.admin.figures import Figure, counted, listed
from leases.engine.core import installation
from leases.models import Authorization, Failure, Lease, Resource, Run, Stray, Worker
from leases.operations import attention
from leases.reports import condition
from leases.states import ResourceState

_NEEDS: tuple[tuple[tuple[str, str], Callable[[], QuerySet[Any]], Callable[[], str]], ...] = (
    (("step needs a person", "steps need a person"), lambda: Run.objects.filter(attention.HELD_STEP),
     lambda: listed("run", waits_for__exact="operator")),
    (("machine cannot be destroyed and still costs", "machines cannot be destroyed and still cost"),
     lambda: Failure.objects.filter(attention.UNDESTROYED),
     lambda: listed("failure", act__exact="destroy")),
    (("resource keeps files of ended leases", "resources keep files of ended leases"),
     lambda: Resource.objects.filter(attention.PUT_ASIDE), lambda: listed("resource", attention="put aside")),
    (("act on a machine failed", "acts on machines failed"), lambda: Failure.objects.filter(attention.FAILED_ACT),
     lambda: listed("failure")),
    (("lease is past its end", "leases are past their end"), lambda: Lease.objects.filter(attention.OVERDUE),
     lambda: listed("lease", attention="overdue")),
    (("lease has waited long", "leases have waited long"), lambda: Lease.objects.filter(attention.stuck()),
     lambda: listed("lease", attention="waits long")),
    (("lease is held for debugging", "leases are held for debugging"), lambda: Lease.objects.filter(attention.HELD),
     lambda: listed("lease", attention="held")),
    (("resource does not answer", "resources do not answer"), lambda: Resource.objects.filter(attention.UNREACHABLE),
     lambda: listed("resource", attention="unreachable")),
    (("request for authorization", "requests for authorization"), lambda: Authorization.objects.filter(attention.ASKED),
     lambda: listed("authorization", state__exact="requested")),
    (("account poll fails", "account polls fail"), lambda: Reading.objects.filter(attention.FAILING),
     lambda: f"{reverse('admin:blueprints_reading_changelist')}?{urlencode({'attention': 'failing'})}"),
    (("orphan needs a decision", "orphans need a decision"), lambda: Stray.objects.filter(attention.undecided()),
     lambda: listed("stray")),
    (("remembered error", "remembered errors"), lambda: RememberedError.objects.filter(attention.REMEMBERED),
     lambda: f"{reverse('admin:blueprints_rememberederror_changelist')}?{urlencode({'standing': 'still remembered'})}"),
)  # fmt: skip


def of(there: list[tuple[Any, ...]]) -> list[Figure]:
    """What a person should look at, the installation itself first; nothing else is listed."""
    broken = sum(row[5] for row in there if row[4] == ResourceState.BROKEN)
    quarantined, sick = (sum(row[at] or 0 for row in there) for at in (6, 7))
    others = counted([rows_of() for _, rows_of, _ in _NEEDS])
    found = [
        Figure(of=_counting(broken, "broken resource still exists", "broken resources still exist"), number=broken,
               address=listed("resource", attention="broken and not gone")),
        Figure(of=_counting(quarantined, "quarantined resource", "quarantined resources"), number=quarantined,
               address=listed("resource", attention="quarantined")),
        Figure(of=_counting(sick, "resource fails its checks", "resources fail their checks"), number=sick,
               address=listed("resource", attention="failing checks")),
        *(Figure(of=_counting(number, *words), number=number, address=at())
          for (words, _, at), number in zip(_NEEDS, others, strict=True)),
    ]  # fmt: skip
    own = [
        Figure(of=one.message, address=_AT[one.what](), said="" if one.since is None else cells.moment(one.since))
        for one in condition.troubles(installation.problem())
    ]
    return [*own, *(one for one in found if one.number)]


def _counting(number: int, one: str, many: str) -> str:
    return one if number == 1 else many


_AT: dict[str, Callable[[], str]] = {
    "suspended": lambda: listed("installation"),
    "no_worker": lambda: reverse("admin:leases_worker_changelist"),
    "sweep_late": lambda: listed("installation"),
    "broker_away": lambda: reverse("admin:leases_worker_changelist"),
    "disk_full": lambda: listed("installation"),
    "disk_nearly_full": lambda: listed("installation"),
}
"""Where the console tells more about trouble of the installation itself."""


def lives(worker: Worker) -> bool:
    """Whether it was seen lately."""
    return (clock.now() - worker.seen_at).total_seconds() <= float(settings.DRYDOCK.lost_worker_seconds)
