"""What a machine stands on: its firewall, its address and its network card, in a subnet that is there or is ours."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

from blueprints.azure import names
from blueprints.azure.connection import Connection, found, guarded
from blueprints.azure.machines import tags
from blueprints.azure.parts import Parts
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Order, Rule, Underway

SPACE, SUBNET = "10.77.0.0/16", "hosts"
FIRST_SSH, FIRST_OPENED, LAST_OPENED, DENY = 100, 200, 4000, 4096
"""Priorities: 100 to 4096, the lowest first."""
_PROTOCOLS = {"tcp": "Tcp", "udp": "Udp", "icmp": "Icmp", "any": "*"}


class Network:
    """Makes and finds it, all by PUTs of names made of the order's key."""

    def __init__(self, connection: Connection, parts: Parts) -> None:
        self._connection, self._parts = connection, parts

    def prepare(self, order: Order, *, accelerated: bool) -> Mapping[str, str] | Underway:
        """The network card's id, and what stands behind it; Underway until all of it is provisioned."""
        subnet = order.network or self._shared_subnet(order)
        nsg = self._standing("nsg", order, firewall(order))
        ip = self._standing("ip", order, address(order)) if order.public_address else ""
        if subnet is None or nsg is None or ip is None:
            return _underway("The firewall, the address and the network are being made.")
        nic = self._standing("nic", order, card(order, subnet, nsg, ip, accelerated=accelerated))
        if nic is None:
            return _underway("The network card is being made.")
        return {"nic": nic, "nsg": nsg, "ip": ip, "subnet": subnet}

    def open(self, key: str, rules: Sequence[Rule]) -> None:
        """Add the rules that are not there yet."""
        there = self._rules(key)
        taken = {int(one.get("priority") or 0) for one in there.values()}
        for rule in rules:
            if rule_name(rule) not in there:
                priority = _free(taken)
                taken.add(priority)
                self._put_rule(key, rule, priority)

    def close(self, key: str, rules: Sequence[Rule]) -> None:
        """Delete the rules that are there."""
        there = self._rules(key)
        group, nsg = self._connection.group, names.name("nsg", key)
        for wanted in sorted({rule_name(rule) for rule in rules} & set(there)):
            with guarded(f"close {wanted}", write=True):
                self._connection.network.security_rules.begin_delete(group, nsg, wanted, polling=False)

    def _shared_subnet(self, order: Order) -> str | None:
        """The subnet of ours in a location, made once and never deleted by the end of a machine; None while it is
        being made. It bears no machine's tags, so that no sweep takes it for part of one."""
        group, named = self._connection.group, f"drydock-{order.location}"
        networks = self._connection.network.virtual_networks
        there = found(f"read {named}", lambda: networks.get(group, named).as_dict())
        if there is None:
            self._make_shared(named, order)
            return None
        subnets = [one for one in there["properties"].get("subnets") or () if one.get("name") == SUBNET]
        if not subnets:
            raise CloudError(Meaning.INVALID, f"The network {named} has no subnet {SUBNET}: it is not ours.")
        return str(subnets[0]["id"]) if _ready(there) and _ready(subnets[0]) else None

    def _make_shared(self, named: str, order: Order) -> None:
        body: Any = shared_network(order)
        try:
            with guarded(f"make {named}", write=True):
                self._connection.network.virtual_networks.begin_create_or_update(
                    self._connection.group, named, body, polling=False
                )
        except CloudError as error:
            # Another order is making it.
            if error.meaning is not Meaning.CONFLICT:
                raise

    def _standing(self, part: str, order: Order, body: Mapping[str, Any]) -> str | None:
        """The id of a part, made where it is not there or has failed; None while Azure works on it."""
        there = self._parts.get(part, order.key)
        if there is not None:
            _ours(part, there, order)
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
            raise CloudError(Meaning.NOT_FOUND, f"{key} has no firewall of ours.")
        return {one["name"]: one["properties"] for one in nsg["properties"].get("securityRules") or ()}

    def _put_rule(self, key: str, rule: Rule, priority: int) -> None:
        body: Any = {"properties": opening(rule, priority)}
        with guarded(f"open port {rule.port}", write=True):
            self._connection.network.security_rules.begin_create_or_update(
                self._connection.group, names.name("nsg", key), rule_name(rule), body, polling=False
            )


