"""What happened, for callers who may know it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from django.db.models import Q

from drydock_client import following
from leases.client.values import EventInfo
from leases.given import checked
from leases.models import Event
from leases.operations import reading
from leases.operations.callers import Caller, theirs


@checked
def list_(
    who: Caller, *, lease_id: int | None = None, resource_id: int | None = None, blueprint: str = "", kind: str = "",
    after: int = 0, limit: int = 200, newest: bool = False,
) -> list[EventInfo]:  # fmt: skip
    """Events by id, from the one after `after`; `newest`: the last `limit` of them. `kind` is a prefix."""
    found = Event.objects.filter(theirs(who), id__gt=after)
    chosen = {
        "lease_id": lease_id, "resource_id": resource_id, "blueprint__name": blueprint or None,
        "kind__startswith": kind or None,
    }  # fmt: skip
    found = found.filter(**{column: value for column, value in chosen.items() if value is not None})
    limit = max(1, min(limit, 1000))
    if newest:
        return [reading.event(row) for row in found.order_by("-id")[:limit]][::-1]
    return [reading.event(row) for row in found.order_by("id")[:limit]]


@checked
def follow(
    who: Caller, *, lease_id: int | None = None, resource_id: int | None = None, blueprint: str = "", kind: str = "",
    after: int | None = None, every: float = 0.25, stop: Callable[[], bool] = lambda: False,
) -> Iterator[EventInfo]:  # fmt: skip
    """Events as they come, each once, until `stop` says so. `after`: None begins with what comes next.

    Ids are given before transactions commit, so the last seconds are looked at again for latecomers.
    """
    about = {"lease_id": lease_id, "resource_id": resource_id, "blueprint": blueprint, "kind": kind}
    return following.follow(
        lambda cursor: list_(who, after=cursor, limit=following.AT_ONCE, **about),  # type: ignore[arg-type]
        after=_last() if after is None else after, every=every, stop=stop,
    )  # fmt: skip


def _last() -> int:
    last = Event.objects.filter(Q()).order_by("-id").values_list("id", flat=True).first()
    return last or 0
