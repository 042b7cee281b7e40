"""What a blueprint could build: drafts of its own making, or of the offers that its catalogue has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blueprints.contract import Builds, CatalogueStale, Kind, Offers
from blueprints.models import Blueprint
from blueprints.specs import Asked, Draft
from leases.engine import catalogue


def builds(kind: Kind) -> bool:
    """Whether the kind can build at all."""
    return isinstance(kind, Builds | Offers)


def drafts(
    blueprint: Blueprint, kind: Kind, config: Any, asked: Asked | None, *, choose: str = "",
    failing: Sequence[tuple[str, str]] = (),
) -> Sequence[Draft]:  # fmt: skip
    """What could be built for `asked` (None: to keep a minimum ready), best first. `failing`: (scope, key) of what
    failed lately; it comes last, and only where there is nothing else. Raises CatalogueStale, and what a kind raises.
    """
    if isinstance(kind, Builds):
        return kind.drafts(config, asked)
    if not isinstance(kind, Offers):
        return ()
    sought = kind.sought(config, asked)
    offers = [key for scope, key in failing if scope == "offer"]
    zones = [key for scope, key in failing if scope == "zone"]
    found = catalogue.find(blueprint.kind, sought, choose=choose, but=offers, not_in=zones)
    if not found and failing:
        found = catalogue.find(blueprint.kind, sought, choose=choose)
    if not found:
        _refuse_stale(sought.account, blueprint.kind)
    return [kind.draft(config, asked, offer) for offer in found]


def _refuse_stale(account: str, kind: str) -> None:
    """That nothing was found tells nothing as long as the catalogue was not read, or cannot be read now. Raises
    CatalogueStale."""
    trouble = catalogue.trouble(account, kind)
    if not catalogue.was_read(account, kind):
        raise CatalogueStale(f"its catalogue is not read yet{f': {trouble}' if trouble else ''}")
    if trouble:
        raise CatalogueStale(f"its catalogue offers nothing that fits, and cannot be read now: {trouble}")
