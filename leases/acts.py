"""What is done for each hint: one table for Celery's workers, for a command's own, and for tests and tools."""

from __future__ import annotations

from collections.abc import Callable

from leases import jobs, watching
from leases.engine import discovery, ending, orphans, reading, runner, serving, watches
from leases.engine import sweep as looks
from leases.engine.isolation import attempt
from leases.reports import condition


def sweep() -> int:
    """Run every periodic check once, of open jobs and watched leases too. Returns the number of items that were due."""
    attempt(condition.disk)  # so that a disk that fills is known since when, though nobody looks
    return looks.sweep() + sum(attempt(look) or 0 for look in (jobs.follow, watches.due))


ACTS: dict[str, Callable[..., object]] = {
    "serve": serving.serve,
    "end": ending.end,
    "step": runner.carry_on,
    "job": jobs.watch,
    "watch": watching.look,
    "sweep": sweep,
    "discover": discovery.discover,
    "orphans": orphans.search,
    "read": reading.read,
}
"""Hint -> what carries it out. Any of them may be called twice or never."""
