"""A worker of one's own, for as long as a command waits: only with private engines, and only when no other lives."""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING

from drydock.core import clock
from drydock.core.errors import DrydockError

if TYPE_CHECKING:
    from drydock.cli.crew import Crew, Hint

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
            from leases.operations import workers

            if not workers.alive():
                from drydock.cli.crew import Crew

                self._crew = Crew()
        if self._crew is not None and self._found is not None:
            self._crew.take(self._found)
        if self._crew is not None and self._crew.trouble:
            raise DrydockError(f"The worker of this command cannot work. {self._crew.trouble}", hint=_WHERE)
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
