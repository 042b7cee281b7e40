"""Events and items that need attention."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class EventInfo:
    """An event. `duration` is how long the previous state lasted."""

    id: int
    at: dt.datetime
    kind: str
    message: str
    reason: str
    actor: str
    lease: int | None
    resource: int | None
    blueprint: int | None
    from_state: str
    to_state: str
    duration: dt.timedelta | None
    details: Any = None


@dataclass(frozen=True, kw_only=True)
class Attention:
    """An item that needs attention by a person. `what` is a code for the reason; `kind` and `id` identify the item."""

    what: str
    kind: str
    """`lease`, `resource`, `blueprint`, `credential` or `installation`."""
    id: int | None
    name: str
    since: dt.datetime | None
    message: str
    mend: str
    """The command that fixes the problem or shows more about it."""
