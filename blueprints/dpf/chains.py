"""The DPUServiceChains of a lease and their DPUServiceInterfaces. Pure.

DPF makes a ServiceInterfaceSet or a ServiceChainSet of each in its DPU clusters, from which one ServiceInterface or
ServiceChain follows for each node that the selector matches. A chain finds its interfaces on the node by their labels
(doca-platform, `internal/dpuservicechain/controllers` and `internal/servicechainset/controllers`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from blueprints.answers import Json
from blueprints.dpf import networks, services
from blueprints.dpf.objects import Place, Written
from blueprints.dpf.services import LEASE
from blueprints.kube import Object, at, label_value, object_name
from interfaces.dpu_services import Chain, ChainInterface

CHAIN, INTERFACE = "DPUServiceChain", "DPUServiceInterface"
OF = "drydock-interface"
"""The label of an interface in the DPU cluster, by which its chain finds it."""
_PARENT = "spec.template.spec.template.spec.vf.parentInterfaceRef"
_NETWORK = "template.spec.template.spec.service.network"


def name_of(lease: str, chain: str) -> str:
    """Return the name of the DPUServiceChain of a chain."""
    return object_name(f"{lease}-{chain}")


def interface_name(lease: str, interface: ChainInterface) -> str:
    """Return the name of the DPUServiceInterface of an interface. A lease has one of each, whatever its chain."""
    if interface.service:
        return services.interface_name(lease, interface.service, interface.name)
    return object_name(f"{lease}-{interface}")


class ChainObjects(Written[Chain]):
    """How chains are written: their interfaces, and then the chain, all of them on the node of the DPU."""

    kinds: ClassVar[tuple[str, ...]] = (CHAIN, INTERFACE)
    name: ClassVar[str] = "drydock-chain"
    definition: ClassVar[str] = "drydock-chain-definition"

    def parse(self, given: Json) -> Chain:
        """Return a chain from JSON. Raises InvalidRequest."""
        return Chain.from_json(given)

    def specs(self, place: Place, made: Chain) -> Sequence[tuple[str, str, Json]]:
        """Return kind, name and spec of the objects of a chain."""
        found = [interface_object(place, one) for one in made.interfaces]
        switches = [{"ports": [_port(place, one) for one in ports]} for ports in made.switches]
        chain = _on_node(place, {"spec": {"switches": switches}})
        return [*found, (CHAIN, name_of(place.lease, made.name), chain)]

    def former(self, place: Place, found: Object) -> Place:
        """Return the place with the network that the config had when an interface was written."""
        return former_network(place, found)


def _port(place: Place, one: ChainInterface) -> Json:
    found: Json = {"matchLabels": _label(place, one)}
    if one.network:
        found["ipam"] = {"matchLabels": networks.pool_label(place.lease, one.network)}
    return {"serviceInterface": found}


def interface_object(place: Place, one: ChainInterface, virtual_network: str = "") -> tuple[str, str, Json]:
    """Return kind, name and spec of the object of an interface, which is perhaps in a virtual network of a VPC."""
    spec = _kind_of(place, one)
    if virtual_network:
        spec[spec["interfaceType"]]["virtualNetwork"] = virtual_network
    template = {"metadata": {"labels": _label(place, one)}, "spec": spec}
    return INTERFACE, interface_name(place.lease, one), _on_node(place, template)


def former_network(place: Place, found: Object) -> Place:
    """Return the place with the network that the config had when an interface was written."""
    return replace(place, network=str(at(found.spec, _NETWORK) or ""))


def _kind_of(place: Place, one: ChainInterface) -> Json:
    if one.service:
        own = one.network and place.dialect.has(networks.NAD)
        network = networks.name_of(place.lease, one.network) if own else place.network
        found = {"serviceID": services.service_id(place.lease, one.service), "network": network}
        return {"interfaceType": "service", "service": {**found, "interfaceName": one.name}}
    if one.port is not None:
        return {"interfaceType": "physical", "physical": {"interfaceName": str(one)}}
    if one.vf is None:
        return {"interfaceType": "pf", "pf": {"pfID": one.pf}}
    parent = {"parentInterfaceRef": f"p{one.pf}"} if place.dialect.required(INTERFACE, _PARENT) else {}
    return {"interfaceType": "vf", "vf": {"pfID": one.pf, "vfID": one.vf, **parent}}


def _on_node(place: Place, template: Json) -> Json:
    return {"template": {"spec": {"nodeSelector": {"matchLabels": dict(place.proof)}, "template": template}}}


def _label(place: Place, one: ChainInterface) -> dict[str, str]:
    return {LEASE: label_value(place.lease), OF: interface_name(place.lease, one)}


CHAINS = ChainObjects()
