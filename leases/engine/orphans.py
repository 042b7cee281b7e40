"""Orphans: things at providers that bear our proof and have no row, or one that is gone.

Every row is written before what it stands for, so there are none unless something went wrong: rows were lost with a
database, or a create was carried out after its deletion was confirmed. An orphan is destroyed by its kind's own
destroy plan when it was seen twice, some time apart; in a suspended installation it is only listed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from django.conf import settings
from django.db.models.functions import Now

from blueprints import registry
from blueprints.contract import Lists
from blueprints.models import Blueprint
from blueprints.specs import BlueprintView, Owned
from drydock.core import clock
from drydock.core.errors import DrydockError
from drydock.core.logging import about, hidden, redact
from leases.engine import installation, views
from leases.engine.disposal import dispose
from leases.engine.installation import Standing
from leases.engine.proof import BLUEPRINT, Proven, proven
from leases.engine.transaction import refuse_inside_transaction, rows
from leases.engine.transitions import note
from leases.engine.turns import Turns
from leases.models import Resource, Stray

log = logging.getLogger(__name__)

_SOON = 5.0
"""Seconds until the next search while something is being destroyed."""
LATER = (
    "At {blueprint} there is {key}, made by this installation for a resource that its database has never known:"
    " the database is older than that. It was restored."
)


_TURNS = Turns(table="leases_search", capability=Lists, hint="orphans")


def due() -> int:
    """Ask for the searches that are due."""
    return _TURNS.ask()


def search(blueprint_id: int) -> bool:
    """Compare what is there with the rows, if it is due and nobody else does; True when it was looked."""
    refuse_inside_transaction("search")
    blueprint = Blueprint.objects.filter(pk=blueprint_id).first()
    token = None if blueprint is None else _TURNS.take(blueprint_id)
    if blueprint is None or token is None:
        return False
    here = installation.current()
    until = clock.monotonic() + settings.DRYDOCK.step_token_seconds / 2
    with about(blueprint=blueprint.name):
        view, found, problem = _look(blueprint, here)
        busy = view is not None and found is not None and _compare(blueprint, view, found, here, until)
    after = min(_SOON, settings.DRYDOCK.orphan_interval_seconds) if busy else settings.DRYDOCK.orphan_interval_seconds
    count = None if found is None else Stray.objects.filter(blueprint=blueprint).count()
    _TURNS.done(blueprint_id, token, after=after, problem=problem, found=count)
    return True


def _look(blueprint: Blueprint, here: Standing) -> tuple[BlueprintView | None, Sequence[Owned] | None, str]:
    """What bears this installation's tag, or why it could not be seen; an outage is no absence."""
    kind = registry.kind(blueprint.kind)
    assert isinstance(kind, Lists)
    try:
        view = views.blueprint_view(blueprint, secrets=True)
    except DrydockError as error:
        return None, None, str(error)[:2000]
    with hidden(view.credentials):
        try:
            return view, kind.owned(view, here.short), ""
        except Exception as error:
            log.warning("Orphans at %s could not be looked for: %s", blueprint.name, error)
            return None, None, redact(f"{type(error).__name__}: {error}")[:2000]


def _compare(blueprint: Blueprint, view: BlueprintView, found: Sequence[Owned], here: Standing, until: float) -> bool:
    """Judge everything found; True while something is being destroyed, or was left for the next search."""
    orphans: dict[str, tuple[Owned, Proven]] = {}
    for owned in found:
        proof = proven(owned.tags, here.short)
        if proof is None or owned.key != views.key_of(here, proof) or not _ours_to_judge(blueprint, owned):
            continue
        if _from_later(proof, here):
            installation.suspend(LATER.format(blueprint=blueprint.name, key=owned.key))
            here = installation.current()
        if not _has_row(proof, here):
            orphans[owned.key] = (owned, proof)
    _forget(blueprint, set(orphans))
    return any([_judge(blueprint, view, owned, proof, here, until) for owned, proof in orphans.values()])


def _ours_to_judge(blueprint: Blueprint, owned: Owned) -> bool:
    """What another blueprint made at the same provider is that one's to judge, while there is one."""
    name = owned.tags.get(BLUEPRINT, "")
    return name == blueprint.name or not Blueprint.objects.filter(name=name, kind=blueprint.kind).exists()


def _from_later(proof: Proven, here: Standing) -> bool:
    """Made by this installation after the moment of which its database tells."""
    return proof.epoch > here.epoch or (proof.epoch == here.epoch and not installation.ever_made(proof.resource))


def _has_row(proof: Proven, here: Standing) -> bool:
    there = Resource.objects.filter(pk=proof.resource, gone_at=None).exists()
    return there and here.epoch_of("r", proof.resource) == proof.epoch


def _forget(blueprint: Blueprint, keys: set[str]) -> None:
    """Those that are no longer there, or have a row after all."""
    for stray in Stray.objects.filter(blueprint=blueprint).exclude(key__in=keys):
        stray.delete()
        note("orphan.gone", f"{stray.key} is no longer there.", actor="orphans", blueprint_id=blueprint.pk)


_AGE = "SELECT extract(epoch FROM clock_timestamp() - first_seen_at)::float8 FROM leases_stray WHERE id = %s"
LISTED = "Listed only, until an operator confirms the installation."
SEEN_ONCE = "Seen; destroyed when it is seen again later."


def _judge(
    blueprint: Blueprint, view: BlueprintView, owned: Owned, proof: Proven, here: Standing, until: float
) -> bool:  # fmt: skip
    stray, new = Stray.objects.get_or_create(
        blueprint=blueprint, key=owned.key, defaults={"epoch": proof.epoch, "resource_number": proof.resource}
    )
    if new:
        details = {"key": owned.key, "resource": proof.resource, "epoch": proof.epoch}
        note("orphan.seen", f"{owned.key} has no row.", actor="orphans", blueprint_id=blueprint.pk, details=details)
    old_enough = not new and rows(_AGE, (stray.pk,))[0][0] >= settings.DRYDOCK.orphan_apart_seconds
    message = LISTED if here.problem else SEEN_ONCE
    Stray.objects.filter(pk=stray.pk).update(seen_at=Now(), message=message)
    if here.problem or not old_enough:
        return False
    if clock.monotonic() < until:
        dispose(stray, blueprint, view, owned)
    return True
