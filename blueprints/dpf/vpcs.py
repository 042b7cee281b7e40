"""The DPUVPC of a lease, its DPUVirtualNetworks, and the DPUServiceInterfaces in them. Pure.

A DPUVPC has the nodes that its selector matches, and a node is in one DPUVPC at most. DPF labels the node with the
namespace and the name of its DPUVPC, and gives the interfaces of the node that name a virtual network addresses of it
(doca-platform, `internal/vpc/ovn`; docs, DOCA VPC OVN Service). 24.10 has none of these types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from blueprints.answers import Json
from blueprints.dpf.chains import INTERFACE, former_network, interface_object
from blueprints.dpf.objects import Place, Written
from blueprints.kube import Object, label_value, object_name
from interfaces.dpu_services import VirtualNetwork, Vpc

VPC, NETWORK = "DPUVPC", "DPUVirtualNetwork"
_LABEL, _SHORTEST = 63, 20
"""Characters of the value of a label, and those that the name of a DPUVPC has in any case."""


def name_of(place: Place, vpc: str) -> str:
    """Return the name of the DPUVPC, which with its namespace and `_` is also the value of a label."""
    return object_name(f"{place.lease}-{vpc}", max(_SHORTEST, _LABEL - 1 - len(place.namespace)))


def network_name(lease: str, vpc: str, network: str) -> str:
    """Return the name of the DPUVirtualNetwork of a virtual network."""
    return object_name(f"{lease}-{vpc}-{network}")


class VpcObjects(Written[Vpc]):
    """How VPCs are written: the VPC, its virtual networks, and the interfaces in them."""

    kinds: ClassVar[tuple[str, ...]] = (INTERFACE, NETWORK, VPC)
    root: ClassVar[str] = VPC
    newer: ClassVar[tuple[str, ...]] = (NETWORK, VPC)
    name: ClassVar[str] = "drydock-vpc"
    definition: ClassVar[str] = "drydock-vpc-definition"

    def parse(self, given: Json) -> Vpc:
        """Return a VPC from JSON. Raises InvalidRequest."""
        return Vpc.from_json(given)

    def specs(self, place: Place, made: Vpc) -> Sequence[tuple[str, str, Json]]:
        """Return kind, name and spec of the objects of a VPC, all of them for the node of the DPU only."""
        nodes = {"nodeSelector": {"matchLabels": dict(place.proof)}}
        vpc: Json = {
            "tenant": label_value(place.lease), "isolationClassName": made.isolation,
            "interNetworkAccess": made.routed, **nodes,
        }  # fmt: skip
        found = [(VPC, name_of(place, made.name), vpc)]
        for one in made.networks:
            spec = {"vpcName": name_of(place, made.name), **_network(one), **nodes}
            found.append((NETWORK, network_name(place.lease, made.name, one.name), spec))
        for network in made.networks:
            name = network_name(place.lease, made.name, network.name)
            found += [interface_object(place, one, name) for one in network.interfaces]
        return found

    def former(self, place: Place, found: Object) -> Place:
        """Return the place with the network that the config had when an interface was written."""
        return former_network(place, found)


def _network(one: VirtualNetwork) -> Json:
    return {
        "type": "Bridged", "externallyRouted": one.external, "masquerade": one.masquerade,
        "bridgedNetwork": {"ipam": {"ipv4": {"dhcp": one.dhcp, "subnet": one.subnet}}},
    }  # fmt: skip


VPCS = VpcObjects()
