"""List and follow the events that the caller may see."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from django.db.models import Q

from drydock_client import events as client_events
from drydock_client.values import EventInfo
from leases.models import Event
from leases.operations import infos
from leases.operations.callers import Caller, theirs
from leases.validation.input_checks import checked


@checked
def list_(
    who: Caller, *, lease_id: int | None = None, resource_id: int | None = None, blueprint: str = "", kind: str = "",
    after: int = 0, limit: int = 200, newest: bool = False,
) -> list[EventInfo]:  # fmt: skip
    """Return events in the order of their ids, starting after id `after`. `kind` is a prefix of event kinds.

    If `newest` is true, the last `limit` events are returned instead.
    """
    found = Event.objects.filter(theirs(who), id__gt=after)
    chosen = {
        "lease_id": lease_id, "resource_id": resource_id, "blueprint__name": blueprint or None,
        "kind__startswith": kind or None,
    }  # fmt: skip
    found = found.filter(**{column: value for column, value in chosen.items() if value is not None})
    limit = max(1, min(limit, 1000))
    if newest:
        return [infos.event(row) for row in found.order_by("-id")[:limit]][::-1]
    return [infos.event(row) for row in found.order_by("id")[:limit]]


@checked
def follow(
    who: Caller, *, lease_id: int | None = None, resource_id: int | None = None, blueprint: str = "", kind: str = "",
    after: int | None = None, every: float = 0.25, stop: Callable[[], bool] = lambda: False,
) -> Iterator[EventInfo]:  # fmt: skip
    """Yield each event once, as soon as it is recorded, until `stop` returns True.

    Begins after the event with id `after`, or with the next event if `after` is None. Ids are assigned before
    transactions commit, so the events of the last seconds are read again, to find late commits.
    """
    about = {"lease_id": lease_id, "resource_id": resource_id, "blueprint": blueprint, "kind": kind}
    return client_events.follow(
        lambda cursor: list_(who, after=cursor, limit=client_events.AT_ONCE, **about),  # type: ignore[arg-type]
        after=_last() if after is None else after, every=every, stop=stop,
    )  # fmt: skip


def _last() -> int:
    last = Event.objects.filter(Q()).order_by("-id").values_list("id", flat=True).first()
    return last or 0
