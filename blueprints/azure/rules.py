"""The firewall of a machine: rules of its network security group."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Sequence
from typing import Any

from blueprints.azure.machines import tags
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Order, Rule

FIRST_SSH, FIRST_OPENED, LAST_OPENED, DENY = 100, 200, 4000, 4096
"""Priorities: 100 to 4096, the lowest first."""
_PROTOCOLS = {"tcp": "Tcp", "udp": "Udp", "icmp": "Icmp", "any": "*"}


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


def rule_name(rule: Rule) -> str:
    """The same for the same opening."""
    return f"open-{rule.protocol.lower()}-{rule.port}-{hashlib.sha256(rule.source.encode()).hexdigest()[:8]}"


def opening(rule: Rule, priority: int) -> dict[str, Any]:
    """One opening as a security rule. Raises CloudError INVALID for a protocol that Azure does not know."""
    protocol = _PROTOCOLS.get(rule.protocol.lower())
    if protocol is None:
        raise CloudError(Meaning.INVALID, f"{rule.protocol!r} is not a protocol: {', '.join(_PROTOCOLS)}.")
    port = rule.port if protocol in ("Tcp", "Udp") else "*"
    return _inbound(priority, port, protocol=protocol, prefixes=[rule.source])


def free(taken: set[int]) -> int:
    """The first priority for an opening that no rule has. Raises CloudError QUOTA."""
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
    """IPv4 and IPv6 apart: a rule takes one of them."""
    sorted_out: dict[int, list[str]] = {}
    for prefix in prefixes:
        try:
            sorted_out.setdefault(ipaddress.ip_network(prefix, strict=False).version, []).append(prefix)
        except ValueError:
            raise CloudError(Meaning.INVALID, f"ssh_from: {prefix!r} is not a network such as 192.0.2.0/24.") from None
    return sorted_out
