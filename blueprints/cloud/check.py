"""Looking at an account without creating anything: would a blueprint work there, and what is missing?"""

from __future__ import annotations

from collections.abc import Iterator

from blueprints.cloud.client import Client, Quotas, Spot, UserData
from blueprints.cloud.config import CloudConfig
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.hostkeys import sources
from blueprints.specs import Problem

_REGIONS = 3
"""So many regions are looked at: a check is a few seconds."""


def problems(client: Client, config: CloudConfig) -> Iterator[Problem]:
    """What is missing, worst first. Raises CloudError where the account does not let us in at all."""
    client.identity()
    yield from _unsupported(client, config)
    known = {one.name: one for one in client.locations()}
    for name in config.regions:
        if name not in known:
            there = ", ".join(sorted(known)) or "none"
            yield Problem(message=f"The account has no region {name!r}. It has: {there}.", field="regions")
        elif not known[name].available:
            yield Problem(message=f"The account may not use region {name!r} (yet).", field="regions")
    usable = [name for name in (config.regions or known) if name in known and known[name].available]
    for name in usable[:_REGIONS]:
        yield from _in_region(client, config, name)


def _unsupported(client: Client, config: CloudConfig) -> Iterator[Problem]:
    if "spot" in config.markets and not isinstance(client, Spot):
        yield Problem(message=f"{client.provider} has no spot machines.", field="markets")
    if config.host_key not in sources(type(client)):
        there = ", ".join(sources(type(client)))
        said = f"{client.provider} tells no host keys by {config.host_key}; it does by: {there}."
        yield Problem(message=said, field="host_key")
    if config.ready_by == "cloud-init" and not isinstance(client, UserData):
        yield Problem(message=f"{client.provider} gives no user data to machines.", field="ready_by")


def _in_region(client: Client, config: CloudConfig, region: str) -> Iterator[Problem]:
    try:
        client.image(region, config.image.wanted(), config.arch)
    except CloudError as error:
        yield Problem(message=f"{region}: {error.message}", field="image" if _missing(error) else "credential")
    yield from _quota(client, region)


def _missing(error: CloudError) -> bool:
    return error.meaning in (Meaning.NOT_FOUND, Meaning.INVALID)


def _quota(client: Client, region: str) -> Iterator[Problem]:
    if not isinstance(client, Quotas):
        return
    try:
        full = [one for one in client.quotas(region) if one.limit and one.used >= one.limit]
    except CloudError as error:
        yield Problem(message=f"{region}: its quotas could not be read: {error.message}", fatal=False)
        return
    for one in full:
        message = f"{region}: {one.name} is used up, {one.used:g} of {one.limit:g} {one.unit}."
        yield Problem(message=message, fatal=False)
