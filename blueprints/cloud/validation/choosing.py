"""Choose the machine for a validation and compute its maximum cost. Creates nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from blueprints.cloud.client import Client
from blueprints.cloud.validation.suite import CHEAP, CHECKS
from blueprints.cloud.validation.values import Wish
from blueprints.cloud.values import InstanceType, Location, Market
from drydock.core.errors import InvalidRequest

_LEAST_MIB = 900
"""Minimum memory in MiB, because current images need about a gigabyte."""
_DISK_GIB = 10


@dataclass(frozen=True, kw_only=True)
class Asking:
    """The operator's wishes. Empty fields mean the cheapest suitable type, in the first available place."""

    image: Mapping[str, str]
    """Image selectors, in the form that `Client.image` takes."""
    location: str = ""
    type: str = ""
    other_type: str = ""
    arch: str = "x86_64"
    max_price: float | None = None
    """Maximum price of each machine in US dollars per hour."""
    disk_gib: int = 0
    network: str = ""
    user: str = "drydock"
    ssh_port: int = 22
    ssh_from: tuple[str, ...] = ("0.0.0.0/0",)
    public_address: bool = True
    image_pattern: str = ""
    kept_types: tuple[str, ...] = field(default=())


def choose(client: Client, asked: Asking) -> Wish:
    """Choose the machine that the checks use. Raises InvalidRequest if none is suitable, CloudError."""
    place = _place(client, asked)
    found = {one.name: one for one in client.types(place.name) if one.location == place.name and one.available}
    fitting = sorted((one for one in found.values() if _fits(one, asked)), key=_cost)
    first = _named(found, asked.type, "type") if asked.type else _first(fitting, place, asked)
    shared = [one for one in fitting if one.name != first.name and _meet(one, first)]
    other = _named(found, asked.other_type, "other_type") if asked.other_type else next(iter(shared), None)
    _affordable(asked, first, other)
    zones = sorted(set(first.zones) & set(other.zones if other else first.zones)) or sorted(first.zones)
    image = client.image(place.name, asked.image, first.arch)
    return Wish(
        location=place.name, zone=zones[0] if zones else "", type=first.name,
        other_type=other.name if other else "", image=image, arch=first.arch, price=_dearest(first, other),
        disk_gib=asked.disk_gib or max(_DISK_GIB, image.disk_gib), user=asked.user, ssh_port=asked.ssh_port,
        ssh_from=asked.ssh_from, network=asked.network, public_address=asked.public_address,
        image_pattern=asked.image_pattern, kept_types=asked.kept_types,
    )  # fmt: skip


def cost(wish: Wish, wanted: Collection[str]) -> float | None:
    """Return the maximum cost per hour in US dollars, without disks and addresses.

    This is the cost of the main machine, and of the most expensive additional machine that a check creates. Return None
    if a price is unknown.
    """
    if wish.price is None:
        return None
    beside = max((one.makes for one in CHECKS if one.name in wanted), default=0)
    return wish.price * (machines(wanted) and 1 + beside)


def machines(wanted: Collection[str]) -> int:
    """Return the maximum number of machines that are created."""
    spending = set(wanted) - set(CHEAP) - {"nothing-left"}
    with_main = any(one.name == "create" or one.after for one in CHECKS if one.name in spending)
    return with_main + sum(one.makes for one in CHECKS if one.name in spending)


def _place(client: Client, asked: Asking) -> Location:
    usable = [one for one in client.locations() if one.available]
    found = next((one for one in usable if asked.location in ("", one.name)), None)
    if found is None:
        there = ", ".join(one.name for one in usable) or "none"
        raise InvalidRequest(
            f"Location {asked.location!r} does not exist or is not available.",
            field="region",
            hint=f"Choose one of: {there}.",
        )
    return found


def _named(found: Mapping[str, InstanceType], name: str, where: str) -> InstanceType:
    if name not in found:
        raise InvalidRequest(f"Instance type {name!r} is not available in the chosen location.", field=where)
    return found[name]


def _first(fitting: Sequence[InstanceType], place: Location, asked: Asking) -> InstanceType:
    if not fitting:
        limit = f" for at most ${asked.max_price:g} per hour" if asked.max_price is not None else ""
        raise InvalidRequest(
            f"{place.name} has no {asked.arch} instance type with a price{limit}.",
            field="type",
            hint="Name an instance type with --type.",
        )
    return fitting[0]


def _fits(one: InstanceType, asked: Asking) -> bool:
    price = _price(one)
    cheap = price is not None and (asked.max_price is None or price <= asked.max_price)
    return cheap and one.arch == asked.arch and one.ram_mib >= _LEAST_MIB and one.stoppable and not one.gpus


def _meet(one: InstanceType, first: InstanceType) -> bool:
    """Return whether a machine could change from one type to the other: they share a zone and belong to one series."""
    return bool(set(one.zones) & set(first.zones) or one.zones == first.zones) and _series(one) == _series(first)


def _series(one: InstanceType) -> tuple[str, str]:
    """Return the part of a type's name for which disks and drivers are the same.

    That is the family or, for `t3.micro` and `e2-small`, the part before the size.
    """
    return one.family, one.name.replace(".", "-").rpartition("-")[0]


def _price(one: InstanceType) -> float | None:
    return max((price.per_hour for price in one.prices if price.market is Market.ON_DEMAND), default=None)


def _cost(one: InstanceType) -> tuple[float, str]:
    return _price(one) or 0.0, one.name


def _dearest(first: InstanceType, other: InstanceType | None) -> float | None:
    known = [_price(one) for one in (first, other) if one is not None]
    return None if None in known else max(price for price in known if price is not None)


def _affordable(asked: Asking, *chosen: InstanceType | None) -> None:
    for one in chosen:
        price = None if one is None else _price(one)
        if one is not None and asked.max_price is not None and (price is None or price > asked.max_price):
            said = "is not known" if price is None else f"is ${price:g}"
            raise InvalidRequest(f"The price of {one.name} {said}; at most ${asked.max_price:g} is allowed.",
                                 field="max_price")  # fmt: skip
