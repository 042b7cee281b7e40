"""Checks that create nothing: identity, locations, types, prices, quotas and images."""

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
    """Check that the account reports an identity, and the same identity each time."""
    first, second = (environment.ask(environment.client.identity) for _ in range(2))
    expect(first, "The account has no name.")
    expect(first == second, f"Two calls report different accounts: {first!r} and {second!r}.")
    return first


def locations(environment: Environment) -> str:
    """Check the locations that the account may use."""
    found = environment.ask(environment.client.locations)
    names = [one.name for one in found]
    expect(found, "The account has no location.")
    expect(len(set(names)) == len(names), "Two locations have the same name.")
    expect(all(names), "A location has no name.")
    usable = [one.name for one in found if one.available]
    expect(usable, f"None of {len(found)} locations is available.")
    expect(environment.wish.location in usable, f"The location {environment.wish.location} is not available.")
    return f"{len(usable)} of {len(found)} are available"


def types(environment: Environment) -> str:
    """Check the instance types: unique and stable ids, plausible sizes."""
    first, second = _types(environment), _types(environment)
    expect(first, "The account has no instance type.")
    ids = [one.id for one in first]
    expect(len(set(ids)) == len(ids), "Two types have the same id.")
    for one in first:
        _sane(one)
    before, after = ({one.id: _kept(one) for one in found} for found in (first, second))
    differ = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    expect(not differ, f"Two calls report different data about these instance types: {', '.join(differ[:5])}.")
    _narrower(environment, first)
    lost = sorted(set(environment.wish.kept_types) - set(ids))
    expect(not lost, f"A second call omits these instance types or reports them with another id: {', '.join(lost)}.")
    return f"{len(first)} types"


def _types(environment: Environment) -> Sequence[InstanceType]:
    everywhere = environment.client.api is Api.GLOBAL
    return environment.ask(environment.client.types, "" if everywhere else environment.wish.location)


def _narrower(environment: Environment, everything: Sequence[InstanceType]) -> None:
    here = environment.ask(environment.client.types, environment.wish.location)
    expect(here, f"{environment.wish.location} has no instance type.")
    elsewhere = [one.id for one in here if one.location != environment.wish.location]
    expect(
        not elsewhere,
        f"The answer for {environment.wish.location} has instance types of other places: {', '.join(elsewhere[:5])}.",
    )
    more = {one.id for one in here} - {one.id for one in everything}
    expect(
        not more,
        f"The answer for all locations lacks instance types of the chosen location: {', '.join(sorted(more)[:5])}.",
    )


def _kept(one: InstanceType) -> dict[str, Any]:
    """Return the fields that are the same in every call."""
    return asdict(replace(one, prices=(), available=True, boot_seconds=None, zones=tuple(sorted(one.zones))))


def _sane(one: InstanceType) -> None:
    expect(one.name and one.location, f"An instance type lacks a name or a location: {one.id}.")
    expect(one.vcpus > 0 and one.ram_mib > 0, f"{one.id} has only {one.vcpus} vCPUs and {one.ram_mib} MiB of memory.")
    expect(one.arch and one.arch == architecture(one.arch), f"{one.id} has the architecture {one.arch!r}.")
    expect(one.local_disk_gib >= 0, f"{one.id} has a disk of negative size, {one.local_disk_gib} GiB.")
    expect(all(gpu.count > 0 and gpu.model for gpu in one.gpus), f"{one.id} has a GPU without model or count.")


def prices(environment: Environment) -> str:
    """Check the prices and their sources."""
    found = environment.ask(environment.client.types, environment.wish.location)
    for one in found:
        for price in one.prices:
            expect(price.per_hour > 0, f"{one.id} costs {price.per_hour} per hour.")
            expect(price.source, f"The price of instance type {one.id} has no source.")
            expect(
                not price.zone or price.zone in one.zones,
                f"Instance type {one.id} has a price in {price.zone}, where it is not offered.",
            )
    priced = {one.name for one in found if any(price.market is Market.ON_DEMAND for price in one.prices)}
    expect(environment.wish.type in priced, f"{environment.wish.type} has no on-demand price.")
    return f"{len(priced)} of {len(found)} types have a price"


def quotas(environment: Environment) -> str:
    """Check the quotas of the account."""
    assert isinstance(environment.client, Quotas)
    found = environment.ask(environment.client.quotas, environment.wish.location)
    expect(found, "No provider quota can be read.")
    for one in found:
        expect(one.limit >= 0 and one.used >= 0, f"Provider quota {one.name} is negative: {one.used} of {one.limit}.")
        here = one.location in ("", environment.wish.location)
        expect(here, f"The provider quota {one.name} is for {one.location}, not for {environment.wish.location}.")
        expect(one.name and one.unit, f"A provider quota lacks a name or a unit: {one}.")
    names = [(one.name, one.family, one.market, one.unit) for one in found]
    twice = sorted({one[0] for one in names if names.count(one) > 1})
    expect(not twice, f"These provider quotas are reported twice: {', '.join(twice)}.")
    return f"{len(found)} quotas"


def image_choice(environment: Environment) -> str:
    """Check that an image is found by its selectors, and that a nonexistent image is not found."""
    wish = environment.wish
    found = environment.ask(environment.client.image, wish.location, {"id": wish.image.id}, wish.arch)
    expect(found.id == wish.image.id, f"{wish.image.id} was requested, but {found.id} was found.")
    expect(found.arch in ("", wish.arch), f"The image is for {found.arch}, but {wish.arch} was requested.")
    try:
        wrong = environment.ask(environment.client.image, wish.location, {"id": absent(wish.image.id)}, wish.arch)
    except CloudError as error:
        definite = error.meaning in (Meaning.NOT_FOUND, Meaning.INVALID)
        expect(definite, f"A missing image is not reported as missing, but as {error.meaning}: {error.message}")
    else:
        expect(False, f"A search for an image that does not exist found {wrong.id}.")
    return f"{found.id} {found.name}".strip()


def absent(image: str) -> str:
    """Return the name of an image that does not exist."""
    return f"{image}0"


def images(environment: Environment) -> str:
    """List images by a pattern, and check their order."""
    assert isinstance(environment.client, MachineImage)
    if not environment.wish.image_pattern:
        raise LeftOut("No image pattern was given.")
    found = environment.ask(environment.client.images, environment.wish.location, environment.wish.image_pattern)
    expect(found, f"No image matches {environment.wish.image_pattern}.")
    expect(all(one.id for one in found), "An image has no id.")
    dates = [one.created_at for one in found if one.created_at is not None]
    expect(dates == sorted(dates, reverse=True), "The images are not listed newest first.")
    return f"{len(found)} images"
