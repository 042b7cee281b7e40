"""A Celery task that does nothing but say that it was carried out. Loaded into the bench's worker only."""

from __future__ import annotations

from celery import shared_task


@shared_task(name="bench.noop")
def noop(number: int) -> None:
    """Write the row that whoever sent it looks for."""
    from leases.engine.transaction import run

    run("INSERT INTO bench_noop VALUES (%s)", (number,))
