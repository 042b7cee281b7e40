"""Drafts of the resources that a fake blueprint could build, and of those registered or discovered."""

from __future__ import annotations

import json

from blueprints.amounts import Amounts
from blueprints.answers import Health, Json
from blueprints.fake.config import MATCHES, Config, Offer, Registration, merged
from blueprints.fake.provider import Provider
from blueprints.identities import real
from blueprints.matching import misses
from blueprints.reports import Report
from blueprints.specs import Asked, Draft, Part


def offered(config: Config) -> list[Draft]:
    """Return one draft for every offer, in the config's order; a single draft if there are no offers."""
    return [_draft(config, offer) for offer in config.offers or (Offer(offer=""),)]


def fits(draft: Draft, asked: Asked) -> bool:
    """Return whether an empty resource made from the draft could take the lease."""
    required = asked.requirements.model_dump(mode="json")
    return (
        asked.amounts.fits_in(draft.capacity)
        and not misses(MATCHES, draft.attributes, required)
        and asked.traits <= draft.traits
        and not asked.forbidden_traits & draft.traits
    )


def registered(config: Config, registration: Registration) -> Draft:
    """Return the draft of a resource that is registered by hand."""
    return Draft(
        name=registration.name,
        identity=registration.identity or registration.name,
        identities=real(registration.identities),
        attributes=merged(config.attributes, registration.attributes),
        capacity=(registration.capacity or config.capacity).amounts(),
        traits=frozenset(config.traits),
        parts=_parts(config),
    )


def discovered(found: Json) -> Draft:
    """Return the draft of an object that was planted at the provider."""
    return Draft(
        **found
        | {
            "capacity": Amounts(**found["capacity"]),
            "identities": real(found.get("identities", {})),
            "parts": tuple(Part(**part) for part in found["parts"]),
            "traits": frozenset(found["traits"]),
            "locality": tuple(found.get("locality", ())),
            "health": Health(**found["health"]) if found.get("health") else None,
        }
    )


def devices(report: Report) -> list[Draft]:
    """Return one draft for each device in the hardware that an agent reports."""
    return [
        Draft(
            name=device["id"], identity=f"{report.place}/{device['id']}",
            identities=real({f"device_{name}": value for name, value in device.get("identities", {}).items()}),
            part_of=f"{report.place}/{device['part_of']}" if device.get("part_of") else "",
            capacity=Amounts(slots=1),
        )
        for device in report.content.get("devices", [])
    ]  # fmt: skip


def report(provider: Provider, place: str, page: int, size: int) -> Report:
    """Return one page of the report of a place. Raises ConnectionError while the place does not answer."""
    problem = provider.settings(f"place:{place}")
    if "silent" in problem:
        raise ConnectionError(problem["silent"])
    there = [found for found in map(json.loads, provider.planted()) if found.pop("place", "") == place]
    begin, end = page * size, (page + 1) * size
    return Report(
        place=place, content={"found": there[begin:end]}, next_page=str(page + 1) if there[end:] else "",
        incomplete=problem.get("incomplete", ""),
    )  # fmt: skip


def _draft(config: Config, offer: Offer) -> Draft:
    zone = {"zone": offer.zone} if offer.zone else {}
    return Draft(
        attributes=merged(config.attributes) | zone | merged(offer.attributes),
        capacity=(offer.capacity or config.capacity).amounts(),
        traits=frozenset(config.traits),
        parts=_parts(config),
        offer=offer.offer,
        zone=offer.zone,
        price=offer.price,
    )


def _parts(config: Config) -> tuple[Part, ...]:
    return tuple(
        Part(part_class=part.part_class, identity=f"{part.part_class}-{n}", attributes=dict(part.attributes))
        for part in config.parts
        for n in range(part.count)
    )
