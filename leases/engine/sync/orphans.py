"""Orphans: objects at a provider that have our tags and belong to no resource.

The row of a resource is written before its objects are created, so an orphan means that something went wrong: rows were
lost with a database, or an object was created after its deletion was confirmed. An object that is provably ours and was
seen twice, some time apart, is destroyed with the destroy plan of its kind, or adopted if an operator requests that. A
suspended installation only lists the object. An object with our tag but without a valid proof is listed as a suspect
and never changed.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db.models import F, Q
from django.db.models.functions import Now

from blueprints import registry
from blueprints.contract import Lists
from blueprints.models import Blueprint
from blueprints.specs import BlueprintView, Owned
from drydock.core import clock
from drydock.core.errors import DrydockError
from drydock.core.logging import about, hidden, redact
from leases.engine.catalogue.offers import price_of
from leases.engine.core import installation, specs
from leases.engine.core.database import refuse_inside_transaction, rows, run
from leases.engine.core.installation import BLUEPRINT, Proven, Standing, proven
from leases.engine.core.token_lease import TokenLease
from leases.engine.core.transitions import record_event
from leases.engine.sync.orphan_actions import adopt, dispose
from leases.messaging import hints
from leases.models import Resource, Stray

SUSPECT, UNNAMED, PROVEN = Stray.Proof.SUSPECT, Stray.Proof.UNNAMED, Stray.Proof.PROVEN
WRONG_PROOF = (
    "The object has this installation's tag, but its proof of ownership is invalid, so it was "
    "created by somebody else. It is never changed."
)
COPY = "The object has the proof of ownership of {key} under another name, so it may be a copy. It is never changed."
BY_TAG = (
    "The object has a valid proof of ownership, but a copy of such an object would have it too. "
    "It is destroyed only if an operator requests it."
)
LISTED = "Only listed until an operator confirms the installation."
SEEN_ONCE = "Seen once. It is destroyed when it is seen again."
SOON = {"destroy": "{by} requested its destruction", "adopt": "{by} requested its adoption"}
WAITS = "{what}. This is done when it is seen again."
DRY_RUN = "Not destroyed, because this installation only lists orphans (DRYDOCK_ORPHAN_DRY_RUN)."


@dataclass(frozen=True, kw_only=True)
class Classification:
    """An object found at a provider, and whether it is ours. `made` is its proven origin, or None for a suspect."""

    owned: Owned
    key: str
    """The key of the orphan's row: the name of the object, or the provider's id for it if it has no name."""
    proof: Stray.Proof
    made: Proven | None = None
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What to do with an orphan now (`destroy`, `adopt`, or empty for nothing), and a sentence that explains why."""

    act: str = ""
    message: str = ""


def classify(owned: Owned, here: Standing) -> Classification:
    """Classify an object by its tags and by the name under which it was created."""
    made = proven(owned.tags, here.short)
    key = (owned.key or str(owned.facts.get("instance_id") or "without a name"))[:255]
    if made is None:
        return Classification(owned=owned, key=key, proof=SUSPECT, why=WRONG_PROOF)
    if owned.key != specs.key_of(here, made):
        return Classification(owned=owned, key=key, proof=SUSPECT, why=COPY.format(key=specs.key_of(here, made)))
    if not owned.named:
        return Classification(owned=owned, key=key, proof=UNNAMED, made=made, why=BY_TAG)
    return Classification(owned=owned, key=key, proof=PROVEN, made=made)


def verdict(
    seen: Classification, *, wanted: str = "", by: str = "", again: bool, suspended: bool, dry_run: bool
) -> Verdict:  # fmt: skip
    """Return what to do with an object that belongs to no resource.

    `wanted` is the action that operator `by` requested. `again` is True if the object was first seen long enough ago.
    If `dry_run` is true, only requested actions are carried out.
    """
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


log = logging.getLogger(__name__)

_SOON = 5.0
"""Time in seconds until the next search while an orphan is being destroyed."""
LATER = (
    "{blueprint} has the object {key}, which this installation created for a resource that the "
    "database has never had. The database was restored from an older backup."
)


