"""The network of a machine: firewall, address and network card, in a named subnet or in Drydock's own."""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from blueprints.azure import api
from blueprints.azure.api import Connection, Parts, order_tags
from blueprints.azure.errors import found, translated
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Order, Rule, Underway
from blueprints.specs import Problem

SPACE, SUBNET = "10.77.0.0/16", "hosts"


class Network:
    """The network of a machine, created and found by names that are derived from the order's key."""

    def __init__(self, connection: Connection, parts: Parts) -> None:
        self._connection, self._parts = connection, parts

    def prepare(self, order: Order, *, accelerated: bool) -> Mapping[str, str] | Underway:
        """Return the ids of the network card and of the objects that it needs, or Underway until all are ready."""
        subnet = order.network or self._shared_subnet(order)
        nsg = self._standing("nsg", order, firewall_body(order))
        ip = self._standing("ip", order, address(order)) if order.public_address else ""
        if subnet is None or nsg is None or ip is None:
            return _underway("The firewall, the address and the network are being created.")
        nic = self._standing("nic", order, card(order, subnet, nsg, ip, accelerated=accelerated))
        if nic is None:
            return _underway("The network card is being created.")
        return {"nic": nic, "nsg": nsg, "ip": ip, "subnet": subnet}

    def open(self, key: str, rules: Sequence[Rule]) -> None:
        """Add the rules that do not exist yet."""
        there = self._rules(key)
        taken = {int(one.get("priority") or 0) for one in there.values()}
        for rule in rules:
            if rule_name(rule) not in there:
                priority = free(taken)
                taken.add(priority)
                self._put_rule(key, rule, priority)

    def close(self, key: str, rules: Sequence[Rule]) -> None:
        """Delete the rules that exist."""
        there = self._rules(key)
        group, nsg = self._connection.group, api.part_name("nsg", key)
        for wanted in sorted({rule_name(rule) for rule in rules} & set(there)):
            with translated(f"close {wanted}", write=True):
                self._connection.network.security_rules.begin_delete(group, nsg, wanted, polling=False)

    def _shared_subnet(self, order: Order) -> str | None:
        """Return our subnet in a location, or None while it is being created.

        It is created once and never deleted with a machine. The subnet does not have the tags of any machine, so no
        sweep deletes it.
        """
        group, named = self._connection.group, f"drydock-{order.location}"
        networks = self._connection.network.virtual_networks
        there = found(f"read {named}", lambda: networks.get(group, named).as_dict())
        if there is None:
            self._make_shared(named, order)
            return None
        subnets = [one for one in there["properties"].get("subnets") or () if one.get("name") == SUBNET]
        if not subnets:
            raise CloudError(
                Meaning.INVALID,
                f"The network {named} has no subnet {SUBNET}, so this network was not created by Drydock.",
            )
        return str(subnets[0]["id"]) if _ready(there) and _ready(subnets[0]) else None

    def _make_shared(self, named: str, order: Order) -> None:
        body: Any = shared_network(order)
        try:
            with translated(f"make {named}", write=True):
                self._connection.network.virtual_networks.begin_create_or_update(
                    self._connection.group, named, body, polling=False
                )
        except CloudError as error:
            # Another order is making it.
            if error.meaning is not Meaning.CONFLICT:
                raise

    def _standing(self, part: str, order: Order, body: Mapping[str, Any]) -> str | None:
        """Return the id of a part, or None while Azure works on it.

        Creates the part if it does not exist or has failed.
        """
        there = self._parts.get(part, order.key)
        if there is not None:
            _ours(part, there, order, body)
            if not _failed(there):
                return str(there["id"]) if _ready(there) else None
        try:
            made, _ = self._parts.put(part, order.key, body)
        except CloudError as error:
            if error.meaning is Meaning.CONFLICT:
                return None
            raise
        return str(made["id"]) if _ready(made) else None

    def _rules(self, key: str) -> dict[str, Mapping[str, Any]]:
        nsg = self._parts.get("nsg", key)
        if nsg is None:
            raise CloudError(Meaning.NOT_FOUND, f"{key} has no firewall that Drydock may change.")
        return {one["name"]: one["properties"] for one in nsg["properties"].get("securityRules") or ()}

    def _put_rule(self, key: str, rule: Rule, priority: int) -> None:
        body: Any = {"properties": opening(rule, priority)}
        with translated(f"open port {rule.port}", write=True):
            self._connection.network.security_rules.begin_create_or_update(
                self._connection.group, api.part_name("nsg", key), rule_name(rule), body, polling=False
            )


def address(order: Order) -> dict[str, Any]:
    """Return the request body that creates a public IP address. The address is deleted with its machine."""
    zones = {"zones": [order.zone]} if order.zone else {}
    return {
        "location": order.location,
        "tags": order_tags(order),
        "sku": {"name": "Standard"},
        "properties": {"publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4"},
        **zones,
    }


