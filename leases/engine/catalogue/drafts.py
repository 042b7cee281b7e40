"""Draft machines from offers, and plan how a machine changes to another instance type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from blueprints.amounts import amount
from blueprints.contract import Allows, Builds, CatalogueStale, Kind, Offers
from blueprints.models import Blueprint
from blueprints.offers import Offer, Sought
from blueprints.specs import Asked, Draft
from drydock.core.errors import Conflict, InvalidRequest
from leases.engine.catalogue import offers as catalogue
from leases.engine.catalogue import provider_quotas
from leases.models import Resource


def builds(kind: Kind) -> bool:
    """Return whether this kind can build resources."""
    return isinstance(kind, Builds | Offers)


def drafts(
    blueprint: Blueprint, kind: Kind, config: Any, asked: Asked | None, *, choose: str = "",
    failing: Sequence[tuple[str, str]] = (),
) -> Sequence[Draft]:  # fmt: skip
    """Return drafts of the resources that the blueprint could build for a request, best first.

    If `asked` is None, the drafts are those that keep the blueprint's minimum of idle resources. `failing` contains the
    (scope, key) pairs of remembered errors. Drafts that one of these errors excludes, or that exceed a provider quota
    (`Draft.refused`), are returned only if there are no others.

    Raises CatalogueStale, and any exception of the kind.
    """
    if isinstance(kind, Builds):
        return kind.drafts(config, asked)
    if not isinstance(kind, Offers):
        return ()
    sought = kind.sought(config, asked)
    offers = [key for scope, key in failing if scope == "offer"]
    zones = [key for scope, key in failing if scope == "zone"]
    full = [key for scope, key in failing if scope == "location"]
    left = provider_quotas.left(sought.account, blueprint.kind) if isinstance(kind, Allows) else []
    room = provider_quotas.room(left, sought)
    found = catalogue.find(blueprint.kind, sought, choose=choose, but=offers, not_in=zones, not_counted=full, room=room)
    if not found and (failing or room is not None):
        found = catalogue.find(blueprint.kind, sought, choose=choose)
    if not found:
        _refuse_stale(sought.account, blueprint.kind)
    return [_draft(kind, config, asked, offer, provider_quotas.refusal(left, sought, offer)) for offer in found]


def _draft(kind: Offers, config: Any, asked: Asked | None, offer: Offer, refused: str) -> Draft:
    draft = kind.draft(config, asked, offer)
    return replace(draft, refused=refused) if refused else draft


def _refuse_stale(account: str, kind: str) -> None:
    """Raise CatalogueStale if the catalogue was never read or its last poll failed, so that no offers prove nothing."""
    trouble = catalogue.trouble(account, kind)
    if not catalogue.was_read(account, kind):
        raise CatalogueStale(f"its catalogue has not been read yet{f': {trouble}' if trouble else ''}")
    if trouble:
        raise CatalogueStale(f"its catalogue has no matching offer, and reading it again failed: {trouble}")


_KEPT = ("region", "zone", "image", "isolation", "continent", "arch", "market")
"""Attributes that a machine keeps when its instance type changes."""
_OF_OFFER = ("family", "price_source")
"""Facts that a machine takes from its offer, and that change with the offer."""


def type_of(resource: Resource) -> str:
    """Return the provider's name for the machine's instance type, or an empty string if the machine has none."""
    return _said(resource)[0]


def _said(resource: Resource) -> tuple[str, str]:
    """Return the instance type and the market from the name of a machine's offer (place/type/market).

    Both are empty if the machine has no offer.
    """
    place, offer = f"{resource.zone}/", resource.offer
    if not resource.zone or not offer.startswith(place):
        return "", ""
    type_name, _, market = offer.removeprefix(place).rpartition("/")
    return type_name, market


def retyped(resource: Resource, kind: Kind, config: Any, type_name: str) -> dict[str, Any]:
    """Return the arguments for the run that changes a machine to another instance type.

    Raises InvalidRequest if the machine already has that instance type, if its zone does not offer the instance type,
    or if the leases on the machine would not fit. Raises Conflict if the machine was not built from an offer.
    """
    was, market = _said(resource)
    if not isinstance(kind, Offers) or not was:
        raise Conflict(f"{resource.name} was not built from an offer, so its instance type cannot be changed.")
    if type_name == was:
        raise InvalidRequest(f"{resource.name} is already a {was}.", field="type_name")
    sought = replace(kind.sought(config, None), names=(type_name,), markets=(market,))
    offer = _offered(resource, kind.name, sought)
    _refuse_another(resource, offer)
    draft = kind.draft(config, None, offer)
    _refuse_too_small(resource, draft)
    before = _there(resource, kind.name, replace(sought, names=(was,)))
    gone = set() if before is None else set(kind.draft(config, None, before).attributes) - set(draft.attributes)
    return {
        "type": type_name, "from": was, "power": "off" if "off" in (resource.power, resource.power_wanted) else "on",
        "draft": _kept(draft, sorted(gone - set(_KEPT))),
    }  # fmt: skip


def _offered(resource: Resource, kind: str, sought: Sought) -> Offer:
    if (found := _there(resource, kind, sought)) is not None:
        return found
    anywhere = replace(sought, types=(), arch="", max_price=None, locations=(), zones=())
    known = _there(resource, kind, anywhere)
    name = sought.names[0]
    if known is not None and sought.arch and known.arch != sought.arch:
        raise _another(resource, known)
    why = "the blueprint does not allow it" if known is not None else f"it is not offered in {resource.zone}"
    raise InvalidRequest(
        f"{resource.name} cannot change to instance type {name!r}: {why}.",
        field="type_name",
        hint="Run `drydock offers` to list the available types.",
    )


def _there(resource: Resource, kind: str, sought: Sought) -> Offer | None:
    """Return the first matching offer in the machine's own zone, or None if there is none."""
    return next((one for one in catalogue.find(kind, sought, limit=500) if one.place == resource.zone), None)


