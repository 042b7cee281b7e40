"""Check an account without creating anything: whether a blueprint would work there, and what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain

from blueprints.cloud import market
from blueprints.cloud.client import Client, Networks, Permission, Permissions, Quotas, Spot, UserData
from blueprints.cloud.config import CloudConfig
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.guest import sources
from blueprints.cloud.values import Location, Market, Order
from blueprints.offers import Offer
from blueprints.specs import Problem
from drydock.core.wildcards import matches

_REGIONS = 3
"""Number of regions that are checked, so that a check takes only a few seconds."""
_KEY, _TAGS = "drydock-check", {"drydock-installation": "drydock-check"}
"""Key and tags of an order that is never placed. No object can have this name: ours begin with dd-."""


def problems(client: Client, config: CloudConfig) -> Iterator[Problem]:
    """Yield the problems, worst first. Raises CloudError if the account cannot be read at all."""
    try:
        client.identity()
        known = {one.name: one for one in client.locations()}
    except CloudError as error:
        yield from _refused(client, config, error)
        return
    yield from _unsupported(client, config)
    yield from _regions(config, known)
    usable = [name for name in (config.regions or known) if name in known and known[name].available]
    with ThreadPoolExecutor(_REGIONS) as threads:
        yield from chain.from_iterable(threads.map(partial(_looked, client, config, usable), usable[:_REGIONS]))


def _looked(client: Client, config: CloudConfig, usable: Sequence[str], region: str) -> list[Problem]:
    """Return the problems in one region. Permissions are the same for all regions, so only the first checks them."""
    return list(_in_region(client, config, region, alone=len(usable) == 1, first=region == usable[0]))


def _refused(client: Client, config: CloudConfig, error: CloudError) -> Iterator[Problem]:
    """Yield which permissions are missing if the account cannot be read; nothing more if the credential is refused."""
    if error.meaning is not Meaning.CREDENTIALS:
        raise error
    yield Problem(message=str(error), field="credential")
    if isinstance(client, Permissions):
        order = _order(config, next(iter(config.regions), ""), "", Offer(location="", type=""))
        told = _seen("The account's permissions", partial(_permissions, client, client.provider, config, order))
        yield from (one for one in told if one.fatal)


def _regions(config: CloudConfig, known: Mapping[str, Location]) -> Iterator[Problem]:
    for name in config.regions:
        if name not in known:
            there = ", ".join(sorted(known)) or "none"
            yield Problem(message=f"The account does not have region {name!r}. Available: {there}.", field="regions")
        elif not known[name].available:
            yield Problem(message=f"Region {name!r} is not enabled for the account.", field="regions")


def _unsupported(client: Client, config: CloudConfig) -> Iterator[Problem]:
    if "spot" in config.markets and not isinstance(client, Spot):
        yield Problem(message=f"{client.provider} does not offer spot machines.", field="markets")
    if config.host_key not in sources(type(client)):
        there = ", ".join(sources(type(client)))
        said = f"{client.provider} does not support host_key {config.host_key}. Choose one of: {there}."
        yield Problem(message=said, field="host_key")
    if config.ready_by == "cloud-init" and not isinstance(client, UserData):
        yield Problem(message=f"{client.provider} does not pass user data to machines.", field="ready_by")
    if config.ready_by == "agent" and config.host_key == "injected":
        others = [name for name in sources(type(client)) if name not in ("injected", "console")]
        said = "host_key: injected requires cloud-init in the image, but ready_by: agent does not wait for cloud-init."
        cure = (
            f" If the image has no cloud-init, let the guest generate its key: host_key {' or '.join(others)}."
            if others
            else ""
        )
        yield Problem(message=f"{said}{cure}", field="host_key", fatal=False)


def _in_region(client: Client, config: CloudConfig, region: str, *, alone: bool, first: bool) -> Iterator[Problem]:
    image, of_image = _image(client, config, region)
    fitting, of_types = _types(client, config, region, alone=alone)
    yield from (*of_image, *of_types)
    order = _order(config, region, image, fitting[0] if fitting else Offer(location=region, type=""))
    if first and isinstance(client, Permissions):
        yield from _seen("The account's permissions", partial(_permissions, client, client.provider, config, order))
    if isinstance(client, Networks):
        yield from _seen(f"The network in {region}", partial(client.network_problems, order, config.zones))
    if isinstance(client, Quotas):
        yield from _seen(f"The quotas in {region}", partial(_quotas, client, config, region, fitting))


def _image(client: Client, config: CloudConfig, region: str) -> tuple[str, list[Problem]]:
    """Return the id of the image, empty if there is none, and the problems."""
    try:
        return client.image(region, config.image.wanted(), config.arch).id, []
    except CloudError as error:
        field = "image" if error.meaning in (Meaning.NOT_FOUND, Meaning.INVALID) else "credential"
        return "", [Problem(message=f"{region}: {error.message}", field=field)]


def _seen(what: str, look: Callable[[], Sequence[Problem]]) -> Sequence[Problem]:
    """Return the problems that a check found, or a warning that it could not be made."""
    try:
        return look()
    except CloudError as error:
        return [_unseen(what, error)]


def _unseen(what: str, error: CloudError) -> Problem:
    return Problem(message=f"{what} could not be read: {error.message}", field="credential", fatal=False)


def _allowed(client: Client, config: CloudConfig, region: str) -> Iterator[Offer]:
    """Yield a region's offers that the config allows, of any architecture, because a lease may require another."""
    spot = isinstance(client, Spot)
    for one in (offer for found in client.types(region) for offer in market.offers(found, spot=spot)):
        named = not config.types or any(matches(name, one.type) for name in config.types)
        placed = one.location == region and (not config.zones or one.zone in config.zones)
        sort = one.available and one.market in config.markets
        cheap = config.max_price is None or (one.price is not None and one.price <= config.max_price)
        if named and placed and sort and cheap:
            yield one