def card(order: Order, subnet: str, nsg: str, ip: str, *, accelerated: bool) -> dict[str, Any]:
    """Return the request body that creates a network card."""
    settings: dict[str, Any] = {"subnet": {"id": subnet}, "privateIPAllocationMethod": "Dynamic", "primary": True}
    if ip:
        settings["publicIPAddress"] = {"id": ip, "properties": {"deleteOption": "Delete"}}
    return {
        "location": order.location,
        "tags": order_tags(order),
        "properties": {
            "ipConfigurations": [{"name": "main", "properties": settings}],
            "networkSecurityGroup": {"id": nsg},
            "enableAcceleratedNetworking": accelerated,
        },
    }


def shared_network(order: Order) -> dict[str, Any]:
    """Return the request body for the virtual network that a location's machines share if their orders name none.

    Its subnet gives machines without a public address outbound access; since 2026 new subnets do not have that by
    default.
    """
    ours = {tag: value for tag, value in order.tags.items() if tag == api.INSTALLATION}
    return {
        "location": order.location,
        "tags": {"drydock-shared": "network", **ours},
        "properties": {
            "addressSpace": {"addressPrefixes": [SPACE]},
            "subnets": [
                {"name": SUBNET, "properties": {"addressPrefix": SPACE, "defaultOutboundAccess": True}},
            ],
        },
    }


def _ours(part: str, there: Mapping[str, Any], order: Order, body: Mapping[str, Any]) -> None:
    """Check the owner of a part.

    Raises CloudError INVALID if the part is not ours, and CONFLICT if it belongs to an earlier attempt in another
    place.
    """
    named = api.part_name(part, order.key)
    if not api.has_owner(there, order.tags):
        raise CloudError(
            Meaning.INVALID, f"{named} already exists, but is not tagged as belonging to this Drydock installation."
        )
    if str(there.get("location") or "").lower() != order.location:
        raise CloudError(Meaning.CONFLICT, f"{named} from an earlier attempt still exists in {there.get('location')}.")
    if body.get("zones") and list(there.get("zones") or ()) != body["zones"]:
        zones = ", ".join(map(str, there.get("zones") or ()))
        where = f"in zone {zones}" if zones else "in no zone"
        raise CloudError(Meaning.CONFLICT, f"{named} from an earlier attempt still exists {where}.")


def _state(there: Mapping[str, Any]) -> str:
    return str((there.get("properties") or {}).get("provisioningState") or "").lower()


def _ready(there: Mapping[str, Any]) -> bool:
    return _state(there) == "succeeded"


def _failed(there: Mapping[str, Any]) -> bool:
    return _state(there) in ("failed", "canceled")


def _underway(sentence: str) -> Underway:
    return Underway(handle={}, after=1.0, sentence=sentence)


FIRST_SSH, FIRST_OPENED, LAST_OPENED, DENY = 100, 200, 4000, 4096
"""Priorities of firewall rules, from 100 to 4096; the rule with the lowest number is applied first."""
_PROTOCOLS = {"tcp": "Tcp", "udp": "Udp", "icmp": "Icmp", "any": "*"}


def firewall_body(order: Order) -> dict[str, Any]:
    """Return the network security group: inbound SSH from the order's sources only; outbound open, as by default.

    Other machines in the same network, which Azure would let in by default, are refused too.
    """
    rules = []
    for version, prefixes in _by_version(order.ssh_from).items():
        rules.append(
            {"name": f"ssh-v{version}", "properties": _inbound(FIRST_SSH + version, order.ssh_port, prefixes=prefixes)}
        )
    closed = _inbound(DENY, "*", protocol="*", access="Deny", prefixes=["*"])
    rules.append({"name": "closed", "properties": closed})
    return {"location": order.location, "tags": order_tags(order), "properties": {"securityRules": rules}}


def rule_name(rule: Rule) -> str:
    """Return the name of the rule for an open port."""
    return f"open-{rule.protocol.lower()}-{rule.port}-{hashlib.sha256(rule.source.encode()).hexdigest()[:8]}"


def opening(rule: Rule, priority: int) -> dict[str, Any]:
    """Return the security rule for an open port.

    Raises CloudError INVALID for a protocol that Azure does not support.
    """
    protocol = _PROTOCOLS.get(rule.protocol.lower())
    if protocol is None:
        raise CloudError(
            Meaning.INVALID, f"{rule.protocol!r} is not a supported protocol. Choose one of: {', '.join(_PROTOCOLS)}."
        )
    port = rule.port if protocol in ("Tcp", "Udp") else "*"
    return _inbound(priority, port, protocol=protocol, prefixes=[rule.source])


def free(taken: set[int]) -> int:
    """Return the lowest unused priority. Raises CloudError QUOTA if all of them are used."""
    found = next((one for one in range(FIRST_OPENED, LAST_OPENED) if one not in taken), None)
    if found is None:
        raise CloudError(Meaning.QUOTA, "The firewall has no room for another rule.")
    return found