def _refuse_another(resource: Resource, offer: Offer) -> None:
    if offer.arch != resource.attributes.get("arch", offer.arch):
        raise _another(resource, offer)
    lost = sorted(set(resource.traits) & {"sev", "sev_snp", "tdx"} - set(offer.confidential))
    if lost:
        raise InvalidRequest(
            f"Instance type {offer.type} lacks {', '.join(lost)}, which the machine has.", field="type_name"
        )


def _another(resource: Resource, offer: Offer) -> InvalidRequest:
    arch = resource.attributes.get("arch", "a different architecture")
    return InvalidRequest(f"Instance type {offer.type} is {offer.arch}, but the machine is {arch}.", field="type_name")


def _refuse_too_small(resource: Resource, draft: Draft) -> None:
    """Raise InvalidRequest if the current shares would not fit on the new instance type.

    An exclusive lease fits on any type, because it takes the whole machine.
    """
    if resource.held_alone:
        return
    there = draft.capacity
    used = {"cpu_millicores": resource.used_cpu_millicores, "ram_mib": resource.used_ram_mib}
    short = {name: (n, getattr(there, name)) for name, n in used.items() if n > getattr(there, name)}
    for further in resource.capacities.all():
        if further.used > there.extra.get(further.name, 0):
            short[further.name] = (further.used, there.extra.get(further.name, 0))
    if short:
        said = ", ".join(
            f"{amount(name, n)} leased, {amount(name, has)} on the new instance type"
            for name, (n, has) in short.items()
        )
        raise InvalidRequest(
            f"The instance type is too small for the leases on the machine: {said}.", field="type_name"
        )


def _kept(draft: Draft, gone: list[str]) -> Mapping[str, Any]:
    """Return the parts of the draft that the machine takes over. Its slots and disk remain unchanged."""
    return {
        "offer": draft.offer, "price": draft.price, "gone": gone,
        "attributes": {name: value for name, value in draft.attributes.items() if name not in _KEPT},
        "facts": {name: value for name, value in draft.facts.items() if name in _OF_OFFER},
        "cpu_millicores": draft.capacity.cpu_millicores, "ram_mib": draft.capacity.ram_mib,
        "extra": dict(draft.capacity.extra),
    }  # fmt: skip