_TURNS = TokenLease(table="leases_search", capability=Lists, hint="orphans")


def due() -> int:
    """Ask workers to search for orphans of every blueprint whose search is due. Return the number of blueprints."""
    return _TURNS.ask()


def search(blueprint_id: int) -> bool:
    """Compare the objects at the provider with our resources, and act on orphans.

    Returns False if nothing was compared, because the search is not due or another process is searching.
    """
    refuse_inside_transaction("search")
    blueprint = Blueprint.objects.filter(pk=blueprint_id).first()
    token = None if blueprint is None else _TURNS.take(blueprint_id)
    if blueprint is None or token is None:
        return False
    here = installation.current()
    until = clock.monotonic() + settings.DRYDOCK.step_token_seconds / 2
    with about(blueprint=blueprint.name):
        began = rows("SELECT clock_timestamp()")[0][0]
        view, found, problem = _look(blueprint, here)
        seen = [] if found is None else [classify(one, here) for one in found if _ours_to_judge(blueprint, one)]
        busy = view is not None and found is not None and _compare(blueprint, view, seen, here, began, until)
    after = min(_SOON, settings.DRYDOCK.orphan_interval_seconds) if busy else settings.DRYDOCK.orphan_interval_seconds
    count = None if found is None else Stray.objects.filter(blueprint=blueprint).count()
    _TURNS.done(blueprint_id, token=token, after=after, problem=problem, found=count)
    return True


def soon(blueprint_id: int) -> None:
    """Make the next orphan search of a blueprint due now, because an operator requested an action on an orphan."""
    run("UPDATE leases_search SET due_at = clock_timestamp() WHERE blueprint_id = %s", (blueprint_id,))
    hints.after_commit("orphans", blueprint_id)


def _look(blueprint: Blueprint, here: Standing) -> tuple[BlueprintView | None, Sequence[Owned] | None, str]:
    """Return the blueprint and the objects with this installation's tag, or None and why they could not be listed.

    If the provider cannot be reached, no object counts as gone.
    """
    kind = registry.kind(blueprint.kind)
    assert isinstance(kind, Lists)
    try:
        view = specs.blueprint_view(blueprint, secrets=True)
    except DrydockError as error:
        return None, None, str(error)[:2000]
    with hidden(view.credentials):
        try:
            return view, kind.owned(view, here.short), ""
        except Exception as error:
            log.warning("The search for orphans at %s failed: %s", blueprint.name, error)
            return None, None, redact(f"{type(error).__name__}: {error}")[:2000]


def _compare(
    blueprint: Blueprint,
    view: BlueprintView,
    seen: Sequence[Classification],
    here: Standing,
    began: dt.datetime,
    until: float,
) -> bool:
    """Act on all objects that were found. Return True if a destruction is under way or was left to the next search."""
    for one in seen:
        if one.made is not None and _from_later(one.made, here):
            installation.suspend(LATER.format(blueprint=blueprint.name, key=one.key))
            here = installation.current()
    # If a proven and an unproven object share a name, the proven one counts, because destruction is by name.
    known = _with_rows(seen, here, began)
    ranked = sorted(seen, key=lambda one: one.proof is PROVEN)
    strays = {one.key: one for one in ranked if one.proof is SUSPECT or one.key not in known}
    _forget(blueprint, set(strays))
    return any([_judge(blueprint, view, one, here, until) for one in strays.values()])


def _ours_to_judge(blueprint: Blueprint, owned: Owned) -> bool:
    """Return whether this blueprint is responsible for an object: it made the object, or no existing blueprint did."""
    name = owned.tags.get(BLUEPRINT, "")
    return name == blueprint.name or not Blueprint.objects.filter(name=name, kind=blueprint.kind).exists()


def _from_later(made: Proven, here: Standing) -> bool:
    """Return whether an object was created after the latest time of which this database knows."""
    return made.epoch > here.epoch or (made.epoch == here.epoch and not installation.ever_made(made.resource))


