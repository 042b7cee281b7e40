"""One taxonomy of what goes wrong at a provider, and what follows from each.

Every client maps its provider's own codes onto it (docs/kinds/ has the tables, with their sources).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from blueprints.answers import Answer, Failed, Scope, Unknown, Wait
from drydock.core.errors import DrydockError


class Meaning(StrEnum):
    """What an error of a provider means to us."""

    NO_CAPACITY = "no_capacity"
    """The provider has none left of it there now: another zone, type, region or cloud may."""
    QUOTA = "quota"
    """The account may not have more of it: elsewhere it may; the operator can have it raised."""
    NOT_OFFERED = "not_offered"
    """Not to be had there at all, or not by this account, or not in this combination."""
    THROTTLED = "throttled"
    """Too many calls: the same call later, under the same token."""
    CREDENTIALS = "credentials"
    """The account refuses us: nothing works there before the operator mends it."""
    NOT_FOUND = "not_found"
    """What was named is not there (or not yet: reads may lag behind)."""
    INVALID = "invalid"
    """The request itself is wrong: config or a fault of ours, never worth repeating."""
    AMBIGUOUS = "ambiguous"
    """The answer was lost: it may have happened. Only looking may follow."""
    UNAVAILABLE = "unavailable"
    """The provider failed, and nothing happened: the same call later."""
    CONFLICT = "conflict"
    """It is busy with something else, or another part still uses it: the same call later."""
    OTHER = "other"
    """A code that we do not know."""


@dataclass(frozen=True, kw_only=True)
class Consequence:
    """What follows: how far it rules things out, and for how long."""

    scope: Scope | None
    """How far it rules things out; None: nothing is ruled out."""
    remember: float | None = None
    """Seconds for which what is ruled out is not tried again (peers: 60 s to 30 min, see docs/kinds/clouds.md)."""


CONSEQUENCES: dict[Meaning, Consequence] = {
    Meaning.NO_CAPACITY: Consequence(scope=Scope.OFFER, remember=180.0),
    Meaning.QUOTA: Consequence(scope=Scope.OFFER, remember=900.0),
    Meaning.NOT_OFFERED: Consequence(scope=Scope.OFFER, remember=3600.0),
    Meaning.THROTTLED: Consequence(scope=None),
    Meaning.CREDENTIALS: Consequence(scope=Scope.OPERATOR),
    Meaning.NOT_FOUND: Consequence(scope=Scope.STEP),
    Meaning.INVALID: Consequence(scope=Scope.OPERATOR),
    Meaning.AMBIGUOUS: Consequence(scope=None),
    Meaning.UNAVAILABLE: Consequence(scope=Scope.STEP),
    Meaning.CONFLICT: Consequence(scope=Scope.STEP),
    Meaning.OTHER: Consequence(scope=Scope.STEP),
}


class CloudError(DrydockError):
    """A call to a provider that did not work. `provider_code` and the message are the provider's own words."""

    code = "provider_error"
    status = 502

    def __init__(
        self, meaning: Meaning, message: str, *, provider_code: str = "", zone_wide: bool = False, after: float = 0.0
    ) -> None:
        super().__init__(message)
        self.meaning = meaning
        self.provider_code = provider_code
        self.zone_wide = zone_wide
        """The whole zone lacks it, not this type only."""
        self.after = after
        """Seconds after which the provider wants to be asked again."""

    def answer(self) -> Answer:
        """What a step answers when a call of its failed so."""
        if self.meaning is Meaning.AMBIGUOUS:
            return Unknown(message=self.message)
        if self.meaning is Meaning.THROTTLED:
            return Wait(after=max(self.after, 2.0), sentence=f"The provider wants fewer calls: {self.message}"[:500])
        what = CONSEQUENCES[self.meaning]
        scope = Scope.ZONE if self.zone_wide and what.scope is Scope.OFFER else what.scope or Scope.STEP
        return Failed(
            scope=scope, code=self.provider_code or self.meaning, message=self.message, remember=what.remember
        )
