"""Many machines asked for at once: what workers do while machines boot, and how soon a create is sent.

`python -m bench.provisioning` on an empty database of its own (DRYDOCK_STATE); prints a table.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from bench.figures import Figure, figure, seconds
from bench.installation import prepare
from bench.latency import noop, until, user, worker

MACHINES = 500
WORKERS = 4
CALL = 0.2
"""Seconds that the provider takes to answer a create."""
POLLS, POLL = 5, 2.0
BOOT = POLLS * POLL
_CONFIG = {
    "provider": "bench-storm", "capacity": {"slots": 1}, "boot_polls": POLLS, "poll_seconds": POLL,
    "faults": [{"does": "slow", "at": "build.create", "times": None, "seconds": CALL}],
}  # fmt: skip
_SENT = """
    SELECT extract(epoch FROM e.at - l.created_at)::float8 FROM leases_lease l
    JOIN leases_event e ON e.resource_id = l.resource_id AND e.kind = 'step.done' AND e.message = 'build: reserve'
    WHERE l.id = %s"""
"""The step before the create is done: its row is committed, and the create is called next."""


def figures(owner: int, *, machines: int = MACHINES, times: int = 10) -> Iterator[Figure]:
    """All figures; workers of their own run meanwhile."""
    from leases.engine.core.database import rows, run

    run("DROP TABLE IF EXISTS bench_noop, bench_step")
    run("CREATE TABLE bench_noop (number bigint PRIMARY KEY)")
    run("CREATE TABLE bench_step (pid bigint PRIMARY KEY, longest float8, steps bigint)")
    prepare("fake", "bench-storm", config=_CONFIG, max_resources=None, max_builds=machines, min_ready=0)
    try:
        with worker(WORKERS, "bench.noop", "bench.steps", beat=True):
            yield from _sent(owner, times)
            yield from _storm(owner, machines)
            longest, steps = rows("SELECT max(longest), sum(steps) FROM bench_step")[0]
        yield figure("the longest that a worker was at one step", longest * 1000, "ms", "one call", longest / CALL)
        yield figure("steps carried out meanwhile", float(steps), "steps")
    finally:
        run("DROP TABLE bench_noop, bench_step")


def _sent(owner: int, times: int) -> Iterator[Figure]:
    from leases.engine.core.database import rows

    noop()
    pairs = []
    for _ in range(times):
        back = noop()
        lease = _ask(owner)
        until(lambda pk=lease: rows(_SENT, (pk,)))  # type: ignore[misc]
        pairs.append((float(rows(_SENT, (lease,))[0][0]), back))
    sent, back = (statistics.median(column) for column in zip(*pairs, strict=True))
    yield figure("request to create sent, p50", sent * 1000, "ms", "a Celery no-op", sent / back)


def _ask(owner: int) -> int:
    from leases.allocator import Allocator

    asked = Allocator("fake", owner=user(owner), exclusive=True, allowed_blueprints=("bench-storm",))
    return asked.allocate().id


def _storm(owner: int, machines: int) -> Iterator[Figure]:
    from leases.engine.core.database import rows

    began: list[int] = []

    def all_active() -> None:
        began.extend(_ask(owner) for _ in range(machines))
        until(lambda: not rows("SELECT 1 FROM leases_lease WHERE state IN ('pending', 'acquired') LIMIT 1"), 580, 0.1)

    spent = seconds(all_active)
    served = rows("SELECT count(*) FROM leases_lease WHERE state = 'active' AND id = ANY(%s)", (began,))[0][0]
    one_by_one = machines * (BOOT + CALL) / WORKERS
    yield figure(
        f"{machines} machines asked for at once, until all are leased", spent, "s",
        f"{WORKERS} workers that wait for each", spent / one_by_one,
    )  # fmt: skip
    yield figure("of these leased", float(served), "machines", f"{machines}", served / machines)


def main() -> None:
    from bench.figures import show

    owner, _ = prepare(max_resources=None, min_ready=0)
    show(figures(owner))


if __name__ == "__main__":
    import django

    django.setup()
    main()
