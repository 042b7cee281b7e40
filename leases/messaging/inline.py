"""Handle hints in this process, for tests and tools that must not depend on a worker."""

from __future__ import annotations

from leases.messaging import hints
from leases.messaging.handlers import HANDLERS, sweep


def settle(limit: int = 2_000, *, tolerated: tuple[type[Exception], ...] = ()) -> int:
    """Sweep, and handle all hints that result from the sweep, directly or indirectly.

    Returns the number of hints handled. Does not wait for work that is due later. Exceptions are raised after all
    hints are handled, except those of a `tolerated` type: if other processes work on the same rows, the next sweep
    tries again.
    """
    done, failed = 0, list[Exception]()
    with hints.collected() as collected:
        sweep()
        while collected:
            hint, args = collected.popleft()
            if (done := done + 1) > limit:
                raise RuntimeError(f"still hints after {limit} of them; the next is {hint}{args}")
            try:
                HANDLERS[hint](*args)
            except tolerated:
                continue
            except Exception as error:
                error.add_note(f"handling {hint}{args}")
                failed.append(error)
    if failed:
        raise ExceptionGroup(f"{len(failed)} of {done} hints failed", failed)
    return done
