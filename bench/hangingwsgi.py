"""The web process with a host that never answers: jobs of the fake kind whose program is `hang`."""

from __future__ import annotations

from drydock.core import clock
from drydock.wsgi import application
from interfaces.command.fake import FakeJobs
from interfaces.command.jobs import Job
from interfaces.deadline import Deadline

__all__ = ["application"]

_answer = FakeJobs.status


def _status(self: FakeJobs, id: str) -> Job:
    """As over a shell that was stopped: looked at ten times a second until the time is over."""
    deadline = Deadline(60)
    while self._job(id).spec.words[0] == "hang":
        deadline.check("The command")
        clock.sleep(min(0.1, deadline.remaining))
    return _answer(self, id)


FakeJobs.status = _status  # type: ignore[method-assign]
