"""Networks and firewall rules: a rule for SSH, named like the instance, and one for each port opened later.

A rule has no labels, so its description holds the tags as JSON; they mark it as ours. It applies to the instances with
the network tag that is the order's key.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from google.cloud import compute_v1

from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Order, Remnant, Rule, lost_tags, same_owner
from blueprints.gce.api import NAME, Calls, Operation, bears, found, last, refused, when
from blueprints.specs import Problem

LONGEST = 36
"""Maximum number of characters of the key at the beginning of a port rule's name. The rest of the name has at most 24
characters, and a name may have 63."""


def rule_name(key: str, rule: Rule) -> str:
    """Return the name of a rule for an additional port: key, protocol, port and a hash of the source."""
    mark = hashlib.sha256(f"{key} {rule.source}".encode()).hexdigest()[:8]
    return f"{key[:LONGEST].rstrip('-')}-{rule.protocol}-{rule.port}-{mark}"


def ipv4(sources: Sequence[str]) -> tuple[str, ...]:
    """Return the IPv4 sources. A rule cannot hold both address families, and our instances have IPv4 only."""
    return tuple(source for source in sources if ":" not in source)


def ssh_rule(order: Order, network: str) -> dict[str, Any]:
    """Return the rule for SSH that an order needs."""
    if not NAME.fullmatch(order.key):
        raise refused(
            f"{order.key!r} is not a valid name of a firewall rule: use 1 to 63 of a-z, 0-9 and -, beginning "
            "with a letter."
        )
    return _rule(order.key, order.key, network, "tcp", order.ssh_port, ipv4(order.ssh_from), order.tags)


def port_rule(key: str, network: str, rule: Rule, tags: Mapping[str, str]) -> dict[str, Any]:
    """Return the rule for an additional port."""
    return _rule(rule_name(key, rule), key, network, rule.protocol, rule.port, (rule.source,), tags)


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


class FirewallRules:
    """The firewall rules of one project."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    @property
    def _client(self) -> compute_v1.FirewallsClient:
        return self._calls.of(compute_v1.FirewallsClient)

    def network(self, order: Order) -> str:
        """Return the network to which the rule belongs. The network of a subnet has to be read."""
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
        """Return whether the rule exists as required. If not, it is being created.

        Raises INVALID if a rule that is not ours has its name.
        """
        there = self._read(rule["name"])
        if there is None:
            return self._insert(rule)
        if not _ours(there, rule):
            text = (
                f"The firewall rule {rule['name']!r} already exists, but does not belong to this Drydock installation."
            )
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
        """Request the rule. Return True if Google has created it by the time of the answer.

        A repeated request is harmless: Google answers alreadyExists, even while the rule is still being created.
        """
        request = compute_v1.InsertFirewallRequest(project=self._calls.project, firewall_resource=dict(rule))
        try:
            return self._calls.done(self._calls.write(self._client.insert_unary, request))
        except CloudError as error:
            if error.provider_code in ("alreadyExists", "RESOURCE_ALREADY_EXISTS"):
                return False
            raise

    def close(self, name: str) -> None:
        """Request the deletion of a rule. A rule that does not exist is not an error.

        Raises CONFLICT while the rule is still being created, because until then it seems not to exist.
        """
        request = compute_v1.DeleteFirewallRequest(project=self._calls.project, firewall=name)
        asked = found(lambda: self._calls.write(self._client.delete_unary, request))
        # Read again after the operations, because it may have been created between the two questions.
        if asked is None and (self._being_made(name) or self._read(name) is not None):
            raise CloudError(Meaning.CONFLICT, f"Firewall rule {name!r} is still being created.")

    def _being_made(self, name: str) -> bool:
        # Regular expressions over several fields cannot be combined in one filter (compute/docs/reference, `filter`).
        request = compute_v1.ListGlobalOperationsRequest(
            project=self._calls.project, filter=f'targetLink eq ".*/firewalls/{name}"'
        )
        pages = self._calls.pages(self._calls.of(compute_v1.GlobalOperationsClient).list, request)
        about = (one for page in pages for one in page.items)
        return any(one.operation_type == "insert" and one.status != Operation.Status.DONE for one in about)

    def untagged(self, names: Sequence[str]) -> list[str]:
        """Return the names of the given rules that exist and have no Drydock tags in their descriptions."""
        there = ((name, self._read(name)) for name in names)
        return [name for name, rule in there if rule is not None and lost_tags(_tags(rule))]

    def of(self, key: str, tags: Mapping[str, str]) -> list[str]:
        """Return the names of all rules of a key that have these tags."""
        request = compute_v1.ListFirewallsRequest(
            project=self._calls.project, filter=f'name eq "{key[:LONGEST].rstrip("-")}.*"'
        )
        rules = (rule for page in self._calls.pages(self._client.list, request) for rule in page.items)
        return sorted(rule.name for rule in rules if key in rule.target_tags and same_owner(_tags(rule), tags))

    def listed(self, tags: Mapping[str, str]) -> list[Remnant]:
        """Return all rules with these tags.

        Descriptions cannot be filtered, so all rules of the project are read.
        """
        request = compute_v1.ListFirewallsRequest(project=self._calls.project, max_results=500)
        rules = (rule for page in self._calls.pages(self._client.list, request) for rule in page.items)
        return [_remnant(rule) for rule in rules if bears(_tags(rule), tags)]


