"""The leased host under a thing: asking for it, working in its account, and ending what ran there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, JsonValue, NonNegativeInt

from blueprints.amounts import Amounts
from blueprints.answers import Json, Need, NeededLease
from blueprints.contract import Fields
from blueprints.hosts import HOST, LEASE_VARIABLE
from blueprints.hostscripts import END_UID, SWEEP_UID
from blueprints.hostshell import CannotBecomeRoot, HostShell
from blueprints.layered.frame import Below
from blueprints.layered.within import Within, account_of
from blueprints.specs import LeaseView, ResourceView
from interfaces.endpoints import LocalEndpoint
from interfaces.local.transport import LocalTransport
from interfaces.transport import Transport
from interfaces.transports import transport_to

Account = Literal["own", "shared", "root"]
"""The account under a thing: nobody else's and without more rights; used by others too; or able to become root."""

BELOW = Below(HOST)
_LIMIT = 30.0
_ROUNDS = "60"


class OnHost(Fields):
    """What a blueprint says about the host under its resources."""

    host: Mapping[str, JsonValue] = Field(default={}, description="Requirements of the host, such as its zone.")
    cpu_millicores: NonNegativeInt = Field(default=0, description="Taken of the host for what runs there.")
    ram_mib: NonNegativeInt = Field(default=0, description="Taken of the host for what runs there.")


def needed_host(config: OnHost, disk_mib: int) -> Need:
    """The host, for life."""
    amounts = Amounts(cpu_millicores=config.cpu_millicores, ram_mib=config.ram_mib, disk_mib=disk_mib)
    return Need(leases=(NeededLease(name=HOST, type=HOST, requirements=dict(config.host), amounts=amounts),))


def host_of(resource: ResourceView) -> LeaseView:
    """The host lease that the resource holds. Raises LookupError when it is gone."""
    return resource.parents[HOST]


def transport_of(host: LeaseView) -> Transport:
    """The way to the account of a host lease."""
    return account_of(host.interface("command").transport)


def shell_of(host: LeaseView, seconds: float) -> HostShell:
    """Scripts with the rights of the host lease's account, within the seconds of one call."""
    return shell_to(transport_of(host), seconds)


def shell_to(transport: Transport, seconds: float) -> HostShell:
    """Scripts with the rights of a transport's account, which begin in / so that no folder need be there, and are not
    stopped by what the account has used up."""
    account = account_of(transport)
    if isinstance(account, LocalTransport):
        account = account.unbounded()
    return HostShell(Within(account, "/", home=False), min(seconds, _LIMIT))


def privileged(host: LeaseView, seconds: float) -> HostShell | None:
    """Scripts with root's rights (`as_root`) where there is a way: as root on this machine, or by sudo."""
    transport = transport_of(host)
    if isinstance(transport, LocalTransport) and os.geteuid() == 0:
        return HostShell(transport_to(LocalEndpoint(uid=0, gid=0, home="/")), min(seconds, _LIMIT))
    shell = shell_to(transport, seconds)
    return shell if _can_become_root(shell) else None


def facts_of(host: LeaseView, seconds: float) -> Json:
    """Where the host's account works and whose it is: `home`, `host`, `account`."""
    shell = shell_of(host, seconds)
    return {"home": home_of(shell), "host": host.resource.name, "account": _account(host, shell)}


def reusable(resource: ResourceView) -> bool:
    """True when all that a lease could leave in the account can be found and removed without being root."""
    return bool(resource.facts.get("account") == "own")


def end_processes(host: LeaseView, seconds: float) -> bool:
    """End every process of the host lease's account, detached ones too; True when none is left."""
    shell = shell_of(host, seconds)
    if (uid := _own_uid(host, shell)) is not None:
        return shell.run(END_UID, str(uid), _ROUNDS).split() == ["0"]
    return not shell.end_marked(f"{LEASE_VARIABLE}={host.key}", home_of(shell) or "/nonexistent/home")


def sweep(host: LeaseView, seconds: float) -> bool:
    """Remove what an account of our own has in places that all may write to; True when nothing is left."""
    shell = shell_of(host, seconds)
    uid = _own_uid(host, shell)
    return uid is None or shell.run(SWEEP_UID, str(uid), str(max(1, int(seconds * 0.4)))).split() == ["0"]


def _account(host: LeaseView, shell: HostShell) -> Account:
    if _can_become_root(shell):
        return "root"
    return "own" if _isolation(host) == "uid" and _own_uid(host, shell) is not None else "shared"


def _own_uid(host: LeaseView, shell: HostShell) -> int | None:
    """The uid, where it is this host lease's alone."""
    if _isolation(host) != "uid":
        return None
    uid = int(shell.run("id -u"))
    return uid if uid >= 1000 and uid != os.geteuid() else None


def _isolation(host: LeaseView) -> Any:
    return host.facts.get("isolation", host.resource.attributes.get("isolation"))


def home_of(shell: HostShell) -> str:
    """The account's home without links in its path; empty when it is not there."""
    return shell.run('cd -- "$HOME" 2>/dev/null && pwd -P || :').removesuffix("\n")


def _can_become_root(shell: HostShell) -> bool:
    try:
        return shell.as_root("id -u").split() == ["0"]
    except CannotBecomeRoot:
        return False
