"""What a machine stands on: its firewall, its address and its network card, in a subnet that is there or is ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from blueprints.azure import names
from blueprints.azure.calls import found, guarded
from blueprints.azure.connection import Connection
from blueprints.azure.machines import tags
from blueprints.azure.parts import Parts
from blueprints.azure.rules import firewall, free, opening, rule_name
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Order, Rule, Underway

SPACE, SUBNET = "10.77.0.0/16", "hosts"


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
                priority = free(taken)
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
            raise CloudError(Meaning.NOT_FOUND, f"{key} has no firewall of ours.")
        return {one["name"]: one["properties"] for one in nsg["properties"].get("securityRules") or ()}

    def _put_rule(self, key: str, rule: Rule, priority: int) -> None:
        body: Any = {"properties": opening(rule, priority)}
        with guarded(f"open port {rule.port}", write=True):
            self._connection.network.security_rules.begin_create_or_update(
                self._connection.group, names.name("nsg", key), rule_name(rule), body, polling=False
            )


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


def _ours(part: str, there: Mapping[str, Any], order: Order, body: Mapping[str, Any]) -> None:
    """Raises CloudError: INVALID where it is somebody else's, CONFLICT where it is of an earlier attempt elsewhere."""
    named = names.name(part, order.key)
    if not names.of_owner(there, order.tags):
        raise CloudError(Meaning.INVALID, f"There is a {named} already, and it is not ours: its tags differ.")
    if str(there.get("location") or "").lower() != order.location:
        raise CloudError(Meaning.CONFLICT, f"{named} of an earlier attempt is still in {there.get('location')}.")
    if body.get("zones") and list(there.get("zones") or ()) != body["zones"]:
        raise CloudError(Meaning.CONFLICT, f"{named} of an earlier attempt is in zone {there.get('zones')}.")


def _state(there: Mapping[str, Any]) -> str:
    return str((there.get("properties") or {}).get("provisioningState") or "").lower()


def _ready(there: Mapping[str, Any]) -> bool:
    return _state(there) == "succeeded"


def _failed(there: Mapping[str, Any]) -> bool:
    return _state(there) in ("failed", "canceled")


def _underway(sentence: str) -> Underway:
    return Underway(handle={}, after=1.0, sentence=sentence)
