"""A worker inside a program that waits for a lease, while it waits and no other worker is alive."""

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
    from leases.messaging.inline_worker import Hint, InlineWorker


_EVERY = 1.0

"""Seconds between two checks whether another worker is alive."""

_WHERE = "Run `drydock doctor`; logs/cli.log in the state folder has the details."

_PATIENCE = 8.0

"""Time in seconds that the worker in this process has to finish the queued work, and again for its current steps."""


class PrivateWorker:
    """A `drydock_client.protocol.Attendance` that starts a worker in this process when no other worker is alive.

    The worker's threads end with this process, however it ends. A program whose lease is ready at once never
    checks, and starts no thread.
    """

    def __init__(self) -> None:
        self._crew: InlineWorker | None = None
        self._found: deque[Hint] | None = None
        self._looked = -_EVERY
        self._collecting = contextlib.ExitStack()

    def __enter__(self) -> PrivateWorker:
        from leases.messaging import hints
        from leases.operations import installation

        if not installation.worker_alive():
            # Hints sent by this thread go to our own worker, without a broker.
            self._found = self._collecting.enter_context(hints.collected())
        return self

    def look(self) -> bool:
        """Start a worker in this process if none is alive. Return True once a worker is alive.

        Raises DrydockError if the worker in this process keeps failing.
        """
        now = clock.monotonic()
        if self._crew is None and now - self._looked >= _EVERY:
            self._looked = now
            from leases.engine.core.database import patient
            from leases.operations import installation

            if not patient(installation.worker_alive):
                from leases.messaging.inline_worker import InlineWorker

                self._crew = InlineWorker()
        if self._crew is not None and self._found is not None:
            self._crew.take(self._found)
        if self._crew is not None and self._crew.trouble:
            raise DrydockError(f"The worker in this process keeps failing: {self._crew.trouble}", hint=_WHERE)
        return True

    @property
    def private(self) -> bool:
        """True if the worker runs in this process."""
        return self._crew is not None

    def __exit__(self, error: object = None, *_: object) -> None:
        if self._crew is not None:
            # What the end of a lease leads to, such as the destruction of its folder, would otherwise stay undone.
            if error is None:
                self._crew.take(self._found or deque())
                self._crew.finish(_PATIENCE)
            self._crew.end(_PATIENCE)
            self._crew = None
        self._collecting.close()


class Onlooker:
    """A `drydock_client.protocol.Attendance` that starts no worker, and warns once if none is alive."""

    private = False

    def __init__(self, lease_id: int) -> None:
        self._lease_id, self._next = lease_id, clock.monotonic() + _WARN_AFTER

    def __enter__(self) -> Onlooker:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing, because nothing was started."""

    def look(self) -> bool:
        """Warn and return False if no worker is alive.

        Checks only once, after two seconds. Returns True before and after that.
        """
        if clock.monotonic() < self._next:
            return True
        self._next = math.inf
        from leases.engine.core.database import patient
        from leases.operations import installation

        if alive := patient(installation.worker_alive):
            return alive
        warnings.warn(
            f"No worker is running, so lease {self._lease_id} is neither built nor cleaned. Start a worker "
            "with `drydock worker` or `make up`, or set DRYDOCK_INLINE = True to do the work in this "
            "process.",
            NoWorkerWarning, stacklevel=4,
        )  # fmt: skip
        return False


class NoWorkerWarning(RuntimeWarning):
    """A program waits for a lease, but no worker is alive."""


_WARN_AFTER = 2.0

"""Seconds until the only check. A lease that is granted at once is ready by then."""


def worker_beside(lease_id: int) -> PrivateWorker | Onlooker:
    """Return the attendance for a Python program that waits for a lease.

    If `DRYDOCK_INLINE` is set, as with private engines, it runs a worker in this process. Otherwise it only warns
    if no worker is alive.
    """
    return PrivateWorker() if getattr(settings, "DRYDOCK_INLINE", False) else Onlooker(lease_id)
