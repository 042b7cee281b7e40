"""What a kind yields that watches its provider. A watch makes steps and checks earlier; nothing depends on it."""

from __future__ import annotations

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
