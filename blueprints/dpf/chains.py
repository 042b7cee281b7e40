"""The DPUServiceChains of a lease and their DPUServiceInterfaces: manifests, and what their objects say. Pure.

DPF makes a ServiceInterfaceSet or a ServiceChainSet of each in its DPU clusters, from which one ServiceInterface or
ServiceChain follows for each node that the selector matches. A chain finds its interfaces on the node by their labels
(doca-platform, `internal/dpuservicechain/controllers` and `internal/servicechainset/controllers`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from blueprints.answers import Json
from blueprints.dpf import services
from blueprints.dpf.services import LEASE, labels_of
from blueprints.kube import Dialect, Object, at, dropped, label_value, object_name
from drydock.core.errors import InvalidRequest
from interfaces.dpu_services import Chain, ChainInterface, Condition, FoundChain

CHAIN, INTERFACE = "DPUServiceChain", "DPUServiceInterface"
KINDS = (CHAIN, INTERFACE)
"""The kinds of objects of a chain, in the order in which they are removed."""
NAME = "drydock-chain"
"""The label of the objects of a chain with its name."""
OF = "drydock-interface"
"""The label of an interface in the DPU cluster, by which its chain finds it."""
DEFINITION = "drydock-chain-definition"
"""The annotation of the objects of a chain with the chain as JSON."""
READY = "Ready"
_SELECTORS = ("dpuClusterSelector", "clusterSelector")
"""The field that selects clusters, in newer and in older versions of DPF. Those that have both prefer the first."""
_PARENT = "spec.template.spec.template.spec.vf.parentInterfaceRef"
_NETWORK = "template.spec.template.spec.service.network"
_UNCHANGED = "Unchanged"


def name_of(lease: str, chain: str) -> str:
    """Return the name of the DPUServiceChain of a chain."""
    return object_name(f"{lease}-{chain}")


def interface_name(lease: str, interface: ChainInterface) -> str:
    """Return the name of the DPUServiceInterface of an interface. A lease has one of each, whatever its chain."""
    if interface.service:
        return services.interface_name(lease, interface.service, interface.name)
    return object_name(f"{lease}-{interface}")


def manifests(
    dialect: Dialect, chain: Chain, *, lease: str, namespace: str, proof: Mapping[str, str], cluster: Mapping[str, str],
    network: str,
) -> list[Json]:  # fmt: skip
    """Return the interfaces of a chain, and then the chain, all of them on the node with the labels `proof`.

    `cluster` has the labels of the DPU cluster, and `network` names the network of interfaces of services.
    """
    found = [
        dialect.type(INTERFACE).manifest(
            interface_name(lease, one), namespace, spec=_of_interface(dialect, one, lease, proof, cluster, network)
        )
        for one in chain.interfaces
    ]
    found.append(
        dialect.type(CHAIN).manifest(
            name_of(lease, chain.name), namespace, spec=_of_chain(dialect, chain, lease, proof, cluster)
        )
    )
    for one in found:
        one["metadata"]["labels"] = {**proof, **labels_of(lease), NAME: chain.name}
        one["metadata"]["annotations"] = {DEFINITION: _text(chain)}
    return found


def _of_chain(dialect: Dialect, chain: Chain, lease: str, proof: Mapping[str, str], cluster: Mapping[str, str]) -> Json:
    switches = [
        {"ports": [{"serviceInterface": {"matchLabels": _label(lease, one)}} for one in ports]}
        for ports in chain.switches
    ]
    return _on_node(dialect, CHAIN, {"spec": {"switches": switches}}, proof, cluster)


def _of_interface(
    dialect: Dialect, one: ChainInterface, lease: str, proof: Mapping[str, str], cluster: Mapping[str, str],
    network: str,
) -> Json:  # fmt: skip
    template = {"metadata": {"labels": _label(lease, one)}, "spec": _kind_of(dialect, one, lease, network)}
    return _on_node(dialect, INTERFACE, template, proof, cluster)


def _kind_of(dialect: Dialect, one: ChainInterface, lease: str, network: str) -> Json:
    if one.service:
        found = {"serviceID": services.service_id(lease, one.service), "network": network, "interfaceName": one.name}
        return {"interfaceType": "service", "service": found}
    if one.port is not None:
        return {"interfaceType": "physical", "physical": {"interfaceName": str(one)}}
    if one.vf is None:
        return {"interfaceType": "pf", "pf": {"pfID": one.pf}}
    parent = {"parentInterfaceRef": f"p{one.pf}"} if dialect.required(INTERFACE, _PARENT) else {}
    return {"interfaceType": "vf", "vf": {"pfID": one.pf, "vfID": one.vf, **parent}}


def _on_node(dialect: Dialect, kind: str, template: Json, proof: Mapping[str, str], cluster: Mapping[str, str]) -> Json:
    there = {"nodeSelector": {"matchLabels": dict(proof)}, "template": template}
    field = next((one for one in _SELECTORS if dialect.has(kind, f"spec.{one}")), "")
    selected = {field: {"matchLabels": dict(cluster)}} if field and cluster else {}
    return {**selected, "template": {"spec": there}}


def _label(lease: str, one: ChainInterface) -> dict[str, str]:
    return {LEASE: label_value(lease), OF: interface_name(lease, one)}


def _text(chain: Chain) -> str:
    return json.dumps(chain.to_json(), sort_keys=True, separators=(",", ":"))


def definition(found: Object) -> Chain | None:
    """Return the chain that an object was written for; None if it is not one of ours, or was garbled."""
    try:
        written = json.loads(found.annotations.get(DEFINITION, ""))
        chain = Chain.from_json(written if isinstance(written, dict) else {})
    except (InvalidRequest, ValueError, RecursionError):
        return None
    return chain if found.labels.get(NAME) == chain.name else None


def is_part(found: Object, manifest: Json) -> bool:
    """Return whether an object is as a manifest of a chain says. Clusters may have other labels meanwhile."""
    wanted = {key: value for key, value in manifest["spec"].items() if key not in _SELECTORS}
    return not dropped({"metadata": manifest["metadata"], "spec": wanted}, found.body)


def found_chains(
    dialect: Dialect, objects: Sequence[tuple[str, Object]], *, lease: str, proof: Mapping[str, str]
) -> list[FoundChain]:
    """Return the chains of a lease to which these objects belong, each given with its kind. Sorted by name."""
    parts: dict[str, list[tuple[str, Object]]] = {}
    for kind, one in objects:
        if (chain := definition(one)) is not None:
            parts.setdefault(chain.name, []).append((kind, one))
    return [_found(dialect, parts[name], lease, proof) for name in sorted(parts)]


def _found(dialect: Dialect, parts: Sequence[tuple[str, Object]], lease: str, proof: Mapping[str, str]) -> FoundChain:
    # What is left of an earlier chain of this name does not say how the chain is.
    chain = next((definition(one) for kind, one in parts if kind == CHAIN), None) or definition(parts[0][1])
    assert chain is not None
    wanted = {(INTERFACE, interface_name(lease, one)) for one in chain.interfaces}
    wanted.add((CHAIN, name_of(lease, chain.name)))
    conditions = []
    for kind, one in parts:
        reported = [
            Condition(type=said.type, status=said.status, reason=said.reason, message=said.message)
            for said in one.conditions
        ]
        told = (*_changed(dialect, kind, one, chain, lease, proof), *reported)
        conditions += [replace(said, type=f"{kind} {one.name}: {said.type}") for said in told]
    ready = all(one.observed and (said := one.condition(READY)) is not None and said.true for _, one in parts)
    return FoundChain(
        chain=chain, version=" ".join(sorted(one.uid for _, one in parts)), conditions=tuple(conditions),
        complete={(kind, one.name) for kind, one in parts if not one.deleting} == wanted,
        ready=ready and not any(said.type.endswith(_UNCHANGED) for said in conditions),
        removing=any(one.deleting for _, one in parts),
    )  # fmt: skip


def _changed(
    dialect: Dialect, kind: str, one: Object, chain: Chain, lease: str, proof: Mapping[str, str]
) -> Iterator[Condition]:
    """Yield a condition if somebody else has changed an object of a chain."""
    network = str(at(one.spec, _NETWORK) or "")
    wanted = manifests(dialect, chain, lease=lease, namespace=one.namespace, proof=proof, cluster={}, network=network)
    if not any(each["kind"] == kind and is_part(one, each) for each in wanted):
        said = "Its object is not as Drydock wrote it. Remove the chain, and connect it again."
        yield Condition(type=_UNCHANGED, status="False", reason="ChangedByOthers", message=said)
