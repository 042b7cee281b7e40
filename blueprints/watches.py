"""What a kind that watches its provider yields. A watch makes steps earlier; nothing depends on it."""

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
    """Objects that have changed, or that a listing has found. Without objects, only the bookmark has moved."""

    objects: tuple[Owned, ...] = ()
    bookmark: str = ""
    """From where the watch resumes. Only the kind can read it. Empty: it begins with a listing."""
    listed: bool = False
    """Whether this is the end of a listing."""


@dataclass(frozen=True, kw_only=True)
class WatchFailed:
    """A request failed. The watch is opened again from the bookmark after `after` seconds, or later."""

    message: str
    after: float
    bookmark: str = ""


WatchNews: TypeAlias = Changes | WatchFailed
