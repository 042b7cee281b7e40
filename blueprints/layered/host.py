"""The leased host under a resource: the request for it, its facts, and whether a resource on it may be reused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, JsonValue, NonNegativeInt

from blueprints.amounts import Amounts
from blueprints.answers import Json, Need, NeededLease
from blueprints.contract import Fields
from blueprints.hosts import HOST
from blueprints.layered.account import Account
from blueprints.layered.frame import Below
from blueprints.specs import LeaseView, ResourceView
from drydock.core.errors import DrydockError

BELOW = Below(HOST)
OWN, SHARED, ROOT = "own", "shared", "root"
"""Types of accounts under a resource. `own` is used by nobody else and has no extra rights, `shared` is shared with
others, and `root` is able to become root."""


class OnHost(Fields):
    """Blueprint settings for the host under its resources."""

    host: Mapping[str, JsonValue] = Field(default={}, description="Requirements for the host, such as its zone.")
    cpu_millicores: NonNegativeInt = Field(default=0, description="vCPUs to lease from the host, in thousandths.")
    ram_mib: NonNegativeInt = Field(default=0, description="Memory to lease from the host, in MiB.")


def needed_host(config: OnHost, disk_mib: int) -> Need:
    """Return a request for a host lease that lasts as long as the resource."""
    amounts = Amounts(cpu_millicores=config.cpu_millicores, ram_mib=config.ram_mib, disk_mib=disk_mib)
    return Need(leases=(NeededLease(name=HOST, type=HOST, requirements=dict(config.host), amounts=amounts),))


def host_of(resource: ResourceView) -> LeaseView:
    """Return the host lease of the resource. Raises LookupError if it is gone."""
    return resource.parents[HOST]


def facts_of(host: LeaseView, account: Account) -> Json:
    """Return facts about the host's account: `home`, `host`, and `account` (own, shared or root)."""
    whose = OWN if account.controlled and _isolation(host) == "uid" else SHARED
    if account.may_become_root():
        whose = ROOT
    return {"home": account.home, "host": host.resource.name, "account": whose}


def reusable(resource: ResourceView) -> bool:
    """Return whether everything that a lease could leave in the account can be found and removed from outside."""
    host = resource.parents.get(HOST)
    if host is None or resource.facts.get("account") != OWN or _isolation(host) != "uid":
        return False
    try:
        return host.control() is not None
    except DrydockError:
        return False


def _isolation(host: LeaseView) -> Any:
    return host.facts.get("isolation", host.resource.attributes.get("isolation"))
