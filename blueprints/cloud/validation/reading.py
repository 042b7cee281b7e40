"""Checks that make nothing: identity, locations, types, prices, quotas and images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from blueprints.cloud.client import Api, MachineImage, Quotas
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.validation.environment import Environment
from blueprints.cloud.validation.waiting import LeftOut, expect
from blueprints.cloud.values import InstanceType, Market
from blueprints.hosts import architecture


def identity(environment: Environment) -> str:
    """Who we are there."""
    first, second = (environment.ask(environment.client.identity) for _ in range(2))
    expect(first, "The account has no name.")
    expect(first == second, f"The account is {first!r} once, and {second!r} the next time.")
    return first


def locations(environment: Environment) -> str:
    """Places that the account may use."""
    found = environment.ask(environment.client.locations)
    names = [one.name for one in found]
    expect(found, "There is no location.")
    expect(len(set(names)) == len(names), "Two locations have one name.")
    expect(all(names), "A location has no name.")
    usable = [one.name for one in found if one.available]
    expect(usable, f"None of {len(found)} locations is available.")
    expect(environment.wish.location in usable, f"{environment.wish.location} is not among the available ones.")
    return f"{len(usable)} of {len(found)} are available"


def types(environment: Environment) -> str:
    """What can be had."""
    first, second = _types(environment), _types(environment)
    expect(first, "There is no instance type.")
    ids = [one.id for one in first]
    expect(len(set(ids)) == len(ids), "Two types have one id.")
    for one in first:
        _sane(one)
    before, after = ({one.id: _kept(one) for one in found} for found in (first, second))
    differ = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    expect(not differ, f"Asked twice, these differ: {', '.join(differ[:5])}.")
    _narrower(environment, first)
    lost = sorted(set(environment.wish.kept_types) - set(ids))
    expect(not lost, f"These are gone, or have another id: {', '.join(lost)}.")
    return f"{len(first)} types"


def _types(environment: Environment) -> Sequence[InstanceType]:
    everywhere = environment.client.api is Api.GLOBAL
    return environment.ask(environment.client.types, "" if everywhere else environment.wish.location)


def _narrower(environment: Environment, everything: Sequence[InstanceType]) -> None:
    here = environment.ask(environment.client.types, environment.wish.location)
    expect(here, f"There is none in {environment.wish.location}.")
    elsewhere = [one.id for one in here if one.location != environment.wish.location]
    expect(not elsewhere, f"Asked for {environment.wish.location}, it told of {', '.join(elsewhere[:5])}.")
    more = {one.id for one in here} - {one.id for one in everything}
    expect(not more, f"A location alone has types that all locations have not: {', '.join(sorted(more)[:5])}.")


def _kept(one: InstanceType) -> dict[str, Any]:
    """What is the same from one call to the next."""
    return asdict(replace(one, prices=(), available=True, boot_seconds=None, zones=tuple(sorted(one.zones))))


def _sane(one: InstanceType) -> None:
    expect(one.name and one.location, f"A type lacks a name or a location: {one.id}.")
    expect(one.vcpus > 0 and one.ram_mib > 0, f"{one.id} has {one.vcpus} vCPUs and {one.ram_mib} MiB.")
    expect(one.arch and one.arch == architecture(one.arch), f"{one.id} has the architecture {one.arch!r}.")
    expect(one.local_disk_gib >= 0, f"{one.id} has a disk of {one.local_disk_gib} GiB.")
    expect(all(gpu.count > 0 and gpu.model for gpu in one.gpus), f"{one.id} has a GPU without model or count.")


def prices(environment: Environment) -> str:
    """What it costs, and who says so."""
    found = environment.ask(environment.client.types, environment.wish.location)
    for one in found:
        for price in one.prices:
            expect(price.per_hour > 0, f"{one.id} costs {price.per_hour} an hour.")
            expect(price.source, f"Nobody says where the price of {one.id} is from.")
            expect(not price.zone or price.zone in one.zones, f"{one.id} has a price in {price.zone}, where it is not.")
    priced = {one.name for one in found if any(price.market is Market.ON_DEMAND for price in one.prices)}
    expect(environment.wish.type in priced, f"{environment.wish.type} has no price on demand.")
    return f"{len(priced)} of {len(found)} types have one"


def quotas(environment: Environment) -> str:
    """Limits of the account."""
    assert isinstance(environment.client, Quotas)
    found = environment.ask(environment.client.quotas, environment.wish.location)
    expect(found, "No quota can be read.")
    for one in found:
        expect(one.limit >= 0 and one.used >= 0, f"{one.name} is {one.used} of {one.limit}.")
        here = one.location in ("", environment.wish.location)
        expect(here, f"{one.name} is of {one.location}; {environment.wish.location} was asked for.")
        expect(one.name and one.unit, f"A quota lacks a name or a unit: {one}.")
    names = [(one.name, one.family, one.market, one.unit) for one in found]
    twice = sorted({one[0] for one in names if names.count(one) > 1})
    expect(not twice, f"These are told twice: {', '.join(twice)}.")
    return f"{len(found)} quotas"


def image_choice(environment: Environment) -> str:
    """The image, chosen by words."""
    wish = environment.wish
    found = environment.ask(environment.client.image, wish.location, {"id": wish.image.id}, wish.arch)
    expect(found.id == wish.image.id, f"{wish.image.id} was asked for, {found.id} was found.")
    expect(found.arch in ("", wish.arch), f"It is for {found.arch}; {wish.arch} was asked for.")
    try:
        wrong = environment.ask(environment.client.image, wish.location, {"id": absent(wish.image.id)}, wish.arch)
    except CloudError as error:
        definite = error.meaning in (Meaning.NOT_FOUND, Meaning.INVALID)
        expect(definite, f"An image that is not there is told as {error.meaning}: {error.message}")
    else:
        expect(False, f"An image that is not there was found: {wrong.id}.")
    return f"{found.id} {found.name}".strip()


def absent(image: str) -> str:
    """A name like an image's, of none."""
    return f"{image}0"


def images(environment: Environment) -> str:
    """Images, looked through."""
    assert isinstance(environment.client, MachineImage)
    if not environment.wish.image_pattern:
        raise LeftOut("No pattern of images was given.")
    found = environment.ask(environment.client.images, environment.wish.location, environment.wish.image_pattern)
    expect(found, f"No image fits {environment.wish.image_pattern}.")
    expect(all(one.id for one in found), "An image has no id.")
    dates = [one.created_at for one in found if one.created_at is not None]
    expect(dates == sorted(dates, reverse=True), "They are not told newest first.")
    return f"{len(found)} images"
