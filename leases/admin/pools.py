"""Blueprints by the state of their resources, and how full those are: one statement for the overview."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from django.urls import reverse
from django.utils.safestring import SafeString

from blueprints.amounts import CLASSES
from leases.admin import cells
from leases.admin.figures import Figure, listed
from leases.engine.core.database import rows
from leases.states import ResourceState

LIVE = (ResourceState.PENDING, ResourceState.ACTIVE, ResourceState.RELEASED, ResourceState.BROKEN)


@dataclass(frozen=True, kw_only=True)
class Pool:
    """A blueprint: how many resources are in which state, and how full they are."""

    blueprint: Figure
    states: list[Figure]
    room: list[SafeString] = field(default_factory=list)


_SUMS = ", ".join(f"sum(used_{name}) AS u{i}, sum(total_{name}) AS t{i}" for i, name in enumerate(CLASSES))
_SUMMED = ", ".join(f"r.u{i}, r.t{i}" for i in range(len(CLASSES)))
_POOLS = f"""
    SELECT b.id, b.name, b.enabled, b.drained, r.state, r.n, r.quarantined, r.sick, {_SUMMED}
    FROM blueprints_blueprint b LEFT JOIN (
        SELECT blueprint_id, state, count(*) AS n, count(*) FILTER (WHERE quarantined) AS quarantined,
            count(*) FILTER (WHERE check_failures > 0) AS sick, {_SUMS}
        FROM leases_resource WHERE gone_at IS NULL GROUP BY 1, 2) r ON r.blueprint_id = b.id
    WHERE r.n > 0 OR (b.enabled AND b.removed_at IS NULL) ORDER BY b."order", b.name, b.id LIMIT 2000"""  # noqa: S608 - made of our own classes


def there() -> list[tuple[Any, ...]]:
    """A row for each blueprint and state, of resources that are not gone."""
    return rows(_POOLS)


def of(there: list[tuple[Any, ...]]) -> list[Pool]:
    """Blueprint by state, of what is not gone, with what is used of what is there."""
    table: dict[int, list[tuple[Any, ...]]] = {}
    for row in there:
        table.setdefault(row[0], []).append(row)
    return [_pool(pk, found) for pk, found in table.items()]


def _pool(pk: int, found: list[tuple[Any, ...]]) -> Pool:
    _, name, enabled, drained = found[0][:4]
    flags = [*([] if enabled else ["disabled"]), *(["drained"] if drained else [])]
    by = {state: n for *_, state, n in (row[:6] for row in found) if state}
    serving = [row[8:] for row in found if row[4] in (ResourceState.PENDING, ResourceState.ACTIVE)]
    sums = [sum(int(row[at]) for row in serving) for at in range(2 * len(CLASSES))]
    at = reverse("admin:blueprints_blueprint_change", args=(pk,))
    return Pool(
        blueprint=Figure(
            of=name, number=sum(by.values()), address=at, said=cells.badges(*flags) if flags else ""
        ),
        states=[
            Figure(
                of=state, number=by.get(state, 0),
                address=listed("resource", blueprint__id__exact=pk, state__exact=state, gone_at__isempty=1),
            )
            for state in LIVE
        ],
        room=[
            cells.room(name, sums[2 * i], sums[2 * i + 1]) for i, name in enumerate(CLASSES) if sums[2 * i + 1]
        ],
    )  # fmt: skip
