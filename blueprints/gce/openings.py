"""Firewall rules: one for SSH, named as the instance, and one for each port opened later.

A rule has no labels, so its description holds the tags as JSON; by them we know our own. It applies to the instances
with the network tag that is the order's key.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from google.cloud import compute_v1

from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Order, Remnant, Rule, lost_tags, same_owner
from blueprints.gce.calls import Calls, Operation, found
from blueprints.gce.labels import bears
from blueprints.gce.orders import NAME, is_subnet, network_link, refused
from blueprints.gce.reading import when

LONGEST = 36
"""Characters of a key that a further rule's name begins with: its rest, at most 24, still fits into 63."""


def name_of(key: str, rule: Rule) -> str:
    """The name of a further opening: key, protocol, port and a mark of the source."""
    mark = hashlib.sha256(f"{key} {rule.source}".encode()).hexdigest()[:8]
    return f"{key[:LONGEST].rstrip('-')}-{rule.protocol}-{rule.port}-{mark}"


def ipv4(sources: Sequence[str]) -> tuple[str, ...]:
    """One rule cannot hold both sorts, and our instances have IPv4 alone."""
    return tuple(source for source in sources if ":" not in source)


def for_ssh(order: Order, network: str) -> dict[str, Any]:
    """The rule that an order stands on."""
    if not NAME.fullmatch(order.key):
        raise refused(
            f"{order.key!r} cannot be a firewall rule's name: 1-63 of a-z, 0-9 and -, beginning with a letter."
        )
    return _rule(order.key, order.key, network, "tcp", order.ssh_port, ipv4(order.ssh_from), order.tags)


def for_port(key: str, network: str, rule: Rule, tags: Mapping[str, str]) -> dict[str, Any]:
    """A further opening."""
    return _rule(name_of(key, rule), key, network, rule.protocol, rule.port, (rule.source,), tags)


def _rule(
    name: str, key: str, network: str, protocol: str, port: int, sources: Sequence[str], tags: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "name": name,
        "network": network,
        "description": json.dumps(dict(tags), sort_keys=True),
        "direction": "INGRESS",
        "allowed": [{"I_p_protocol": protocol, "ports": [str(port)]}],
        "source_ranges": sorted(sources),
        "target_tags": [key],
    }