def _with_rows(seen: Sequence[Classification], here: Standing, began: dt.datetime) -> set[str]:
    """Return the names of objects that belong to a resource, or were adopted by one.

    Includes resources that were deleted during the search, because their objects may have been listed before.
    """
    made = {one.key: one.made for one in seen if one.made is not None}
    there = Resource.objects.filter(Q(gone_at=None) | Q(gone_at__gte=began))
    ids = set(there.filter(pk__in=[one.resource for one in made.values()]).values_list("pk", flat=True))
    own = {key for key, one in made.items() if one.resource in ids and here.epoch_of("r", one.resource) == one.epoch}
    adopted = there.filter(origin=Resource.Origin.ADOPTED, identity__in=made)
    return own | {identity for identity in adopted.values_list("identity", flat=True) if identity}


def _forget(blueprint: Blueprint, keys: set[str]) -> None:
    """Delete the rows of orphans that no longer exist or that belong to a resource after all."""
    for stray in Stray.objects.filter(blueprint=blueprint).exclude(key__in=keys):
        stray.delete()
        record_event("orphan.gone", f"{stray.key} no longer exists.", actor="orphans", blueprint_id=blueprint.pk)


_AGE = "SELECT extract(epoch FROM clock_timestamp() - first_seen_at)::float8 FROM leases_stray WHERE id = %s"


def _judge(blueprint: Blueprint, view: BlueprintView, seen: Classification, here: Standing, until: float) -> bool:
    """Store a found object, and act on the verdict. Return True if the next search should be soon."""
    stray, new = _kept(blueprint, seen)
    again = not new and rows(_AGE, (stray.pk,))[0][0] >= settings.DRYDOCK.orphan_apart_seconds
    said = verdict(
        seen, wanted=stray.wanted, by=stray.wanted_by, again=again, suspended=bool(here.problem),
        dry_run=settings.DRYDOCK.orphan_dry_run,
    )  # fmt: skip
    Stray.objects.filter(pk=stray.pk).update(
        seen_at=Now(), sightings=F("sightings") + (0 if new else 1),
        **({"message": said.message} if said.message else {}), **_about(blueprint, seen),
    )  # fmt: skip
    if not said.act or seen.made is None:
        return False
    if clock.monotonic() >= until:
        return True
    stray.refresh_from_db()
    if said.act == Stray.Wanted.ADOPT:
        adopt(stray, blueprint, seen.owned, seen.made)
        return False
    dispose(stray, blueprint, view, seen.owned)
    return True


def _kept(blueprint: Blueprint, seen: Classification) -> tuple[Stray, bool]:
    """Return the row of a found object, and whether the row is new.

    The row is replaced by a new one if a suspect is now proven to be ours, or the reverse.
    """
    Stray.objects.filter(blueprint=blueprint, key=seen.key).exclude(proof=seen.proof).delete()
    made = seen.made or Proven(epoch=0, resource=0)
    stray, new = Stray.objects.get_or_create(
        blueprint=blueprint, key=seen.key,
        defaults={"epoch": made.epoch, "resource_number": made.resource, "proof": seen.proof},
    )  # fmt: skip
    if new:
        details = {"key": seen.key, "resource": made.resource, "epoch": made.epoch, "what": seen.owned.what}
        if seen.proof is SUSPECT:
            record_event("orphan.suspect", seen.why, actor="orphans", blueprint_id=blueprint.pk, details=details)
        else:
            said = f"{seen.key} belongs to no resource."
            record_event("orphan.seen", said, actor="orphans", blueprint_id=blueprint.pk, details=details)
    return stray, new


def _about(blueprint: Blueprint, seen: Classification) -> dict[str, Any]:
    """Return the columns that describe an orphan: the facts that its provider reports, and its hourly price."""
    facts = dict(seen.owned.facts)
    return {
        "what": seen.owned.what[:255], "facts": facts, "made_at": seen.owned.since,
        "price": price_of(blueprint, facts) if facts.get("type") else None,
    }  # fmt: skip
