"""Failpoints: named places where a test may end the process, to show that another one finishes the work."""

from __future__ import annotations

from collections.abc import Callable

NAMES = ("commit.before", "commit.after", "run.taken", "run.calling", "run.called", "run.applying", "run.applied")

_hook: Callable[[str], None] | None = None


def failpoint(name: str) -> None:
    """Does nothing unless a test has set a hook."""
    if _hook is not None:
        _hook(name)


def hook(new: Callable[[str], None] | None) -> None:
    """Set what is called at every failpoint of this process; None takes it away."""
    global _hook
    _hook = new