def _remnant(rule: compute_v1.Firewall) -> Remnant:
    """Convert a firewall rule to a remnant.

    The key is the rule's target. `named` is true if the rule's name confirms that key, because a copy of the rule would
    have the same target.
    """
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


PAGE = 500


def problems(calls: Calls, order: Order) -> list[Problem]:
    """Return the problems with the order's network or subnet, or with `default` if it names none."""
    parts = network_link(order.network, calls.project).split("/")
    if not is_subnet(order.network):
        return list(_of_network(_networks(calls, parts[1]), parts[-1], order.location))
    region = parts[parts.index("regions") + 1] if "regions" in parts else ""
    if region != order.location:
        where = f"is in {region}" if region else "does not name a region (regions/REGION/subnetworks/NAME)"
        said = f"The subnet {order.network} {where}, so machines in {order.location} cannot use it."
        return [_problem(f"{said} Set regions to the subnet's region, or choose a network that covers all regions.")]
    request = compute_v1.GetSubnetworkRequest(project=parts[1], region=region, subnetwork=parts[-1])
    if found(lambda: calls.read(calls.of(compute_v1.SubnetworksClient).get, request)) is not None:
        return []
    there = _subnets(_networks(calls, parts[1]), region)
    return [
        _problem(f"{parts[1]} has no subnet {parts[-1]} in {region}. Available: {_listed(there)}. Choose one of these.")
    ]


def _of_network(there: Sequence[Any], name: str, region: str) -> Iterator[Problem]:
    """Yield the problems of a network for machines in a region.

    In a network of mode `custom`, a subnet must be named. A network of mode `auto` chooses one, and a legacy network
    has no subnets (compute/docs/reference/rest/v1/instances, networkInterfaces[].subnetwork).
    """
    it = next((one for one in there if one.name == name), None)
    if it is None:
        names = ", ".join(sorted(one.name for one in there)) or "none"
        yield _problem(
            f"The project has no network {name!r}. Available: {names}. Set network to one of these, or create it."
        )
    elif not (it.auto_create_subnetworks or it.I_pv4_range):
        own = _subnets([it], region)
        yield _problem(
            f"The network {name!r} does not choose a subnet by itself (mode custom). Choose one of its "
            f"subnets in {region}: {_listed(own)}."
        )
    elif it.auto_create_subnetworks and not _subnets([it], region):
        yield _problem(f"The network {name!r} has no subnet in {region}. Create one, or allow other regions.")


def _networks(calls: Calls, project: str) -> list[Any]:
    request = compute_v1.ListNetworksRequest(project=project, max_results=PAGE)
    pages = calls.pages(calls.of(compute_v1.NetworksClient).list, request)
    return [one for page in pages for one in page.items]


def _subnets(networks: Sequence[Any], region: str) -> list[str]:
    links = [link for one in networks for link in one.subnetworks if f"/regions/{region}/" in link]
    return sorted(f"regions/{region}/subnetworks/{last(link)}" for link in links)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _problem(message: str) -> Problem:
    return Problem(message=message, field="network")


def is_subnet(network: str) -> bool:
    """Return whether an order's network names a subnet."""
    return "subnetworks/" in network


def network_link(network: str, project: str) -> str:
    """Return the link of a network or subnet, or of `default` if the order names none."""
    if "/" not in network:
        return f"projects/{project}/global/networks/{network or 'default'}"
    found = re.search(r"projects/.*", network)
    return found[0] if found else f"projects/{project}/{network}"
