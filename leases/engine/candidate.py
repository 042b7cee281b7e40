"""Blueprints as the decision for a waiting lease sees them, and what each of them says. Frozen values."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from blueprints.specs import Draft
from leases.engine.purse import Purse
from leases.reasons import Reason

COUNTED = 1000
"""Suitable resources are counted up to this: a decision must not cost more the larger the fleet is."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What one candidate said, in words a person can act on."""

    blueprint: str
    answer: str
    """`build`, `reclaim`, `wait` or `no`."""
    sentence: str
    offer: str = ""
    reason: str = ""
    """Why it waits, or says no, where that may change without another decision."""
    cost: float | None = None
    price: float | None = None
    """For a budget that is in the way: what the lease would cost, and all of what would be built. None: unknown."""

    def to_json(self) -> dict[str, Any]:
        """Return what is kept with the lease."""
        shown: dict[str, Any] = {
            "blueprint": self.blueprint,
            "offer": self.offer,
            "answer": self.answer,
            "sentence": self.sentence,
        }
        if self.reason:
            shown["reason"] = str(self.reason)
        if self.reason == Reason.WAITING_BUDGET:
            shown |= {"cost": self.cost, "price": self.price}
        return shown


@dataclass(frozen=True, kw_only=True)
class Setback:
    """A remembered error: the offer, zone or blueprint that it rules out, and until when."""

    scope: str
    key: str
    message: str
    until: dt.datetime | None
    passes: bool = False
    """Nothing has failed, and nobody need mend it: it passes by itself, at a time that nobody knows."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A blueprint as the decision sees it."""

    id: int
    name: str
    enabled: bool = True
    drained: bool = False
    authorized: bool = True
    authorization_asked: bool = False
    impossible: str = ""
    """Why it could never serve this, or empty."""
    builds: bool = True
    drafts: tuple[Draft, ...] = ()
    """What it could build for this, best first."""
    stale: str = ""
    there: int = 0
    """Resources that count against the limit; counted up to it."""
    maximum: int | None = None
    building: int = 0
    max_builds: int = 10
    setbacks: tuple[Setback, ...] = ()
    budget: Purse | None = None
    """What everything that it has built may cost; None: any amount."""
    freeing: float = 0.0
    """US dollars an hour that are free once what is being destroyed is gone."""
    spare: tuple[tuple[int, float], ...] = ()
    """Idle resources that may be given up to make room in the budget, and the price of each."""
    suitable: int = 0
    """Resources that could serve this if they were empty; counted up to `COUNTED`."""
    used_slots: int = 0
    slots: int = 0
    """The slots in use of those, and all that they have."""
    noun: str = "resource"
    """How people call one of its resources."""
    silent: int = 0
    """Those of them that do not answer."""
    idle: tuple[int, ...] = ()
    """Idle resources that may be given up to make room under the limit, idle children first."""
    leaving: int = 0
    """Places under the limit that are free once what is being destroyed is gone."""
    wanted: int = 1
    """Places that are waited for: for this lease, those like it, and others that wait for something to leave."""

    @property
    def enough_leaves(self) -> bool:
        """True when what is being destroyed makes room enough, so that nothing more is given up."""
        return self.leaving >= self.wanted
