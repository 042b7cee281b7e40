"""Run all periodic checks. They find due work even if the hint about it was lost."""

from __future__ import annotations

from collections.abc import Callable

from leases.engine.catalogue import poll_schedule
from leases.engine.core.database import attempt, run
from leases.engine.core.installation import current as standing
from leases.engine.core.workers import forget_lost
from leases.engine.resources import cleanup, maintenance
from leases.engine.sync import discovery
from leases.engine.sync.orphans import due as search_for_orphans
from leases.engine.upkeep import agent_checks, lease_checks, pools, preempt, pruning, renewals, run_checks


def sweep() -> int:
    """Run every periodic check once. Return the number of items that were due."""
    suspended = bool(attempt(lambda: standing().problem))
    found = sum(attempt(look) or 0 for look in (WHILE_SUSPENDED if suspended else CHECKS))
    attempt(run, "UPDATE leases_installation SET swept_at = clock_timestamp()")
    return found


CHECKS: tuple[Callable[[], int], ...] = (
    run_checks.steps,
    run_checks.needed,
    run_checks.in_maintenance,
    run_checks.undisturbed,
    lease_checks.wishes,
    lease_checks.expired,
    renewals.renew,
    lease_checks.impatient,
    lease_checks.silent,
    lease_checks.left_in_groups,
    lease_checks.half_ended,
    lease_checks.half_acquired,
    run_checks.stranded,
    lease_checks.orphans,
    lease_checks.bereaved,
    preempt.preempt,
    lease_checks.idle_reservations,
    run_checks.unwanted,
    lease_checks.stale_trees,
    lease_checks.parked,
    lease_checks.waiting,
    pools.retire_due,
    pools.retire_drained,
    pools.roll_outdated,
    pools.keep_ready,
    cleanup.due,
    maintenance.check_power,
    pools.check_due,
    pools.forget_errors,
    discovery.due,
    agent_checks.expected,
    agent_checks.silent,
    poll_schedule.due,
    search_for_orphans,
    forget_lost,
    pruning.prune_events,
    pruning.prune_ended,
    pruning.prune_usage,
    pruning.prune_erasures,
    pruning.prune_sensors,
    pruning.prune_consoles,
)
"""The checks in the order in which they run. Each returns the number of items that were due."""

WHILE_SUSPENDED: tuple[Callable[[], int], ...] = (
    lease_checks.idle_reservations,
    lease_checks.stale_trees,
    lease_checks.parked,
    lease_checks.waiting,
    pools.forget_errors,
    search_for_orphans,
)
"""The checks that run while the installation is suspended.

They change nothing outside the database and end no lease, so they are safe in a database that is not confirmed.
"""
