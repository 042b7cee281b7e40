"""What a blueprint could build: drafts of its own making, or of the offers that its catalogue has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from blueprints.contract import Allows, Builds, CatalogueStale, Kind, Offers
from blueprints.models import Blueprint
from blueprints.offers import Offer
from blueprints.specs import Asked, Draft
from leases.engine import allowances, catalogue


def builds(kind: Kind) -> bool:
    """Whether the kind can build at all."""
    return isinstance(kind, Builds | Offers)


def drafts(
    blueprint: Blueprint, kind: Kind, config: Any, asked: Asked | None, *, choose: str = "",
    failing: Sequence[tuple[str, str]] = (),
) -> Sequence[Draft]:  # fmt: skip
    """What could be built for `asked` (None: to keep a minimum ready), best first. `failing`: (scope, key) of what
    failed lately; it comes last, and only where there is nothing else, as does what the account may not have now
    (`Draft.refused`). Raises CatalogueStale, and what a kind raises.
    """
    if isinstance(kind, Builds):
        return kind.drafts(config, asked)
    if not isinstance(kind, Offers):
        return ()
    sought = kind.sought(config, asked)
    offers = [key for scope, key in failing if scope == "offer"]
    zones = [key for scope, key in failing if scope == "zone"]
    full = [key for scope, key in failing if scope == "location"]
    left = allowances.left(sought.account, blueprint.kind) if isinstance(kind, Allows) else []
    room = allowances.room(left, sought)
    found = catalogue.find(blueprint.kind, sought, choose=choose, but=offers, not_in=zones, not_counted=full, room=room)
    if not found and (failing or room is not None):
        found = catalogue.find(blueprint.kind, sought, choose=choose)
    if not found:
        _refuse_stale(sought.account, blueprint.kind)
    return [_draft(kind, config, asked, offer, allowances.refusal(left, sought, offer)) for offer in found]


def _draft(kind: Offers, config: Any, asked: Asked | None, offer: Offer, refused: str) -> Draft:
    draft = kind.draft(config, asked, offer)
    return replace(draft, refused=refused) if refused else draft


def _refuse_stale(account: str, kind: str) -> None:
    """That nothing was found tells nothing as long as the catalogue was not read, or cannot be read now. Raises
    CatalogueStale."""
    trouble = catalogue.trouble(account, kind)
    if not catalogue.was_read(account, kind):
        raise CatalogueStale(f"its catalogue is not read yet{f': {trouble}' if trouble else ''}")
    if trouble:
        raise CatalogueStale(f"its catalogue offers nothing that fits, and cannot be read now: {trouble}")
