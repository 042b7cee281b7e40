"""Classification of provider errors, and the consequences of each class.

Every client maps its provider's own codes to a class (docs/kinds/ has the tables, with their sources).
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from blueprints.answers import Answer, Failed, Scope, Unknown, Wait
from drydock.core.errors import DrydockError

log = logging.getLogger(__name__)


class Meaning(StrEnum):
    """The class of a provider's error."""

    NO_CAPACITY = "no_capacity"
    """The provider has no capacity left there now. Another zone, type, region or cloud may have some."""
    QUOTA = "quota"
    """The account has reached a limit. There may be room elsewhere, and an operator can have the limit raised."""
    NOT_OFFERED = "not_offered"
    """The type is not offered there at all, not to this account, or not in this combination."""
    THROTTLED = "throttled"
    """Too many calls. Repeat the same call later, under the same token."""
    POLICY = "policy"
    """A policy of the organisation forbids the request. Only an operator can change that."""
    CREDENTIALS = "credentials"
    """The account refuses the credential. Nothing works there until an operator fixes it."""
    NOT_FOUND = "not_found"
    """The named object does not exist, or not yet, because reads may lag behind."""
    INVALID = "invalid"
    """The request itself is wrong, because of the config or a bug of ours. Never worth repeating."""
    AMBIGUOUS = "ambiguous"
    """The answer was lost, and the call may have taken effect. Only a read may follow."""
    UNAVAILABLE = "unavailable"
    """The provider failed, and nothing happened. Repeat the same call later."""
    CONFLICT = "conflict"
    """The object is busy, or another object still uses it. Repeat the same call later."""
    OTHER = "other"
    """A provider code that we do not know."""


@dataclass(frozen=True, kw_only=True)
class Consequence:
    """The consequence of an error: what it excludes, and for how long."""

    scope: Scope | None
    """The scope that is excluded from further attempts; None if the error excludes nothing."""
    remember: float | None = None
    """Seconds until the excluded offers are tried again (peers use 60 s to 30 min, see docs/kinds/clouds.md)."""


CONSEQUENCES: dict[Meaning, Consequence] = {
    Meaning.NO_CAPACITY: Consequence(scope=Scope.OFFER, remember=180.0),
    Meaning.QUOTA: Consequence(scope=Scope.OFFER, remember=900.0),
    Meaning.NOT_OFFERED: Consequence(scope=Scope.OFFER, remember=3600.0),
    Meaning.THROTTLED: Consequence(scope=None),
    Meaning.POLICY: Consequence(scope=Scope.OPERATOR),
    Meaning.CREDENTIALS: Consequence(scope=Scope.OPERATOR),
    Meaning.NOT_FOUND: Consequence(scope=Scope.STEP),
    Meaning.INVALID: Consequence(scope=Scope.OPERATOR),
    Meaning.AMBIGUOUS: Consequence(scope=None),
    Meaning.UNAVAILABLE: Consequence(scope=Scope.STEP),
    Meaning.CONFLICT: Consequence(scope=Scope.STEP),
    Meaning.OTHER: Consequence(scope=Scope.STEP),
}


class Reach(StrEnum):
    """The offers to which a refusal applies, besides the one that was refused."""

    FAMILY = "family"
    """Offers of the same family and market in the location."""
    MARKET = "market"
    """All offers of the same market in the location."""
    LOCATION = "location"
    """All offers of the location."""
    ACCOUNT = "account"
    """All offers of the account."""

    def key(self, counted: str) -> str:
        """Return the part of an offer's quota keys (`Offer.counted`) that is excluded, in the form of `Failed.key`."""
        location, _, market = counted.split("/")
        return {
            Reach.FAMILY: counted, Reach.MARKET: f"{location}//{market}", Reach.LOCATION: f"{location}//",
            Reach.ACCOUNT: "//",
        }[self]  # fmt: skip


