"""The state of an instance in the terms that all clouds share, as an SQL CASE over its lease and its machine.

An instance is terminated only when its machine is confirmed to no longer exist. Until then it is listed with its cost.
"""

from __future__ import annotations

from typing import Any

from django.db.models import Case, CharField, Exists, OuterRef, Q, QuerySet, Value, When

from leases.models import Lease, Resource
from leases.states import UNFINISHED

PENDING, RUNNING, STOPPING, STOPPED = "pending", "running", "stopping", "stopped"
TERMINATING, RELEASED = "terminating", "released"
TERMINATED, REASSIGNED, FAILED = "terminated", "reassigned", "failed"
STATES = (PENDING, RUNNING, STOPPING, STOPPED, TERMINATING, RELEASED, TERMINATED, REASSIGNED, FAILED)
OVER = (TERMINATED, REASSIGNED, FAILED)
"""States in which an instance costs nothing any more."""

_LATER = Lease.objects.filter(resource=OuterRef("resource"), acquired_at__gt=OuterRef("acquired_at"))
LAST_ON_MACHINE = Q(~Exists(_LATER))
"""Selects leases whose machine has not been leased again since."""

_ENDED, _LOST = Q(state__in=("destroyed", "broken")), Q(state="broken") | Q(state="active", resource__state="broken")
_GONE = Q(resource=None) | Q(resource__gone_at__isnull=False) | Q(resource__state="destroyed")
_LEAVING = Q(resource__state__in=("released", "broken"))
_UNWANTED = Q(resource__state="pending") | Q(resource__drained=True)
_BY_POWER = {
    ("off", "off"): STOPPED, ("off", "on"): STOPPING, ("off", ""): STOPPING, ("on", "off"): PENDING,
    ("", "off"): STOPPED,
}  # fmt: skip
"""The states of a machine that a lease holds, by (requested power, power). In all other cases it is running."""

_STATE: tuple[tuple[Q, str], ...] = (
    (Q(state__in=("pending", "acquired")), PENDING),
    (Q(state="released"), TERMINATING),
    (_GONE & _LOST, FAILED),
    (_GONE, TERMINATED),
    (_ENDED & ~LAST_ON_MACHINE & Q(state="broken"), FAILED),
    (_ENDED & ~LAST_ON_MACHINE, REASSIGNED),
    (_LEAVING, TERMINATING),
    (_ENDED & _UNWANTED, TERMINATING),
    (_ENDED, RELEASED),
    *((Q(resource__power_wanted=wanted, resource__power=power), word) for (wanted, power), word in _BY_POWER.items()),
)
"""Conditions with their states. The first condition that is true determines the state."""


def with_state(found: QuerySet[Lease]) -> QuerySet[Any]:
    """Annotate leases with the state of their instance as `instance_state`."""
    whens = [When(condition, then=Value(word)) for condition, word in _STATE]
    return found.annotate(instance_state=Case(*whens, default=Value(RUNNING), output_field=CharField()))


def not_over() -> Q:
    """Return a condition for leases whose instances may still exist. It reads no machines that are gone."""
    return Q(state__in=UNFINISHED) | Q(resource__in=Resource.objects.filter(gone_at=None).values("pk"))
