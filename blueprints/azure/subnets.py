"""Whether the subnet that machines would stand in is there, before there is a machine."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from blueprints.azure.calls import found, guarded
from blueprints.azure.connection import Connection
from blueprints.azure.network import SUBNET
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Order
from blueprints.specs import Problem

_ID = re.compile(
    r"/subscriptions/([^/]+)/resourceGroups/([^/]+)/providers/Microsoft\.Network/virtualNetworks/([^/]+)/subnets/([^/]+)",
    re.IGNORECASE,
)
_WORDS = "/subscriptions/.../resourceGroups/.../providers/Microsoft.Network/virtualNetworks/NETWORK/subnets/SUBNET"
Json = Mapping[str, Any]


def problems(connection: Connection, order: Order) -> list[Problem]:
    """What is wrong with the subnet that an order names, or with the shared network where it names none."""
    if not order.network:
        return _of_ours(_read(connection, connection.group, f"drydock-{order.location}"), order.location)
    parts = _ID.fullmatch(order.network)
    if parts is None:
        said = f"{order.network!r} is not a subnet's resource id ({_WORDS})."
        return [_problem(f"{said} {_instead(connection, order)}")]
    subscription, group, network, subnet = parts.groups()
    if subscription.lower() != connection.subscription.lower():
        raise CloudError(Meaning.INVALID, f"The subnet is in another subscription, {subscription}.")
    there = _read(connection, group, network)
    if there is None:
        said = f"There is no network {network} in the resource group {group}."
        return [_problem(f"{said} {_instead(connection, order)}")]
    return _of_named(connection, order, there, subnet)


def _of_named(connection: Connection, order: Order, there: Json, subnet: str) -> list[Problem]:
    place = str(there.get("location") or "").lower()
    if place != order.location:
        said = f"The network {there['name']} is in {place}, and machines in {order.location} cannot stand in it."
        return [_problem(f"{said} Allow only {place} in regions. {_instead(connection, order)}")]
    own = _subnets([there])
    if not any(one.lower().endswith(f"/subnets/{subnet}".lower()) for one in own):
        said = f"The network {there['name']} has no subnet {subnet}. It has: {', '.join(own) or 'none'}."
        return [_problem(f"{said} Name one in network.")]
    return []


def _of_ours(there: Json | None, location: str) -> list[Problem]:
    """It is made with its subnet where it is not there."""
    if there is None or any(one.endswith(f"/subnets/{SUBNET}") for one in _subnets([there])):
        return []
    said = f"The network drydock-{location} has no subnet {SUBNET}, so it is not the one that Drydock makes."
    return [_problem(f"{said} Name a subnet in network, give it one, or delete it: {_listed(_subnets([there]))}.")]


def _read(connection: Connection, group: str, network: str) -> Json | None:
    """None where there is no such network, or no such group."""
    networks = connection.network.virtual_networks
    try:
        there: Json | None = found(f"read {network}", lambda: networks.get(group, network).as_dict())
    except CloudError as error:
        if error.provider_code != "ResourceGroupNotFound":
            raise
        return None
    return there


def _instead(connection: Connection, order: Order) -> str:
    """The subnets of the location in our own resource group."""
    with guarded("list the networks"):
        listed = [one.as_dict() for one in connection.network.virtual_networks.list(connection.group)]
    there = _subnets(one for one in listed if str(one.get("location") or "").lower() == order.location)
    return f"In {order.location} the resource group has: {_listed(there)}. Name one in network, or none."


def _subnets(networks: Iterable[Json]) -> list[str]:
    every = (one for network in networks for one in (network.get("properties") or {}).get("subnets") or ())
    return sorted(str(one["id"]) for one in every)


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"


def _problem(message: str) -> Problem:
    return Problem(message=message, field="network")