_HTML = re.compile(r"<(?:!doctype|html|head|body|title|center)\b", re.IGNORECASE)


def without_html(text: str) -> str:
    """Return an error message without the HTML page of a proxy. Log the first words of the page."""
    found = _HTML.search(text)
    if found is None:
        return text
    kept, page = text[: found.start()].rstrip(" \n:'\"(b"), text[found.start() :][:2000]
    log.warning("A provider's answer is an HTML page: %.300s", " ".join(re.sub(r"<[^<>]*>", " ", page).split()))
    return f"{kept}: an HTML page" if kept else "The answer is an HTML page."


_SKEWED = re.compile(
    r"RequestExpired|RequestTimeTooSkewed|[Ss]ignature (?:expired|not yet current)|AADSTS700024|AADSTS500133|"
    r"reasonable timeframe|[Tt]oken used too early|Invalid JWT: Token must be"
)
"""Matches errors that providers send if their clock and ours differ by more than some minutes.

These are EC2's RequestExpired, STS's messages about signatures, Microsoft Entra's codes for assertions outside their
validity, and Google's message about a JWT.
"""
_CLOCK = (
    "The clock of this machine differs from the provider's, or temporary credentials have expired. "
    "Compare `date -u` and enable time synchronization (chrony, systemd-timesyncd), or renew the "
    "credentials. Drydock then continues by itself. The provider's message:"
)


def with_cause(meaning: Meaning, code: str, text: str) -> str:
    """Return the message about a refused credential, preceded by the likely cause if the clocks differ."""
    skewed = meaning is Meaning.CREDENTIALS and _SKEWED.search(f"{code} {text}"[:4000])
    return f"{_CLOCK} {text}" if skewed else text


class CloudError(DrydockError):
    """A failed call to a provider. `provider_code` and the message are the provider's own."""

    code = "provider_error"
    status = 502

    def __init__(
        self, meaning: Meaning, message: str, *, provider_code: str = "", zone_wide: bool = False, after: float = 0.0,
        reach: Reach | None = None,
    ) -> None:  # fmt: skip
        super().__init__(with_cause(meaning, provider_code, without_html(message)))
        self.meaning = meaning
        self.provider_code = provider_code
        self.zone_wide = zone_wide
        """Whether the error applies to the whole zone, not only to this type."""
        self.after = after
        """Seconds after which the provider may be asked again."""
        self.reach = reach

    def answer(self, counted: str = "") -> Answer:
        """Return the answer of a step whose call failed with this error.

        `counted` has the offer's quota keys (`Offer.counted`), if known.
        """
        if self.meaning is Meaning.AMBIGUOUS:
            return Unknown(message=self.message)
        if self.meaning is Meaning.THROTTLED:
            return Wait(after=max(self.after, 2.0), sentence=f"The provider throttled the call: {self.message}"[:500])
        what = CONSEQUENCES[self.meaning]
        scope = Scope.ZONE if self.zone_wide and what.scope is Scope.OFFER else what.scope or Scope.STEP
        key = ""
        if self.reach and counted and scope is Scope.OFFER:
            scope, key = Scope.LOCATION, self.reach.key(counted)
        return Failed(
            scope=scope, key=key, code=self.provider_code or self.meaning, message=self.message, remember=what.remember
        )


class SdkNotInstalled(CloudError):
    """The packages that a kind needs to access its provider cannot be imported in this environment."""

    code = "sdk_not_installed"

    def __init__(self, kind: str, requirements: Sequence[str], error: ImportError) -> None:
        wanted = " ".join(f"'{each}'" for each in requirements)
        cure = f"pip install {wanted}" if wanted else "install the packages that its documentation names"
        super().__init__(
            Meaning.CREDENTIALS,
            f"The kind {kind} needs packages that are not installed in {sys.prefix} ({error}). Install them "
            f"for the web and worker processes: {cure}. Then restart these processes.",
            provider_code=self.code,
        )
