"""Carrying out hints in this process: for tests and tools that must not depend on a worker."""

from __future__ import annotations

from leases import hints
from leases.acts import ACTS, sweep


def settle(limit: int = 2_000, *, tolerated: tuple[type[Exception], ...] = ()) -> int:
    """Sweep, and carry out what that and all that follows from it asks for; the number of hints acted on.

    What waits for a later time is not waited for. What one hint raises is raised after all the others, except for
    what is `tolerated`: where others work on the same rows, the next sweep looks again.
    """
    done, failed = 0, list[Exception]()
    with hints.collected() as collected:
        sweep()
        while collected:
            hint, args = collected.popleft()
            if (done := done + 1) > limit:
                raise RuntimeError(f"not settled after {limit} hints; the next would be {hint}{args}")
            try:
                ACTS[hint](*args)
            except tolerated:
                continue
            except Exception as error:
                error.add_note(f"carrying out {hint}{args}")
                failed.append(error)
    if failed:
        raise ExceptionGroup(f"{len(failed)} of {done} hints failed", failed)
    return done