def _cost(one: Offer) -> tuple[int, float, str]:
    return one.vcpus + one.gpu_count, one.price or 0.0, one.name


def _types(client: Client, config: CloudConfig, region: str, *, alone: bool) -> tuple[list[Offer], list[Problem]]:
    """Return the offers that fit, the smallest first, and the problems."""
    try:
        allowed = sorted(_allowed(client, config, region), key=_cost)
    except CloudError as error:
        return [], [_unseen(f"{region}: its types", error)]
    fitting = [one for one in allowed if one.arch == config.arch]
    said = {name: getattr(config, name) for name in ("types", "arch", "zones", "markets", "max_price")}
    words = ", ".join(f"{name} {_words(value)}" for name, value in said.items() if value)
    message = f"{region} has no type with {words}. Allow other types or another region."
    return fitting, [] if fitting else [Problem(message=message, field="types", fatal=alone and not allowed)]


def _words(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _order(config: CloudConfig, region: str, image: str, offer: Offer) -> Order:
    """Return an order for a machine such as the config would create. It is never placed."""
    spot = "spot" in config.markets
    zone = "" if config.network else offer.zone
    return Order(
        key=_KEY, token=_KEY, location=region, zone=zone, type=offer.type, image=image, arch=config.arch,
        market=Market.SPOT if spot else Market.ON_DEMAND, disk_gib=config.disk_gib, disk_type=config.disk_type,
        network=config.network, public_address=config.public_address, ssh_port=config.ssh_port,
        ssh_from=config.ssh_from, user=config.user, tags={**config.tags, **_TAGS},
    )  # fmt: skip


def _permissions(client: Permissions, provider: str, config: CloudConfig, order: Order) -> list[Problem]:
    found = client.permissions(order)
    lacking = [one for one in found if one.held is False]
    needed = [one.name for one in lacking if not one.without or one.host_key == config.host_key]
    page = f"docs/kinds/{provider}.md lists all required permissions"
    told = [_lacks(f"{', '.join(needed)}: machines cannot be created, reached or terminated", page)] if needed else []
    for one in lacking:
        if one.name not in needed:
            told.append(_lacks(f"{one.name}: {one.without}", page, fatal=False))
    return [*told, *_untold(found)]


def _lacks(what: str, page: str, *, fatal: bool = True) -> Problem:
    return Problem(message=f"The account lacks {what}. Grant the permission: {page}.", field="credential", fatal=fatal)


def _untold(found: Sequence[Permission]) -> Iterator[Problem]:
    """Yield a warning for each reason why permissions could not be checked."""
    for reason in dict.fromkeys(one.unclear for one in found if one.held is None):
        names = ", ".join(one.name for one in found if one.held is None and one.unclear == reason)
        message = f"Could not verify whether the account has {names}: {reason}."
        yield Problem(message=message, field="credential", fatal=False)


def _quotas(client: Quotas, config: CloudConfig, region: str, fitting: Sequence[Offer]) -> list[Problem]:
    """Return warnings about used-up quotas. They are not fatal, because usage may fall and a lease waits until then."""
    known = market.allowances(client.quotas(region))
    addresses = int(config.public_address)
    tight = [next((q for q in known if q.takes(one, addresses=addresses) > q.limit - q.used), None) for one in fitting]
    if fitting and None not in tight:
        full = {q.name: q for q in tight if q is not None}.values()
        said = "; ".join(f"{q.name} has {q.used:g} of {q.limit:g} {q.unit} in use" for q in full)
        message = (
            f"{region}: the provider quotas do not allow a single machine; the smallest instance type is "
            f"{fitting[0].type}"
        )
        return [_warning(f"{message}. {said}. Request a higher quota, or allow other instance types or regions.")]
    return [
        _warning(f"{region}: provider quota {q.name} is used up, {q.used:g} of {q.limit:g} {q.unit}.") for q in known
        if q.limit and q.used >= q.limit and (not fitting or any(q.takes(one, addresses=addresses) for one in fitting))
    ]  # fmt: skip


def _warning(message: str) -> Problem:
    return Problem(message=message, field="types", fatal=False)