def _inbound(
    priority: int, port: int | str, *, prefixes: list[str], protocol: str = "Tcp", access: str = "Allow"
) -> dict[str, Any]:
    one = {"sourceAddressPrefix": prefixes[0]} if len(prefixes) == 1 else {"sourceAddressPrefixes": prefixes}
    return {
        "priority": priority,
        "direction": "Inbound",
        "access": access,
        "protocol": protocol,
        "sourcePortRange": "*",
        "destinationAddressPrefix": "*",
        "destinationPortRange": str(port),
        **one,
    }


def _by_version(prefixes: Sequence[str]) -> dict[int, list[str]]:
    """Return the networks by IP version, because a rule may contain only one version. Raises CloudError INVALID."""
    sorted_out: dict[int, list[str]] = {}
    for prefix in prefixes:
        try:
            sorted_out.setdefault(ipaddress.ip_network(prefix, strict=False).version, []).append(prefix)
        except ValueError:
            raise CloudError(
                Meaning.INVALID, f"ssh_from: {prefix!r} is not a valid network. Write it as in 192.0.2.0/24."
            ) from None
    return sorted_out


_ID = re.compile(
    r"/subscriptions/([^/]+)/resourceGroups/([^/]+)/providers/Microsoft\.Network/virtualNetworks/([^/]+)/subnets/([^/]+)",
    re.IGNORECASE,
)
_WORDS = "/subscriptions/.../resourceGroups/.../providers/Microsoft.Network/virtualNetworks/NETWORK/subnets/SUBNET"
Json = Mapping[str, Any]


def problems(connection: Connection, order: Order) -> list[Problem]:
    """Return the problems with the order's subnet, or with the shared network if it names none."""
    if not order.network:
        return _of_ours(_read(connection, connection.group, f"drydock-{order.location}"), order.location)
    parts = _ID.fullmatch(order.network)
    if parts is None:
        said = f"{order.network!r} is not a subnet's resource id ({_WORDS})."
        return [_problem(f"{said} {_instead(connection, order)}")]
    subscription, group, network, subnet = parts.groups()
    if subscription.lower() != connection.subscription.lower():
        raise CloudError(Meaning.INVALID, f"The subnet is in subscription {subscription} instead of the credential's.")
    there = _read(connection, group, network)
    if there is None:
        said = f"The resource group {group} has no network {network}."
        return [_problem(f"{said} {_instead(connection, order)}")]
    return _of_named(connection, order, there, subnet)


def _of_named(connection: Connection, order: Order, there: Json, subnet: str) -> list[Problem]:
    place = str(there.get("location") or "").lower()
    if place != order.location:
        said = f"The network {there['name']} is in {place}, so machines in {order.location} cannot use it."
        return [_problem(f"{said} Allow only {place} in regions. {_instead(connection, order)}")]
    own = _subnets([there])
    if not any(one.lower().endswith(f"/subnets/{subnet}".lower()) for one in own):
        said = f"The network {there['name']} has no subnet {subnet}. Available: {', '.join(own) or 'none'}."
        return [_problem(f"{said} Set network to one of these.")]
    return []


def _of_ours(there: Json | None, location: str) -> list[Problem]:
    """Return the problems of Drydock's own network.

    It is created with its subnet if it does not exist, so only an existing network can be wrong.
    """
    if there is None or any(one.endswith(f"/subnets/{SUBNET}") for one in _subnets([there])):
        return []
    said = f"The network drydock-{location} has no subnet {SUBNET}, so this network was not created by Drydock."
    return [
        _problem(f"{said} Add that subnet, delete the network, or set network to one of: {_listed(_subnets([there]))}.")
    ]


def _read(connection: Connection, group: str, network: str) -> Json | None:
    """Return a virtual network as JSON, or None if the network or its resource group does not exist."""
    networks = connection.network.virtual_networks
    try:
        there: Json | None = found(f"read {network}", lambda: networks.get(group, network).as_dict())
    except CloudError as error:
        if error.provider_code != "ResourceGroupNotFound":
            raise
        return None
    return there


def _instead(connection: Connection, order: Order) -> str:
    """Return a sentence that names the subnets which could be used instead: those in our own resource group."""
    with translated("list the networks"):
        listed = [one.as_dict() for one in connection.network.virtual_networks.list(connection.group)]
    there = _subnets(one for one in listed if str(one.get("location") or "").lower() == order.location)
    return (
        f"Available in {order.location} in the resource group: {_listed(there)}. Set network to one of "
        "these, or leave it empty."
    )


def _subnets(networks: Iterable[Json]) -> list[str]:
    every = (one for network in networks for one in (network.get("properties") or {}).get("subnets") or ())
    return sorted(str(one["id"]) for one in every)


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"


def _problem(message: str) -> Problem:
    return Problem(message=message, field="network")
