"""The cleaning that resources still need before they are leased again: running, or owed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from drydock_client.values import CleaningInfo
from leases.models import Debt, Resource, Run

CLEANING, OWED = "cleaning", "cleaning owed"
"""The states of a cleaning: a run does it now, or it waits for its next attempt or for other work on the resource."""
PHASES = (Run.Phase.DEACTIVATE, Run.Phase.CLEAN)
"""The phases of the runs of a resource that do its deferred cleanup."""
IS_CLEANED = "n.lease_id IS NULL AND n.phase IN ('deactivate', 'clean')"
"""SQL that is true if run `n` does the deferred cleanup of its resource."""


def of(found: Iterable[Resource]) -> dict[int, CleaningInfo]:
    """Return the cleaning of each resource that needs one, by the id of the resource.

    Uses no statement if none of the resources is in maintenance, otherwise two.
    """
    closed = {row.pk: row for row in found if row.in_maintenance}
    if not closed:
        return {}
    debts: dict[int, list[Debt]] = defaultdict(list)
    for debt in Debt.objects.filter(resource__in=list(closed)).defer("facts", "secrets", "locks").order_by("id"):
        debts[debt.resource_id].append(debt)
    runs = {run.resource_id: run for run in Run.objects.filter(resource__in=list(debts), lease=None)} if debts else {}
    return {pk: _info(closed[pk], owed, runs.get(pk)) for pk, owed in debts.items()}


def _info(row: Resource, debts: Sequence[Debt], run: Run | None) -> CleaningInfo:
    running = run is not None and run.phase in PHASES
    failed = [debt for debt in debts if debt.tries]
    last = max(failed, key=lambda debt: debt.tries, default=None)
    return CleaningInfo(
        state=CLEANING if running else OWED, since=min(debt.created_at for debt in debts),
        leases=tuple(debt.lease_id for debt in debts),
        percent=run.percent if run is not None and running else None,
        sentence=_sentence(row, run, running), failures=0 if last is None else last.tries,
        failure="" if last is None else last.message,
        next_at=None if running else min(debt.due_at for debt in debts),
    )  # fmt: skip


def _sentence(row: Resource, run: Run | None, running: bool) -> str:
    if run is not None:
        return run.sentence if running else f"Waits until {run.phase} of the resource has ended."
    return "Waits until the resource answers." if row.suspect_since is not None else "Waits for its next attempt."


def clause(*, running: bool, percent: int | None, said: str) -> str:
    """Return the state of a cleaning in a few words, such as "cleaning: 40 %, Erasing disk 2"."""
    progress = "" if percent is None else f"{percent} %"
    words = ", ".join(filter(None, (progress, said.strip().rstrip("."))))
    return f"{CLEANING if running else OWED}{': ' if words else ''}{words}"
