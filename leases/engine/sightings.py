"""What a thing that bears our tag is, and what becomes of one without a row: decisions, without doing anything."""

from __future__ import annotations

from dataclasses import dataclass

from blueprints.specs import Owned
from leases.engine import views
from leases.engine.installation import Standing
from leases.engine.proof import Proven, proven
from leases.models import Stray

SUSPECT, UNNAMED, PROVEN = Stray.Proof.SUSPECT, Stray.Proof.UNNAMED, Stray.Proof.PROVEN
WRONG_PROOF = "It bears this installation's tag, and its proof is wrong: somebody else made it. It is never touched."
COPY = "It bears the proof of {key} under another name, as a copy would. It is never touched."
BY_TAG = (
    "Its proof is right, but its name is only a tag, which a copy of ours would bear too: it is destroyed when an"
    " operator says so, and not before."
)
LISTED = "Listed only, until an operator confirms the installation."
SEEN_ONCE = "Seen; destroyed when it is seen again later."
SOON = {"destroy": "{by} wants it destroyed", "adopt": "{by} wants it adopted"}
WAITS = "{what}; that is done when it is seen again later."
DRY_RUN = "It would be destroyed now, but this installation only lists (DRYDOCK_ORPHAN_DRY_RUN)."


@dataclass(frozen=True, kw_only=True)
class Sighting:
    """A thing that was found. `made`: what its tags prove; None for a suspect."""

    owned: Owned
    key: str
    """It is kept under this: its own name, else how its provider calls it."""
    proof: Stray.Proof
    made: Proven | None = None
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What is done now: `destroy`, `adopt`, or nothing; and a sentence for a person."""

    act: str = ""
    message: str = ""


def sighting(owned: Owned, here: Standing) -> Sighting:
    """Whose a thing is, by its tags and by the name under which it was made."""
    made = proven(owned.tags, here.short)
    key = (owned.key or str(owned.facts.get("instance_id") or "without a name"))[:255]
    if made is None:
        return Sighting(owned=owned, key=key, proof=SUSPECT, why=WRONG_PROOF)
    if owned.key != views.key_of(here, made):
        return Sighting(owned=owned, key=key, proof=SUSPECT, why=COPY.format(key=views.key_of(here, made)))
    if not owned.named:
        return Sighting(owned=owned, key=key, proof=UNNAMED, made=made, why=BY_TAG)
    return Sighting(owned=owned, key=key, proof=PROVEN, made=made)


def verdict(
    seen: Sighting, *, wanted: str = "", by: str = "", again: bool, suspended: bool, dry_run: bool
) -> Verdict:  # fmt: skip
    """What becomes of a thing without a row. `again`: it was seen long enough after the first time; `wanted`: what an
    operator has asked for; `dry_run`: nothing is done unless one has."""
    if seen.proof is SUSPECT:
        return Verdict(message=seen.why)
    if suspended:
        return Verdict(message=LISTED)
    if not again:
        asked = SOON[wanted].format(by=by or "An operator") if wanted else ""
        return Verdict(message=WAITS.format(what=asked) if asked else seen.why or SEEN_ONCE)
    if wanted:
        return Verdict(act=wanted)
    if seen.proof is UNNAMED:
        return Verdict(message=seen.why)
    return Verdict(message=DRY_RUN) if dry_run else Verdict(act="destroy")
