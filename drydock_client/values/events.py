"""What happened, and what a person should look at."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class EventInfo:
    """One thing that happened. `duration`: how long the state before had lasted."""

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
    """Something that a person should look at. `what` is a code, `subject` names `kind` and `id`."""

    what: str
    kind: str
    """`lease`, `resource`, `blueprint`, `credential` or `installation`."""
    id: int | None
    name: str
    since: dt.datetime | None
    message: str
    mend: str
    """The command that looks further, or mends it."""