class Openings:
    """The firewall rules of one project."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    @property
    def _client(self) -> compute_v1.FirewallsClient:
        return self._calls.of(compute_v1.FirewallsClient)

    def network(self, order: Order) -> str:
        """The network that the rule belongs to; of a subnet it has to be read."""
        link = network_link(order.network, self._calls.project)
        if not is_subnet(order.network):
            return link
        parts = link.split("/")
        request = compute_v1.GetSubnetworkRequest(
            project=parts[parts.index("projects") + 1], region=parts[parts.index("regions") + 1], subnetwork=parts[-1]
        )
        network = self._calls.read(self._calls.of(compute_v1.SubnetworksClient).get, request).network
        return network[network.find("projects/") :]

    def ensure(self, rule: Mapping[str, Any]) -> bool:
        """Whether it is there as it should be; else it is on its way. Raises INVALID where another's has its name."""
        there = self._read(rule["name"])
        if there is None:
            return self._insert(rule)
        if not _ours(there, rule):
            text = f"There is a firewall rule {rule['name']!r} already that is not ours."
            raise CloudError(Meaning.INVALID, text, provider_code="alreadyExists")
        if sorted(there.source_ranges) != list(rule["source_ranges"]) or _opens(there) != _wanted(rule):
            request = compute_v1.PatchFirewallRequest(
                project=self._calls.project, firewall=rule["name"], firewall_resource=dict(rule)
            )
            return self._calls.done(self._calls.write(self._client.patch_unary, request))
        return True

    def _read(self, name: str) -> compute_v1.Firewall | None:
        request = compute_v1.GetFirewallRequest(project=self._calls.project, firewall=name)
        return found(lambda: self._calls.read(self._client.get, request))

    def _insert(self, rule: Mapping[str, Any]) -> bool:
        """Its name makes it idempotent: a second one meets alreadyExists, as does one that is still being made."""
        request = compute_v1.InsertFirewallRequest(project=self._calls.project, firewall_resource=dict(rule))
        try:
            return self._calls.done(self._calls.write(self._client.insert_unary, request))
        except CloudError as error:
            if error.provider_code in ("alreadyExists", "RESOURCE_ALREADY_EXISTS"):
                return False
            raise

    def close(self, name: str) -> None:
        """Ask for a rule's end; gone is no error. Raises CONFLICT while it is still being made: until then it looks
        as though there were none."""
        request = compute_v1.DeleteFirewallRequest(project=self._calls.project, firewall=name)
        asked = found(lambda: self._calls.write(self._client.delete_unary, request))
        if asked is None and self._being_made(name):
            raise CloudError(Meaning.CONFLICT, f"Firewall rule {name!r} is still being made.")

    def _being_made(self, name: str) -> bool:
        # Regular expressions over several fields cannot be combined in one filter (compute/docs/reference, `filter`).
        request = compute_v1.ListGlobalOperationsRequest(
            project=self._calls.project, filter=f'targetLink eq ".*/firewalls/{name}"'
        )
        pages = self._calls.pages(self._calls.of(compute_v1.GlobalOperationsClient).list, request)
        about = (one for page in pages for one in page.items)
        return any(one.operation_type == "insert" and one.status != Operation.Status.DONE for one in about)

    def untagged(self, names: Sequence[str]) -> list[str]:
        """Those of these rules that are there and whose descriptions hold nobody's tags."""
        there = ((name, self._read(name)) for name in names)
        return [name for name, rule in there if rule is not None and lost_tags(_tags(rule))]

    def of(self, key: str, tags: Mapping[str, str]) -> list[str]:
        """The names of all rules of a key that bear these tags."""
        request = compute_v1.ListFirewallsRequest(
            project=self._calls.project, filter=f'name eq "{key[:LONGEST].rstrip("-")}.*"'
        )
        rules = (rule for page in self._calls.pages(self._client.list, request) for rule in page.items)
        return sorted(rule.name for rule in rules if key in rule.target_tags and same_owner(_tags(rule), tags))

    def listed(self, tags: Mapping[str, str]) -> list[Remnant]:
        """All rules that bear these tags. No filter reads a description, so all of the project's are looked through."""
        request = compute_v1.ListFirewallsRequest(project=self._calls.project, max_results=500)
        rules = (rule for page in self._calls.pages(self._client.list, request) for rule in page.items)
        return [_remnant(rule) for rule in rules if bears(_tags(rule), tags)]


def _remnant(rule: compute_v1.Firewall) -> Remnant:
    """Its name is its key, or begins with it; that is no tag. One for whose name there is no such key is named by
    its target, which a copy would have too."""
    target = next(iter(rule.target_tags), "")
    named = rule.name == target or rule.name.startswith(f"{target[:LONGEST].rstrip('-')}-")
    return Remnant(
        what="firewall rule", id=rule.name, key=target, tags=_tags(rule), named=bool(target) and named,
        created_at=when(rule.creation_timestamp),
    )  # fmt: skip


def _ours(there: compute_v1.Firewall, rule: Mapping[str, Any]) -> bool:
    wanted = json.loads(rule["description"])
    same_network = there.network.endswith(rule["network"])
    return same_network and list(there.target_tags) == rule["target_tags"] and same_owner(_tags(there), wanted)


def _tags(rule: compute_v1.Firewall) -> dict[str, str]:
    try:
        said = json.loads(rule.description or "{}")
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _opens(there: compute_v1.Firewall) -> list[tuple[str, tuple[str, ...]]]:
    return [(one.I_p_protocol, tuple(one.ports)) for one in there.allowed]


def _wanted(rule: Mapping[str, Any]) -> list[tuple[str, tuple[str, ...]]]:
    return [(one["I_p_protocol"], tuple(one["ports"])) for one in rule["allowed"]]
