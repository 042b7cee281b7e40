"""Offers from a provider's types, catalogue queries from requests, and drafts from offers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeAlias

from blueprints.amounts import Amounts
from blueprints.answers import Json
from blueprints.cloud.config import CloudAttributes, CloudConfig, CloudRequirements
from blueprints.cloud.values import CONTINENTS, Confidential, Gpu, InstanceType, Market, Price, Quota, countries_of
from blueprints.hosts import stated
from blueprints.offers import Allowance, Offer, Sought
from blueprints.specs import Asked, Draft

_TRAITS = {one.value for one in Confidential}


def offers(found: InstanceType, *, spot: bool) -> Iterator[Offer]:
    """Yield an offer for each zone and market of a type."""
    for zone in found.zones or ("",):
        for market in Market if spot else (Market.ON_DEMAND,):
            price = _price(found, zone, market)
            if market is Market.ON_DEMAND or price is not None:
                yield _offer(found, zone, market, price)


def _price(found: InstanceType, zone: str, market: Market) -> Price | None:
    """Return the price in a zone, else that of the location, or None."""
    known = {price.zone: price for price in found.prices if price.market is market}
    return known.get(zone) or known.get("")


def _offer(found: InstanceType, zone: str, market: Market, price: Price | None) -> Offer:
    gpu = found.gpus[0] if found.gpus else Gpu(maker="", model="", count=0)
    return Offer(
        location=found.location,
        type=found.name,
        zone=zone,
        market=market.value,
        price=None if price is None else price.per_hour,
        price_source="" if price is None else price.source,
        vcpus=found.vcpus,
        ram_mib=found.ram_mib,
        arch=found.arch,
        gpu_maker=gpu.maker,
        gpu_model=gpu.model,
        gpu_count=gpu.count,
        gpu_memory_mib=gpu.memory_mib,
        local_disk_gib=found.local_disk_gib,
        network=found.network[:128],
        confidential=tuple(sorted(found.confidential)),
        family=" ".join(filter(None, (found.family, *found.families))),
        boot_seconds=found.boot_seconds,
        available=found.available,
    )


def allowances(found: Iterable[Quota]) -> list[Allowance]:
    """Convert a provider's quotas to the catalogue's form."""
    return [
        Allowance(
            name=one.name, location=one.location, limit=one.limit, used=one.used, unit=one.unit, family=one.family,
            market=one.market.value if one.market else "",
        ) for one in found
    ]  # fmt: skip


def sought(config: CloudConfig, asked: Asked | None) -> Sought:
    """Return the catalogue query: the offers that the blueprint allows, narrowed by the request."""
    allowed = Sought(
        account=config.credential, locations=config.regions, zones=config.zones, types=config.types,
        markets=config.markets, arch=config.arch, max_price=config.max_price, addresses=int(config.public_address),
    )  # fmt: skip
    if asked is None:
        return allowed
    wants: CloudRequirements = asked.requirements
    return replace(
        allowed,
        locations=_both(config.regions, wants.region),
        zones=_both(config.zones, wants.zone),
        names=wants.instance_type or (),
        countries=countries_of(wants.continent) if wants.continent else (),
        markets=_both(config.markets, wants.market),
        arch=wants.arch or config.arch,
        amounts=_least(asked, wants),
        gpu_maker=wants.gpu_maker or "",
        gpu_model=wants.gpu or "",
        gpu_count=wants.min_gpus or 0,
        gpu_memory_mib=wants.min_gpu_memory_mib or 0,
        confidential=tuple(sorted(asked.traits & _TRAITS)),
        max_price=_max_price(config, asked),
    )


_NOWHERE = ("-",)


def _both(allowed: tuple[str, ...], wanted: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the names that are in both tuples. An empty tuple allows all names.

    If they have nothing in common, return a name that matches nothing in the catalogue.
    """
    if not wanted:
        return allowed
    if not allowed:
        return wanted
    return tuple(name for name in wanted if name in allowed) or _NOWHERE


