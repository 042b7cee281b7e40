"""The state of an instance, in the words that all clouds share: one CASE over its lease and its machine, in SQL.

It is terminated when the absence of its machine is confirmed, and not before: until then it is listed, with its cost.
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
"""Nothing is left that costs on behalf of these."""

_LATER = Lease.objects.filter(resource=OuterRef("resource"), acquired_at__gt=OuterRef("acquired_at"))
LAST_ON_MACHINE = Q(~Exists(_LATER))
"""No other lease has taken the machine since."""

_ENDED, _LOST = Q(state__in=("destroyed", "broken")), Q(state="broken") | Q(state="active", resource__state="broken")
_GONE = Q(resource=None) | Q(resource__gone_at__isnull=False) | Q(resource__state="destroyed")
_LEAVING = Q(resource__state__in=("released", "broken"))
_UNWANTED = Q(resource__state="pending") | Q(resource__drained=True)
_BY_POWER = {
    ("off", "off"): STOPPED, ("off", "on"): STOPPING, ("off", ""): STOPPING, ("on", "off"): PENDING,
    ("", "off"): STOPPED,
}  # fmt: skip
"""(power wanted, power) of a machine that is held; it runs otherwise."""

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
"""What holds first decides."""


def with_state(found: QuerySet[Lease]) -> QuerySet[Any]:
    """Leases, each with the state of its instance as `instance_state`."""
    whens = [When(condition, then=Value(word)) for condition, word in _STATE]
    return found.annotate(instance_state=Case(*whens, default=Value(RUNNING), output_field=CharField()))


def not_over() -> Q:
    """Leases whose instances may not be over: a condition that reads no machine that is gone."""
    return Q(state__in=UNFINISHED) | Q(resource__in=Resource.objects.filter(gone_at=None).values("pk"))
