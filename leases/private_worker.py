"""A worker of one's own, for as long as a program waits, and only when no other lives."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections import deque
from typing import TYPE_CHECKING

from django.conf import settings

from drydock.core import clock
from drydock.core.errors import DrydockError

if TYPE_CHECKING:
    from leases.inline_worker import Crew, Hint

_EVERY = 1.0
"""Seconds between two looks at who else lives."""
_WHERE = "`drydock doctor` looks around; logs/cli.log in the state folder has the details."
_PATIENCE = 8.0
"""Seconds our worker is given to finish the steps it is in."""


class PrivateWorker:
    """`leases.client.protocol.Attendance` that works in threads of this process, from the first look on which no
    other worker lives. They end with us, however we end.

    Who finds everything done at once never looks, and no thread is started.
    """

    def __init__(self) -> None:
        self._crew: Crew | None = None
        self._found: deque[Hint] | None = None
        self._looked = -_EVERY
        self._collecting = contextlib.ExitStack()

    def __enter__(self) -> PrivateWorker:
        from leases import hints
        from leases.operations import workers

        if not workers.alive():
            # What this thread hints is for our crew; it needs no broker.
            self._found = self._collecting.enter_context(hints.collected())
        return self

    def look(self) -> bool:
        """True: a worker lives, ours or another's. Raises DrydockError when ours fails again and again."""
        now = clock.monotonic()
        if self._crew is None and now - self._looked >= _EVERY:
            self._looked = now
            from leases.engine.core.database import patient
            from leases.operations import workers

            if not patient(workers.alive):
                from leases.inline_worker import Crew

                self._crew = Crew()
        if self._crew is not None and self._found is not None:
            self._crew.take(self._found)
        if self._crew is not None and self._crew.trouble:
            raise DrydockError(f"The worker of this program cannot work. {self._crew.trouble}", hint=_WHERE)
        return True

    @property
    def private(self) -> bool:
        """Whether the worker is ours."""
        return self._crew is not None

    def __exit__(self, *_: object) -> None:
        if self._crew is not None:
            self._crew.end(_PATIENCE)
            self._crew = None
        self._collecting.close()


class Onlooker:
    """`leases.client.protocol.Attendance` that starts nothing, and warns once where nobody works."""

    private = False

    def __init__(self, lease_id: int) -> None:
        self._lease_id, self._next = lease_id, clock.monotonic() + _WARN_AFTER

    def __enter__(self) -> Onlooker:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing was begun."""

    def look(self) -> bool:
        """Whether a worker was seen lately, looked at once, after two seconds; True before and afterwards."""
        if clock.monotonic() < self._next:
            return True
        self._next = math.inf
        from leases.engine.core.database import patient
        from leases.operations import workers

        if alive := patient(workers.alive):
            return alive
        warnings.warn(
            f"No worker is running, so lease {self._lease_id} is neither built nor cleaned. Start one with"
            " `drydock worker` or `make up`, or set DRYDOCK_INLINE = True to have this process do the work.",
            NoWorkerWarning, stacklevel=4,
        )  # fmt: skip
        return False


class NoWorkerWarning(RuntimeWarning):
    """A program waits for a lease, and no worker lives."""


_WARN_AFTER = 2.0
"""Seconds; what is granted at once never comes so far."""


def attendance(lease_id: int) -> PrivateWorker | Onlooker:
    """What sees to a lease while a Python program waits for it: a worker in this process where `DRYDOCK_INLINE` says
    so, as it does with private engines; else somebody who warns."""
    return PrivateWorker() if getattr(settings, "DRYDOCK_INLINE", False) else Onlooker(lease_id)
