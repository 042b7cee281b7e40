"""No decay: claims, releases and sweeps among many resources, many waiting leases and a long history.

`python -m bench.scale [history]` on an empty database of its own (DRYDOCK_STATE); prints a table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from bench import population
from bench.figures import Figure, against, figure, show, timed
from bench.installation import cycle, prepare

SIZES = (100, 10_000, 100_000)
WAITERS = 10_000
HISTORY = 1_000_000
TYPE = "fake"


def figures(
    owner: int, blueprint: int, *, history: int = HISTORY, sizes: tuple[int, ...] = SIZES, waiters: int = WAITERS
) -> Iterator[Figure]:
    """All figures. The database must have no other resources of the type."""
    yield from _sizes(owner, blueprint, history, sizes, waiters)
    yield from _searches(owner, sizes[-1])
    yield from _waiting(owner, waiters)
    yield from _sweeps(sizes[-1])


def _sizes(owner: int, blueprint: int, history: int, sizes: tuple[int, ...], waiters: int) -> Iterator[Figure]:
    """The first figure is without history, and all others of this kind are compared with it. In between as many wait as
    have ended, as in a young installation."""
    there, warm = sizes[0], cycle(owner)
    population.resources(blueprint, TYPE, there)
    first = timed(warm, 100)
    yield figure(f"warm cycle, {there} resources, no history", 1 / first, "cycles/s")
    population.history(owner, TYPE, waiters)
    yield _beside(owner, waiters, min(60, waiters), f"{waiters} waiters, as many ended leases")
    population.history(owner, TYPE, history - waiters)
    for size in sizes:
        if size > there:
            population.resources(blueprint, TYPE, size - there)
        there = size
        spent = timed(warm, 100)
        name = f"warm cycle, {size} resources, {history} ended leases"
        yield figure(name, 1 / spent, "cycles/s", f"{sizes[0]}, no history", spent / first)


def _searches(owner: int, size: int) -> Iterator[Figure]:
    hit = _search(owner)
    _, empty = prepare(TYPE, "bench-empty", max_resources=0, min_ready=0)
    cases: dict[str, dict[str, Any]] = {
        f"one match in {size}, by attribute": {"requirements": {"color": "gold"}},
        f"one match in {size}, by trait": {"traits": ("quick",)},
        "a preferred trait": {"preferred_traits": ("quick",)},
        "no match, by attribute": {"requirements": {"color": "blue"}},
        "no match, by number": {"requirements": {"size": 300}},
        "no match, by list": {"requirements": {"zones": ["nowhere"]}},
        "no match, by trait": {"traits": ("none",)},
        "no match, by amount": {"amounts": {"cpu_millicores": 5}},
        "no match, in a blueprint named": {"allowed_blueprints": (empty,)},
    }
    for name, asked in cases.items():
        spent, ratio = against(_search(owner, **asked), hit, 40)
        yield figure(f"search: {name}", spent * 1000, "ms", "a hit", ratio)
    spent = timed(hit, 40)
    population.fill(TYPE)
    full = timed(hit, 40)
    population.fill(TYPE, full=False)
    yield figure("search: all full", full * 1000, "ms", "a hit", full / spent)


def _search(owner: int, *, amounts: dict[str, int] | None = None, **asked: Any) -> Callable[[], object]:
    from blueprints.amounts import Amounts
    from leases.engine.core.database import short
    from leases.engine.placement import claims as searching
    from leases.engine.placement.constraints import PlacementRequest

    placement = PlacementRequest(type=TYPE, owner_id=owner, amounts=Amounts(**(amounts or {})), **asked)

    @short
    def search() -> None:
        searching.find(placement)

    return search


def _waiting(owner: int, waiters: int) -> Iterator[Figure]:
    for shapes in (1, min(60, waiters), waiters):
        yield _beside(owner, 10, min(shapes, 10), f"10 waiters of up to {shapes} shapes")
        yield _beside(owner, waiters, shapes, f"{waiters} waiters of {shapes} shapes")


def _beside(owner: int, count: int, shapes: int, said: str) -> Figure:
    """A warm cycle beside so many waiters, and without any: before and after, so that both meet the same."""
    from leases.messaging import hints

    warm = cycle(owner)
    with hints.collected():
        before = timed(warm, 60)
        population.waiters(owner, TYPE, count, shapes=shapes, slots=1000)
        spent = timed(warm, 60)
        population.forget(TYPE)
        alone = (before + timed(warm, 60)) / 2
    return figure(f"warm cycle, {said}", spent * 1000, "ms", "none wait", spent / alone)


def _sweeps(size: int) -> Iterator[Figure]:
    from leases.engine.upkeep import sweep
    from leases.messaging import hints

    with hints.collected():
        spent = timed(sweep.sweep, 10)
    yield figure(f"sweep, {size} resources", spent * 1000, "ms", "its interval of 2 s", spent / 2)


def clear() -> None:
    """Take ended leases and the resources of the type away, so that there are as many as the figures say."""
    from leases.engine.core.database import run

    run("DELETE FROM leases_lease WHERE type = %s AND state = 'destroyed'", (TYPE,))
    run(
        "DELETE FROM leases_resource r WHERE type = %s AND NOT EXISTS"
        " (SELECT FROM leases_lease l WHERE l.resource_id = r.id)",
        (TYPE,),
    )


def main() -> None:
    history = int(sys.argv[1]) if len(sys.argv) > 1 else HISTORY
    owner, blueprint = prepare(max_resources=None, min_ready=0)
    show(figures(owner, blueprint, history=history))


if __name__ == "__main__":
    import django

    django.setup()
    main()
