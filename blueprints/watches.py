"""The news of a kind that watches its provider. A watch makes steps and checks earlier; nothing depends on it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from blueprints.specs import Owned


@dataclass(frozen=True, kw_only=True)
class WatchPlace:
    """A place at a provider that one watch covers, and the name of the credential with which it is watched."""

    credential: str
    name: str


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Objects that have changed, or may have. Without objects, only the bookmark has moved."""

    objects: tuple[Owned, ...] = ()
    bookmark: str = ""
    """From where the watch resumes. Only the kind can read it. Empty: with a listing."""
    listed: bool = False
    """Whether this is the end of a listing."""
    missed: bool = False
    """Whether changes may have been missed, so that anything in the place may have changed, or may be gone."""
    after: float = 0.0
    """Seconds until the next news are asked for, if there cannot be any earlier."""


@dataclass(frozen=True, kw_only=True)
class WatchFailed:
    """A request failed. The next news are asked for after `after` seconds, and the request is then repeated.

    If the watch ends here, it is opened again, with credentials that are read anew.
    """

    message: str
    after: float
    bookmark: str = ""


WatchNews: TypeAlias = Changes | WatchFailed


class Ending:
    """Ends a watch that waits for news, from another thread."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._calls: list[Callable[[], None]] = []

    @property
    def over(self) -> bool:
        """Whether `end` was called."""
        return self._over.is_set()

    def then(self, act: Callable[[], None]) -> None:
        """Have a function called by `end`, such as one that closes a connection; at once if that was called before."""
        with self._lock:
            self._calls.append(act)
        if self.over:
            act()

    def end(self) -> None:
        """End the watch. May be called repeatedly."""
        self._over.set()
        with self._lock:
            calls, self._calls = self._calls, []
        for act in calls:
            act()

    def forget(self) -> None:
        """Call nothing at the end, because the watch has ended by itself."""
        with self._lock:
            self._calls = []

    def wait(self, seconds: float) -> None:
        """Wait until the end, but not longer than this."""
        self._over.wait(seconds)