def _least(asked: Asked, wants: CloudRequirements) -> Amounts:
    """Return the smallest machine that could hold the request."""
    cpu = max(asked.amounts.cpu_millicores, 1000 * (wants.min_vcpus or 0))
    return Amounts(cpu_millicores=cpu, ram_mib=max(asked.amounts.ram_mib, wants.min_ram_mib or 0))


Surcharge: TypeAlias = Callable[[Offer], float | None]
"""Returns the extra cost of a confidential guest on an offer, in US dollars per hour; None if unknown."""


def draft(config: CloudConfig, asked: Asked | None, offer: Offer, surcharge: Surcharge) -> Draft:
    """Return the draft of a machine for an offer.

    A confidential technology is used only if it is required or preferred. Its surcharge is included in the price, or
    the price's source says that it is not.
    """
    wanted = frozenset() if asked is None else asked.traits | (asked.preferred_traits - asked.forbidden_traits)
    used = [one for one in offer.confidential if one in wanted][:1]
    offer = _with_surcharge(offer, used[0], surcharge(offer)) if used else offer
    disk_gib, most = _disk(config, asked), _max_price(config, asked)
    beyond = most is not None and offer.price is not None and offer.price > most
    return Draft(
        attributes=_attributes(config, asked, offer),
        capacity=Amounts(
            slots=config.slots, cpu_millicores=1000 * offer.vcpus, ram_mib=offer.ram_mib,
            disk_mib=1024 * disk_gib, extra={"gpu": offer.gpu_count} if offer.gpu_count else {},
        ),
        traits=frozenset(used),
        facts={
            "family": offer.family, "price_source": offer.price_source, "disk_gib": disk_gib,
            **({} if most is None else {"max_price": most}),
        },
        refused=f"it costs ${offer.price:g}/h ({offer.price_source}), more than ${most:g}/h" if beyond else "",
        offer=offer.name,
        zone=offer.place,
        counted=offer.counted,
        price=offer.price,
        boot_seconds=offer.boot_seconds,
        lives=config.longest_seconds or None,
    )  # fmt: skip


def _with_surcharge(offer: Offer, technology: str, more: float | None) -> Offer:
    if more is None or offer.price is None:
        return replace(offer, price_source=f"{offer.price_source}, without the surcharge for {technology}")
    if not more:
        return offer
    source = f"{offer.price_source}, with the surcharge for {technology}"
    return replace(offer, price=round(offer.price + more, 6), price_source=source)


def _max_price(config: CloudConfig, asked: Asked | None) -> float | None:
    """Return the lower of the blueprint's and the lease's maximum price, or None if neither has one."""
    wanted = None if asked is None else asked.requirements.max_price
    return min((one for one in (config.max_price, wanted) if one is not None), default=None)


def _disk(config: CloudConfig, asked: Asked | None) -> int:
    """Return the size of the boot disk in GiB, or 0 for the size of the image."""
    wanted = 0 if asked is None else -(-asked.amounts.disk_mib // 1024)
    return max(config.disk_gib or 0, wanted)


def _attributes(config: CloudConfig, asked: Asked | None, offer: Offer) -> Json:
    said = CloudAttributes(
        arch=offer.arch,
        os="linux",
        region=offer.location,
        zone=offer.zone or None,
        vcpus=offer.vcpus,
        ram_mib=offer.ram_mib,
        isolation=config.isolation,
        instance_type=offer.type,
        market="spot" if offer.market == Market.SPOT else "on_demand",
        price=offer.price,
        continent=CONTINENTS.get(offer.country),
        gpu=offer.gpu_model or None,
        gpu_maker=offer.gpu_maker or None,
        gpu_count=offer.gpu_count or None,
        gpu_memory_mib=offer.gpu_memory_mib or None,
        image=None if asked is None else asked.requirements.image,
        user_data=None if asked is None else config.user_data_for(asked.requirements.user_data),
    )
    return stated(said)
