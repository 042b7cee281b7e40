"""The DPUServiceIPAMs of a lease, and their DPUServiceNADs where the server has them. Pure.

DPF makes a pool of addresses of a DPUServiceIPAM in its DPU clusters, which a port of a chain finds by its labels, and
of a DPUServiceNAD the network through which pods get such an interface (doca-platform,
`internal/dpuservicechain/controllers`). It accepts both in its own namespace `dpf-operator-system` only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from blueprints.answers import Json
from blueprints.dpf.objects import Place, Written
from blueprints.dpf.services import LEASE
from blueprints.kube import label_value, object_name
from drydock.core.errors import InvalidRequest
from interfaces.dpu_services import Network

IPAM, NAD = "DPUServiceIPAM", "DPUServiceNAD"
OF = "drydock-network"
"""The label of a network's objects with its name, and of its pool in the DPU cluster."""
BRIDGE, RESOURCE = "br-sfc", "sf"
"""The bridge of DPF's chains, and the functions of the card that pods get for them."""


def name_of(lease: str, network: str) -> str:
    """Return the name of the objects of a network."""
    return object_name(f"{lease}-{network}")


def pool_label(lease: str, network: str) -> dict[str, str]:
    """Return the labels of the pool of a network in the DPU cluster."""
    return {LEASE: label_value(lease), OF: network}


class NetworkObjects(Written[Network]):
    """How networks are written."""

    kinds: ClassVar[tuple[str, ...]] = (IPAM, NAD)
    name: ClassVar[str] = OF
    definition: ClassVar[str] = "drydock-network-definition"

    def parse(self, given: Json) -> Network:
        """Return a network from JSON. Raises InvalidRequest."""
        return Network.from_json(given)

    def specs(self, place: Place, made: Network) -> Sequence[tuple[str, str, Json]]:
        """Return kind, name and spec of the objects of a network. Raises InvalidRequest for an MTU without NADs."""
        name, found = name_of(place.lease, made.name), []
        if place.dialect.has(NAD):
            mtu = {"serviceMTU": made.mtu} if made.mtu is not None else {}
            found.append((NAD, name, {"resourceType": RESOURCE, "bridge": BRIDGE, "ipam": True, **mtu}))
        elif made.mtu is not None:
            raise InvalidRequest("This version of DPF cannot set the MTU of a network.", field="mtu")
        node = [{"key": key, "operator": "In", "values": [value]} for key, value in sorted(place.proof.items())]
        spec: Json = {
            "metadata": {"labels": pool_label(place.lease, made.name)},
            "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": node}]}, **_range(made),
        }  # fmt: skip
        return [*found, (IPAM, name, spec)]


def _range(made: Network) -> dict[str, Any]:
    if made.subnet:
        found = {"subnet": made.subnet, "gateway": made.gateway, "perNodeIPCount": made.addresses}
        return {"ipv4Subnet": found}
    index = {"gatewayIndex": made.gateway_index} if made.gateway_index is not None else {}
    return {"ipv4Network": {"network": made.network, "prefixSize": made.prefix, **index}}


NETWORKS = NetworkObjects()
