"""The controllers of DPUVPCs and DPUVirtualNetworks (doca-platform, internal/vpc/ovn/controllers).

A virtual network needs its VPC, also for its end: without one, it keeps its finalizer. It is kept while a
DPUServiceInterface names it, and a VPC while it has virtual networks. A node is in one VPC at most, and has its label.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.dpus import conditions, selectors
from tests.dpus.api import INTERFACE, ISOLATION, NODE, VIRTUAL_NETWORK, VPC, Api, Json, is_deleting, labels_of, name_of
from tests.dpus.generations import READY
from tests.dpus.services import selected
from tests.dpus.state import State
from tests.dpus.storage import put_summary
from tests.dpus.world import WORLD

JOINING = "Joining"
"""The step in which VPCs and virtual networks can be stuck, such as by `Faults.stick(JOINING, kind="DPUVPC")`."""
UNSEEN = "Unseen"
"""The step before the controller has seen a VPC, which then has no finalizer."""
MEMBER = "ovn.vpc.dpu.nvidia.com/vpc"
"""The label of a node with its VPC."""
WAITS_FOR_NETWORKS = "Waiting for DPUVirtualNetwork deletion"


class Vpcs:
    """Virtual networks, and then VPCs, which are ready by them."""

    def __init__(self, state: State) -> None:
        self.state = state

    def run(self) -> None:
        for network in self.state.all(VIRTUAL_NETWORK):
            self._network(network)
        for vpc in self.state.all(VPC):
            self._vpc(vpc)

    def members(self) -> dict[str, str]:
        """Return the nodes of the DPU clusters that are in a VPC, with its label."""
        return {name_of(node): labels_of(node)[MEMBER] for _, node in self._nodes() if MEMBER in labels_of(node)}

    def _network(self, item: Json) -> None:
        vpc = self.state.find(VPC, item["spec"]["vpcName"])
        if vpc is None:
            if is_deleting(item):
                self.state.violations.add(
                    f"{VIRTUAL_NETWORK.name} {name_of(item)} has lost its VPC, and stays for ever"
                )
            self._put_network(item, "VPC not found")
            return
        item = self.state.add_finalizer(VIRTUAL_NETWORK, item)
        if not is_deleting(item):
            stuck = self.state.faults.is_stuck(VIRTUAL_NETWORK.name, JOINING, name_of(item))
            self._put_network(item, "IP manager not initialized" if stuck else "")
            return
        users = [one for one in self.state.all(INTERFACE) if _network_of(one) == name_of(item)]
        if not all(is_deleting(one) for one in users):
            self.state.violations.add(f"{VIRTUAL_NETWORK.name} {name_of(item)} was deleted before its interfaces")
        if users:
            self._put_network(item, "DPUVirtualNetwork is in use by DPUServiceInterface", "AwaitingDeletion")
        else:
            self.state.drop_finalizer(VIRTUAL_NETWORK, item)

    def _put_network(self, item: Json, problem: str, reason: str = "Pending") -> None:
        found = {"PrerequisitesReady": problem, "DPUVirtualNetworkReconciled": problem}
        put_summary(self.state, VIRTUAL_NETWORK, item, found, reason)

    def _vpc(self, item: Json) -> None:
        if self.state.faults.is_stuck(VPC.name, UNSEEN, name_of(item)):
            return
        networks = [one for one in self.state.all(VIRTUAL_NETWORK) if one["spec"]["vpcName"] == name_of(item)]
        item = self.state.add_finalizer(VPC, item)
        if is_deleting(item):
            self._delete(item, networks)
            return
        problem = self._problem(item, networks)
        if not problem:
            self._join(item)
        found = {"PrerequisitesReady": problem, "DPUVPCReconciled": problem, "TopologyReconciled": problem}
        put_summary(self.state, VPC, item, found, extra={"virtualNetworks": [{"name": name_of(n)} for n in networks]})

    def _delete(self, item: Json, networks: list[Json]) -> None:
        if networks:
            put_summary(self.state, VPC, item, {"DPUVPCReconciled": WAITS_FOR_NETWORKS}, "AwaitingDeletion")
            return
        for api, node in self._nodes():
            if labels_of(node).get(MEMBER) == self._label(item):
                self._mark(api, node, "")
        self.state.drop_finalizer(VPC, item)

    def _problem(self, item: Json, networks: list[Json]) -> str:
        if self.state.api.get(ISOLATION, item["spec"]["isolationClassName"]) is None:
            return "Waiting for isolation class to be created"
        if not all(conditions.is_true(one, READY) for one in networks):
            return "Waiting for virtual networks of VPC to be ready"
        stuck = self.state.faults.is_stuck(VPC.name, JOINING, name_of(item))
        return "Some nodes dont not have all needed annotations set by the vpc ovn node agent" if stuck else ""

    def _join(self, item: Json) -> None:
        for api, node in self._nodes():
            if not selectors.matches(item["spec"].get("nodeSelector"), labels_of(node)):
                continue
            others = [
                name_of(one)
                for one in self.state.all(VPC)
                if name_of(one) != name_of(item) and selectors.matches(one["spec"].get("nodeSelector"), labels_of(node))
            ]
            if others:
                self.state.violations.add(f"Node {name_of(node)} is in the VPCs {name_of(item)} and {others[0]}")
            elif labels_of(node).get(MEMBER) != self._label(item):
                self._mark(api, node, self._label(item))

    def _mark(self, api: Api, node: Json, label: str) -> None:
        def put(body: Json) -> None:
            labels = {key: value for key, value in labels_of(body).items() if key != MEMBER}
            body["metadata"]["labels"] = {**labels, **({MEMBER: label} if label else {})}

        api.change(NODE, name_of(node), put)
        self.state.writes += 1

    def _label(self, item: Json) -> str:
        return f"{item['metadata']['namespace']}_{name_of(item)}"

    def _nodes(self) -> Iterator[tuple[Api, Json]]:
        for _, api in selected(self.state, None):
            for node in api.all(NODE, f"{WORLD}={self.state.world.name}"):
                yield api, node


def _network_of(interface: Json) -> str:
    made = interface["spec"]["template"]["spec"]["template"]["spec"]
    return str((made.get(made["interfaceType"]) or {}).get("virtualNetwork") or "")
