"""The sweep: finds whatever is due, whether or not a hint was sent. Every finding is idempotent to act on."""

from __future__ import annotations

from collections.abc import Callable

from leases.engine import (
    debts,
    discovery,
    lease_looks,
    power,
    pruning,
    queue_looks,
    readings,
    renewals,
    run_looks,
    upkeep,
    yielding,
)
from leases.engine.installation import current as standing
from leases.engine.isolation import attempt
from leases.engine.orphans import due as search_for_orphans
from leases.engine.transaction import run
from leases.engine.workers import forget_lost


def sweep() -> int:
    """Look once over everything; the number of things found due."""
    suspended = bool(attempt(lambda: standing().problem))
    found = sum(attempt(look) or 0 for look in (WHILE_SUSPENDED if suspended else LOOKS))
    attempt(run, "UPDATE leases_installation SET swept_at = clock_timestamp()")
    return found


LOOKS: tuple[Callable[[], int], ...] = (
    run_looks.steps,
    run_looks.needed,
    run_looks.in_maintenance,
    run_looks.undisturbed,
    lease_looks.wishes,
    lease_looks.expired,
    renewals.renew,
    lease_looks.impatient,
    lease_looks.silent,
    lease_looks.left_in_groups,
    lease_looks.half_ended,
    lease_looks.half_acquired,
    run_looks.stranded,
    lease_looks.orphans,
    lease_looks.bereaved,
    yielding.give_way,
    queue_looks.idle_reservations,
    queue_looks.parked,
    queue_looks.waiting,
    upkeep.retire_due,
    upkeep.retire_drained,
    upkeep.roll_outdated,
    upkeep.keep_ready,
    debts.due,
    power.due,
    upkeep.check_due,
    upkeep.forget_errors,
    discovery.due,
    readings.due,
    search_for_orphans,
    forget_lost,
    pruning.prune_events,
    pruning.prune_ended,
    pruning.prune_usage,
)
"""In the order in which they are made; each answers how many it found."""

WHILE_SUSPENDED: tuple[Callable[[], int], ...] = (
    queue_looks.idle_reservations,
    queue_looks.parked,
    queue_looks.waiting,
    upkeep.forget_errors,
    search_for_orphans,
)
"""Those that touch nothing outside and end nobody's lease on what a database says that nobody has confirmed."""
