"""Celery tasks, one for each hint. Their arguments are ids or types, and each task may run twice or never."""

from __future__ import annotations

from typing import Any

from celery import Task, shared_task
from django.db import close_old_connections

from drydock.core.logging import about
from leases.engine.core import database
from leases.messaging import hints, worker_lifecycle
from leases.messaging.handlers import HANDLERS

__all__ = ["worker_lifecycle"]
"""Imported together with the tasks, so that every worker loads the module."""


class Said(Task):  # type: ignore[type-arg]
    """A task that adds its name and id to every log line that it writes."""

    abstract = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the task."""
        with about(task=self.name, task_id=self.request.id):
            return super().__call__(*args, **kwargs)


def _task(hint: str) -> Any:
    def carry_out(*args: Any) -> None:
        # A connection that broke, or that the server closed meanwhile, is noticed here and not by the first statement.
        close_old_connections()
        with hints.read(hint, *args) as mine:
            if mine:
                _carry_out(hint, *args)

    return shared_task(base=Said, name=f"leases.{hint}")(carry_out)


def _carry_out(hint: str, *args: Any) -> None:
    """Carry out a hint.

    If the database is not reachable, the hint is dropped. The sweep finds the work when the database is reachable
    again.
    """
    try:
        HANDLERS[hint](*args)
    except Exception as error:
        if not database.is_lost(error):
            raise
        database.report(error)


serve, end, step, job, watch = _task("serve"), _task("end"), _task("step"), _task("job"), _task("watch")
sweep, discover, orphans, read = _task("sweep"), _task("discover"), _task("orphans"), _task("read")
call_agent = _task("call_agent")
bulk_check = _task("bulk_check")
