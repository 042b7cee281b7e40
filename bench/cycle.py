"""The warm cycle: ask, active, release, share returned; by four processes, with the floor beside it.

`python -m bench.cycle [cycles] [--statements]` on an empty database of its own (DRYDOCK_STATE).
"""

from __future__ import annotations

import os
import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

from bench import floor, population
from bench.clients import Clients, Round
from bench.figures import Figure, figure, show
from bench.installation import HOT, cycle, prepare, unserved

PROCESSES = 4
AT_MOST = 14
CPU_MS = 4.0
ROUNDS = 3


def figures(owner: int, blueprint: int, cycles: int, seconds: float) -> Iterator[Figure]:
    """All figures of the warm cycle, on 100 resources of 8 slots each that all clients share."""
    population.resources(blueprint, "fake", HOT)
    number, _ = statements(owner)
    yield figure("statements of a warm cycle", number, "statements", f"{AT_MOST}", number / AT_MOST)
    floor.prepare()
    try:
        with Clients(owner, PROCESSES) as clients:
            yield from _rates(clients, cycles)
            yield from _steady(clients, seconds)
    finally:
        floor.remove()
    yield figure("leases of these cycles that were never active", unserved(), "leases")


def _rates(clients: Clients, cycles: int) -> Iterator[Figure]:
    """A slice of each floor before each slice of ours, so that all meet the same noise."""
    names = ("floor", "tight", "ours")
    rounds = [{name: clients.together(name, times=cycles) for name in names} for _ in range(ROUNDS)]
    rate = {name: statistics.median(one[name].rate for one in rounds) for name in names}
    cpu = {name: min(one[name].cpu_ms for one in rounds) for name in names}
    yield figure(f"warm cycle, {PROCESSES} processes", rate["ours"], "cycles/s", "floor", _ratio(rounds, "floor"))
    yield figure(
        "the same, against the fewest statements", rate["ours"], "cycles/s", "tight floor", _ratio(rounds, "tight")
    )
    yield figure("floor: psycopg, the same rows, as many commits", rate["floor"], "cycles/s")
    yield figure("tight floor: the same with the fewest statements", rate["tight"], "cycles/s")
    name = "CPU of a warm cycle, clients and database"
    yield figure(name, cpu["ours"], "ms", f"{CPU_MS:g} ms", cpu["ours"] / CPU_MS)
    yield figure("the same against the floor's", cpu["ours"], "ms", "floor", cpu["ours"] / cpu["floor"])
    yield figure("CPU of the floor", cpu["floor"], "ms")


def _ratio(rounds: list[dict[str, Round]], floor_name: str) -> float:
    return statistics.median(one["ours"].rate / one[floor_name].rate for one in rounds)


def _steady(clients: Clients, seconds: float) -> Iterator[Figure]:
    """The first and the last slices of a long run on the same rows: dead tuples must not add up."""
    done = clients.together("ours", seconds=seconds)
    first, last = done.between(0, 0.25), done.between(0.75, 1)
    name = f"warm cycle, last quarter of {seconds:g} s on {HOT} hot rows"
    yield figure(name, last, "cycles/s", "first quarter", first / last)


class Statements:
    """Counts the statements that Django sends."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        self.seen[" ".join(sql.split())[:90]] += 1
        return execute(sql, params, many, context)


def statements(owner: int) -> tuple[int, Counter[str]]:
    """Statements of one warm cycle (BEGIN and COMMIT of its two transactions counted), and what they are."""
    from django.db import connection

    warm, counted = cycle(owner), Statements()
    warm()
    with connection.execute_wrapper(counted):
        warm()
    return counted.seen.total() + 4, counted.seen


def main() -> None:
    given = [int(word) for word in sys.argv[1:] if word.isdigit()]
    owner, blueprint = prepare(max_resources=None, min_ready=0)
    if "--statements" in sys.argv:
        population.resources(blueprint, "fake", 1)
        print("\n".join(f"{n} {sql}" for sql, n in statements(owner)[1].items()), file=sys.stderr)
        return
    show(list(figures(owner, blueprint, given[0] if given else 200, 10)))


if __name__ == "__main__":
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "drydock.settings")
    django.setup()
    main()
