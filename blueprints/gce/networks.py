"""Whether the network that machines would stand in is there, before there is a machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from google.cloud import compute_v1

from blueprints.cloud.values import Order
from blueprints.gce.calls import Calls, found
from blueprints.gce.orders import is_subnet, network_link
from blueprints.gce.reading import last
from blueprints.specs import Problem

PAGE = 500


def problems(calls: Calls, order: Order) -> list[Problem]:
    """What is wrong with the network or subnet that an order names, or with `default` where it names none."""
    parts = network_link(order.network, calls.project).split("/")
    if not is_subnet(order.network):
        return list(_of_network(_networks(calls, parts[1]), parts[-1], order.location))
    region = parts[parts.index("regions") + 1] if "regions" in parts else ""
    if region != order.location:
        where = f"is in {region}" if region else "says no region (regions/REGION/subnetworks/NAME)"
        said = f"The subnet {order.network} {where}, and machines in {order.location} cannot stand in it."
        return [_problem(f"{said} Allow in regions only its own, or name a network that is everywhere.")]
    request = compute_v1.GetSubnetworkRequest(project=parts[1], region=region, subnetwork=parts[-1])
    if found(lambda: calls.read(calls.of(compute_v1.SubnetworksClient).get, request)) is not None:
        return []
    there = _subnets(_networks(calls, parts[1]), region)
    return [_problem(f"{parts[1]} has no subnet {parts[-1]} in {region}. It has: {_listed(there)}. Name one.")]


def _of_network(there: Sequence[Any], name: str, region: str) -> Iterator[Problem]:
    """A network of the mode custom does not choose a subnet by itself, and one of the mode auto does; one of the old
    sort has none (compute/docs/reference/rest/v1/instances, networkInterfaces[].subnetwork)."""
    it = next((one for one in there if one.name == name), None)
    if it is None:
        names = ", ".join(sorted(one.name for one in there)) or "none"
        yield _problem(f"The project has no network {name!r}. It has: {names}. Name one in network, or make it.")
    elif not (it.auto_create_subnetworks or it.I_pv4_range):
        own = _subnets([it], region)
        yield _problem(
            f"The network {name!r} chooses no subnet by itself (mode custom). Name one of its own in {region}: "
            f"{_listed(own)}."
        )
    elif it.auto_create_subnetworks and not _subnets([it], region):
        yield _problem(f"The network {name!r} has no subnet in {region}. Make one, or allow other regions.")


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