def firewall(order: Order) -> dict[str, Any]:
    """The network security group: SSH from where the order says. All else inbound is closed, other machines of the
    same network included, which Azure would let in; outbound is open, as Azure has it."""
    rules = []
    for version, prefixes in _by_version(order.ssh_from).items():
        rules.append(
            {"name": f"ssh-v{version}", "properties": _inbound(FIRST_SSH + version, order.ssh_port, prefixes=prefixes)}
        )
    closed = _inbound(DENY, "*", protocol="*", access="Deny", prefixes=["*"])
    rules.append({"name": "closed", "properties": closed})
    return {"location": order.location, "tags": tags(order), "properties": {"securityRules": rules}}


def address(order: Order) -> dict[str, Any]:
    """The public IP address; it goes with the machine that has its network card."""
    zones = {"zones": [order.zone]} if order.zone else {}
    return {
        "location": order.location,
        "tags": tags(order),
        "sku": {"name": "Standard"},
        "properties": {"publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4"},
        **zones,
    }


def card(order: Order, subnet: str, nsg: str, ip: str, *, accelerated: bool) -> dict[str, Any]:
    """The network interface."""
    settings: dict[str, Any] = {"subnet": {"id": subnet}, "privateIPAllocationMethod": "Dynamic", "primary": True}
    if ip:
        settings["publicIPAddress"] = {"id": ip, "properties": {"deleteOption": "Delete"}}
    return {
        "location": order.location,
        "tags": tags(order),
        "properties": {
            "ipConfigurations": [{"name": "main", "properties": settings}],
            "networkSecurityGroup": {"id": nsg},
            "enableAcceleratedNetworking": accelerated,
        },
    }


def shared_network(order: Order) -> dict[str, Any]:
    """The virtual network that machines of a location share where the order names none. Its subnet lets machines
    without an address of their own out: new subnets do not by default since 2026."""
    ours = {tag: value for tag, value in order.tags.items() if tag == names.INSTALLATION}
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


def rule_name(rule: Rule) -> str:
    """The same for the same opening."""
    return f"open-{rule.protocol.lower()}-{rule.port}-{hashlib.sha256(rule.source.encode()).hexdigest()[:8]}"


def opening(rule: Rule, priority: int) -> dict[str, Any]:
    """One opening as a security rule. Raises CloudError INVALID for a protocol that Azure does not know."""
    protocol = _PROTOCOLS.get(rule.protocol.lower())
    if protocol is None:
        raise CloudError(Meaning.INVALID, f"{rule.protocol!r} is no protocol: {', '.join(_PROTOCOLS)}.")
    port = rule.port if protocol in ("Tcp", "Udp") else "*"
    return _inbound(priority, port, protocol=protocol, prefixes=[rule.source])


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
    """IPv4 and IPv6 apart: a rule takes one of them."""
    sorted_out: dict[int, list[str]] = {}
    for prefix in prefixes:
        try:
            sorted_out.setdefault(ipaddress.ip_network(prefix, strict=False).version, []).append(prefix)
        except ValueError:
            raise CloudError(Meaning.INVALID, f"ssh_from: {prefix!r} is no network such as 192.0.2.0/24.") from None
    return sorted_out


def _ours(part: str, there: Mapping[str, Any], order: Order) -> None:
    """Raises CloudError: INVALID where it is somebody else's, CONFLICT where it is of an earlier attempt elsewhere."""
    named = names.name(part, order.key)
    if not names.bears(there, order.tags):
        raise CloudError(Meaning.INVALID, f"There is a {named} already, and it is not ours: its tags differ.")
    if str(there.get("location") or "").lower() != order.location:
        raise CloudError(Meaning.CONFLICT, f"{named} of an earlier attempt is still in {there.get('location')}.")


def _free(taken: set[int]) -> int:
    free = next((one for one in range(FIRST_OPENED, LAST_OPENED) if one not in taken), None)
    if free is None:
        raise CloudError(Meaning.QUOTA, "The firewall has no room for another rule.")
    return free


def _state(there: Mapping[str, Any]) -> str:
    return str((there.get("properties") or {}).get("provisioningState") or "").lower()


def _ready(there: Mapping[str, Any]) -> bool:
    return _state(there) == "succeeded"


def _failed(there: Mapping[str, Any]) -> bool:
    return _state(there) in ("failed", "canceled")


def _underway(sentence: str) -> Underway:
    return Underway(handle={}, after=1.0, sentence=sentence)
