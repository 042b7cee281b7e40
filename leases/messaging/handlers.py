"""The functions that handle hints, in one table for Celery workers, inline workers and tests."""

from __future__ import annotations

from collections.abc import Callable

from leases.agents import endpoints
from leases.engine.core import workloads
from leases.engine.core.database import attempt
from leases.engine.lifecycle import bulk_checks, release, runner
from leases.engine.queue import serve
from leases.engine.sync import discovery, orphans, poll
from leases.engine.upkeep import sweep as looks
from leases.reports import condition
from leases.workloads import jobs, polling


def sweep() -> int:
    """Run every periodic check once, including open jobs and measured leases. Return the number of items due."""
    attempt(condition.disk)  # records when the disk began to fill, even if nobody asks
    return looks.sweep() + sum(attempt(look) or 0 for look in (jobs.follow, workloads.due))


HANDLERS: dict[str, Callable[..., object]] = {
    "serve": serve.serve,
    "end": release.end,
    "step": runner.carry_on,
    "job": jobs.watch,
    "watch": polling.poll,
    "sweep": sweep,
    "discover": discovery.discover,
    "orphans": orphans.search,
    "read": poll.read,
    "bulk_check": bulk_checks.check,
    "call_agent": endpoints.call,
}

"""The function that handles each hint. A function may be called twice for one hint, or never."""
