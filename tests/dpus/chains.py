"""The controllers of DPUServiceInterfaces, DPUServiceChains and networks, and those that follow in the DPU clusters.

In every cluster that an object selects, it has a ServiceInterfaceSet or a ServiceChainSet of its name, and for each
Node that its selector matches, a ServiceInterface or a ServiceChain, owned by the set. An interface of a service is
ready once a pod of it runs on the node, and a chain once each of its ports finds its interface there.

The pools and NetworkAttachmentDefinitions of networks are of others' types, which the servers do not have: they exist
as long as their DPUServiceIPAM or DPUServiceNAD.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from ipaddress import IPv4Network

from tests.dpus import conditions, selectors
from tests.dpus.api import (
    CHAIN,
    CHAIN_SET,
    INTERFACE,
    INTERFACE_SET,
    IPAM,
    NAD,
    NODE,
    POD,
    SERVICE_CHAIN,
    SERVICE_INTERFACE,
    Api,
    Json,
    Kind,
    is_deleting,
    labels_of,
    name_of,
    uid_of,
)
from tests.dpus.generations import READY
from tests.dpus.services import SERVICE_ID, ensure_namespace, selected
from tests.dpus.state import State, owner_reference
from tests.dpus.world import WORLD

CONNECTING = "Connecting"
"""What interfaces and chains can be stuck in, such as by `Faults.stick(CONNECTING, kind="DPUServiceChain")`."""
NOT_READY = "Objects are not ready"
PREDEFINED = "mybrsfc"
"""The NetworkAttachmentDefinition that DPF installs."""


class Chains:
    """Interfaces first, as chains are ready by them. What was made for an object goes before its finalizer does."""

    def __init__(self, state: State) -> None:
        self.state = state

    def run(self) -> None:
        self._check_exclusive()
        for kind, prefix in ((IPAM, "DPUIPAMObject"), (NAD, "DPUNADObject")):
            for item in self.state.all(kind):
                item = self.state.add_finalizer(kind, item)
                if is_deleting(item):
                    self.state.drop_finalizer(kind, item)
                else:
                    self._put(kind, item, prefix, self.state.faults.is_stuck(kind.name, CONNECTING, name_of(item)))
        for kind, of_set, of_node in (
            (INTERFACE, INTERFACE_SET, SERVICE_INTERFACE),
            (CHAIN, CHAIN_SET, SERVICE_CHAIN),
        ):
            for item in self.state.all(kind):
                item = self.state.add_finalizer(kind, item)
                if is_deleting(item):
                    self._delete(kind, of_set, of_node, item)
                else:
                    self._step(kind, of_set, of_node, item)

    def _step(self, kind: Kind, of_set: Kind, of_node: Kind, item: Json) -> None:
        stuck = self.state.faults.is_stuck(kind.name, CONNECTING, name_of(item))
        clusters = selected(self.state, item["spec"].get("dpuClusterSelector") or item["spec"].get("clusterSelector"))
        ready = [self._follow(api, of_set, of_node, item) for _, api in clusters if not stuck]
        self._put(kind, item, of_set.name, stuck, not (ready and all(ready)))

    def _put(self, kind: Kind, item: Json, prefix: str, stuck: bool, waits: bool = False) -> None:
        problem, generation = NOT_READY if stuck or waits else "", item["metadata"]["generation"]

        def put(status: Json) -> None:
            if self.state.has_field(kind, "status", "observedGeneration"):
                status["observedGeneration"] = generation
            conditions.put(status, f"{prefix}Reconciled", not stuck, "Pending" if stuck else "Success", "", generation)
            for of_type in (f"{prefix}Ready", READY):
                reason = "Pending" if problem else "Success"
                conditions.put(status, of_type, not problem, reason, problem, generation)

        self.state.change_status(kind, item, put)

    def _follow(self, api: Api, of_set: Kind, of_node: Kind, item: Json) -> bool:
        """Bring what follows in a cluster up to date. Returns whether it is ready on every node."""
        there = api.get(of_set, name_of(item))
        spec = _portable(item["spec"]["template"]["spec"])
        if there is None:
            ensure_namespace(api)
            labels = (item["spec"]["template"].get("metadata") or {}).get("labels") or {}
            there = api.create(of_set, {"metadata": {"name": name_of(item), "labels": labels}, "spec": spec})
            self.state.writes += 1
        there |= {"apiVersion": of_set.api_version, "kind": of_set.name}
        nodes = [
            node
            for node in api.all(NODE, f"{WORLD}={self.state.world.name}")
            if selectors.matches(spec.get("nodeSelector"), labels_of(node))
        ]
        made = [self._on_node(api, of_node, there, spec, name_of(node)) for node in nodes]
        return bool(made) and all([self._is_ready(api, of_node, one) for one in made])

    def _on_node(self, api: Api, of_node: Kind, owner: Json, spec: Json, node: str) -> Json:
        name = f"{name_of(owner)[:50]}-{hashlib.sha256(node.encode()).hexdigest()[:8]}"
        found = api.get(of_node, name)
        if found is None:
            labels = (spec["template"].get("metadata") or {}).get("labels") or {}
            metadata = {"name": name, "labels": labels, "ownerReferences": [owner_reference(owner)]}
            found = api.create(of_node, {"metadata": metadata, "spec": {**spec["template"]["spec"], "node": node}})
            self.state.writes += 1
        return found

    def _is_ready(self, api: Api, of_node: Kind, one: Json) -> bool:
        spec = one["spec"]
        if of_node is SERVICE_CHAIN:
            ports = [port["serviceInterface"]["matchLabels"] for switch in spec["switches"] for port in switch["ports"]]
            pools = [p["serviceInterface"].get("ipam") for switch in spec["switches"] for p in switch["ports"]]
            there = all([self._is_pool(one["matchLabels"]) for one in pools if one])
            return all([self._connects(api, labels, spec["node"], name_of(one)) for labels in ports]) and there
        if spec["interfaceType"] != "service":
            return True
        network = spec["service"]["network"]
        if network != PREDEFINED and self.state.find(NAD, network) is None:
            return False
        pods = api.all(POD, f"{SERVICE_ID}={spec['service']['serviceID']}")
        return any(pod["spec"]["nodeName"] == spec["node"] for pod in pods)

    def _connects(self, api: Api, labels: dict[str, str], node: str, chain: str) -> bool:
        """Return whether the labels of a port find an interface that is ready on the node."""
        selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
        found = [one for one in api.all(SERVICE_INTERFACE, selector) if one["spec"]["node"] == node]
        if len(found) > 1:
            self.state.violations.add(f"ServiceChain {chain}: a port finds {len(found)} interfaces on {node}")
        return len(found) == 1 and self._is_ready(api, SERVICE_INTERFACE, found[0])

    def _is_pool(self, labels: dict[str, str]) -> bool:
        """Return whether there is a pool with these labels."""
        pools = [(one["spec"].get("metadata") or {}).get("labels") or {} for one in self.state.all(IPAM)]
        found = [pool for pool in pools if labels.items() <= pool.items()]
        if len(found) > 1:
            self.state.violations.add(f"a port of a chain finds {len(found)} pools of addresses")
        return len(found) == 1

    def _delete(self, kind: Kind, of_set: Kind, of_node: Kind, item: Json) -> None:
        if self.state.faults.keeps_finalizer(kind.name, name_of(item)):
            return
        for _, api in selected(self.state, None):
            owner = api.get(of_set, name_of(item))
            for one in api.all(of_node) if owner else []:
                if any(each["uid"] == uid_of(owner or {}) for each in one["metadata"].get("ownerReferences") or []):
                    api.delete(of_node, name_of(one))
                    self.state.writes += 1
            if owner:
                api.delete(of_set, name_of(owner))
                self.state.writes += 1
        self.state.drop_finalizer(kind, item)

    def _check_exclusive(self) -> None:
        """Record what two objects use at once, also while one of them is deleted: ports, functions, addresses."""
        ranges: list[tuple[str, IPv4Network]] = []
        for item in self.state.all(IPAM):
            spec = item["spec"]
            given = [spec[name] for name in ("ipv4Subnet", "ipv4Network") if name in spec]
            if len(given) != 1:  # by its webhook
                self.state.violations.add(f"{IPAM.name} {name_of(item)} has {len(given)} ranges, not one")
            for one in given[:1]:
                mine = IPv4Network(one.get("subnet") or one["network"])
                for other, theirs in ranges:
                    if mine.overlaps(theirs):
                        self.state.violations.add(f"{IPAM.name} {other} and {name_of(item)} have the same addresses")
                ranges.append((name_of(item), mine))
        seen: dict[str, str] = {}
        for item in self.state.all(INTERFACE):
            for use in _uses(item):
                other = seen.setdefault(use, name_of(item))
                if other != name_of(item):
                    self.state.violations.add(f"{INTERFACE.name} {other} and {name_of(item)} are the same interface")

    def left(self) -> list[str]:
        """Return what is in the DPU clusters."""
        return [
            f"{kind.name} {name_of(one)}"
            for _, api in selected(self.state, None)
            for kind in (INTERFACE_SET, SERVICE_INTERFACE, CHAIN_SET, SERVICE_CHAIN)
            for one in api.all(kind)
        ]


def _uses(item: Json) -> Iterator[str]:
    spec = item["spec"]["template"]["spec"]
    made = spec["template"]["spec"]
    if made["interfaceType"] in ("physical", "pf", "vf"):
        block = {key: value for key, value in made[made["interfaceType"]].items() if key != "parentInterfaceRef"}
        yield json.dumps([spec.get("nodeSelector"), made["interfaceType"], block], sort_keys=True)


def _portable(spec: Json) -> Json:
    """Return a spec for a DPU cluster: the server that plays it here has the CRDs of the other version of DPF."""
    made: Json = json.loads(json.dumps(spec))
    inside = made["template"]["spec"]
    for switch in inside.get("switches") or []:
        switch.pop("serviceMTU", None)
    for name in ("pf", "vf", "service"):
        (inside.get(name) or {}).pop("virtualNetwork", None)
    if "vf" in inside:
        inside["vf"].setdefault("parentInterfaceRef", f"p{inside['vf']['pfID']}")
    return made
