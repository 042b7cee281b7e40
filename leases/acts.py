"""What is done for each hint: one table for Celery's workers, for a command's own, and for tests and tools."""

from __future__ import annotations

from collections.abc import Callable

from leases import jobs, watching
from leases.engine.core import workloads
from leases.engine.core.database import attempt
from leases.engine.lifecycle import release, runner
from leases.engine.scheduling import serve
from leases.engine.sync import discovery, orphans, poll
from leases.engine.upkeep import sweep as looks
from leases.reports import condition


def sweep() -> int:
    """Run every periodic check once, of open jobs and watched leases too. Returns the number of items that were due."""
    attempt(condition.disk)  # so that a disk that fills is known since when, though nobody looks
    return looks.sweep() + sum(attempt(look) or 0 for look in (jobs.follow, workloads.due))


ACTS: dict[str, Callable[..., object]] = {
    "serve": serve.serve,
    "end": release.end,
    "step": runner.carry_on,
    "job": jobs.watch,
    "watch": watching.look,
    "sweep": sweep,
    "discover": discovery.discover,
    "orphans": orphans.search,
    "read": poll.read,
}
"""Hint -> what carries it out. Any of them may be called twice or never."""
