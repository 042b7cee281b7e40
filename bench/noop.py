"""A Celery task that does nothing but say that it was carried out. Loaded into the bench's worker only, which takes it
as one of our hints: it drops every other message (`leases.messaging.messages`)."""

from __future__ import annotations

from celery import shared_task

from leases.messaging import hints

hints.QUEUES["noop"] = "claims"


@shared_task(name="leases.noop")
def noop(number: int) -> None:
    """Write the row that whoever sent it looks for."""
    from leases.engine.core.database import run

    run("INSERT INTO bench_noop VALUES (%s)", (number,))
