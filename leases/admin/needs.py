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
from leases.admin.figures import Figure, counted, listed
from leases.models import Authorization, Installation, Lease, Run, Stray, Worker
from leases.operations import attention
from leases.states import ResourceState

_NEEDS: tuple[tuple[str, Callable[[], QuerySet[Any]], Callable[[], str]], ...] = (
    ("suspended installation: nothing outside is touched until an operator confirms",
     lambda: Installation.objects.exclude(problem=""), lambda: listed("installation")),
    ("steps that wait for a person", lambda: Run.objects.filter(attention.HELD_STEP),
     lambda: listed("run", waits_for__exact="operator")),
    ("leases past their end", lambda: Lease.objects.filter(attention.OVERDUE),
     lambda: listed("lease", attention="overdue")),
    ("leases that wait long", lambda: Lease.objects.filter(attention.stuck()),
     lambda: listed("lease", attention="waits long")),
    ("leases held for debugging", lambda: Lease.objects.filter(attention.HELD),
     lambda: listed("lease", attention="held")),
    ("requests for authorization", lambda: Authorization.objects.filter(attention.ASKED),
     lambda: listed("authorization", state__exact="requested")),
    ("readings of accounts that fail", lambda: Reading.objects.filter(attention.FAILING),
     lambda: f"{reverse('admin:blueprints_reading_changelist')}?{urlencode({'attention': 'failing'})}"),
    ("orphans of which somebody must decide", lambda: Stray.objects.filter(attention.undecided()),
     lambda: listed("stray")),
    ("remembered errors", lambda: RememberedError.objects.filter(attention.REMEMBERED),
     lambda: f"{reverse('admin:blueprints_rememberederror_changelist')}?{urlencode({'standing': 'still remembered'})}"),
)  # fmt: skip


def of(there: list[tuple[Any, ...]], workers: list[Worker]) -> list[Figure]:
    """What a person should look at; nothing else is listed."""
    broken = sum(row[5] for row in there if row[4] == ResourceState.BROKEN)
    quarantined, sick = (sum(row[at] or 0 for row in there) for at in (6, 7))
    others = counted([rows_of() for _, rows_of, _ in _NEEDS])
    found = [
        Figure(of="broken resources that are not gone", number=broken,
               address=listed("resource", attention="broken and not gone")),
        Figure(of="quarantined resources", number=quarantined, address=listed("resource", attention="quarantined")),
        Figure(of="resources that fail their checks", number=sick,
               address=listed("resource", attention="failing checks")),
        *(Figure(of=words, number=n, address=at()) for (words, _, at), n in zip(_NEEDS, others, strict=True)),
    ]  # fmt: skip
    nobody = Figure(
        of="No worker was seen lately: nothing is built, cleaned or ended",
        address=reverse("admin:leases_worker_changelist"),
    )
    return [*([] if any(map(lives, workers)) else [nobody]), *(one for one in found if one.number)]


def lives(worker: Worker) -> bool:
    """Whether it was seen lately."""
    return (clock.now() - worker.seen_at).total_seconds() <= float(settings.DRYDOCK.lost_worker_seconds)
