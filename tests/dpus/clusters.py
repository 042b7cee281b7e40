"""The controller of DPUClusters, and of the Nodes in them.

A kamaji cluster is created: its Secret then has the kubeconfig of the other API server of the tests. A static one is
Ready once the Secret that it names is there.
"""

from __future__ import annotations

from tests.dpus import conditions, selectors
from tests.dpus.api import CLUSTER, DPU, NODE, SECRET, Api, Json, is_deleting, labels_of, name_of
from tests.dpus.clusterlinks import secret_of
from tests.dpus.generations import READY
from tests.dpus.state import State, owner_reference
from tests.dpus.world import WORLD, node_status

VERSION = "v1.34.0"
HOST_LABEL = "provisioning.dpu.nvidia.com/host"


class Clusters:
    """Pending, Creating, Ready; NotReady where the Secret is gone."""

    def __init__(self, state: State, kubeconfig: str) -> None:
        self.state, self.kubeconfig = state, kubeconfig

    def run(self) -> None:
        for cluster in self.state.all(CLUSTER):
            if not is_deleting(cluster):
                self._step(cluster)

    def _step(self, cluster: Json) -> None:
        phase = (cluster.get("status") or {}).get("phase") or "Pending"
        if phase == READY:
            there = self.state.secret(cluster["spec"].get("kubeconfig") or "") is not None
            self._put(cluster, READY if there else "NotReady")
        elif failure := self.state.faults.failure(CLUSTER.name, phase, name_of(cluster)):
            self._put(cluster, "Failed", failure.message)
        elif phase != "Failed" and self.state.is_due(cluster, phase):
            self._advance(cluster, phase)

    def _advance(self, cluster: Json, phase: str) -> None:
        built = cluster["spec"]["type"] == "kamaji"
        if phase == "Pending" and built:
            self._put(cluster, "Creating")
            return
        if built and not cluster["spec"].get("kubeconfig"):
            cluster = self._create(cluster)
        secret = self.state.secret(cluster["spec"].get("kubeconfig") or "")
        if secret is not None:
            self._put(cluster, READY)

    def _create(self, cluster: Json) -> Json:
        """Create the Secret with the kubeconfig, and name it in the spec, as DPF's cluster manager does."""
        name = f"{name_of(cluster)}-admin-kubeconfig"
        body = secret_of(name, self.kubeconfig)
        body["metadata"]["ownerReferences"] = [owner_reference(cluster)]
        if self.state.secret(name) is None:
            self.state.api.create(SECRET, body)

        def set_name(item: Json) -> None:
            item["spec"]["kubeconfig"] = name

        return self.state.change(CLUSTER, cluster, set_name) or cluster

    def _put(self, cluster: Json, phase: str, message: str = "") -> None:
        generation = cluster["metadata"]["generation"]

        def put(status: Json) -> None:
            status["phase"] = phase
            if phase == READY:
                conditions.put(status, "Created", True, "Created", generation=generation)
                if self.state.has_field(CLUSTER, "status", "version"):
                    status["version"] = VERSION
                    status["nodesCount"] = len(self.members(cluster))
            reason = "HealthCheckPassed" if phase == READY else phase
            conditions.put(status, READY, phase == READY, reason, message, generation)

        self.state.change_status(CLUSTER, cluster, put)

    # DPUs in clusters

    def members(self, cluster: Json) -> list[Json]:
        """Return the DPUs that have a slot in a cluster."""
        name = name_of(cluster)
        return [dpu for dpu in self.state.all(DPU) if (dpu["spec"].get("cluster") or {}).get("name") == name]

    def allocate(self, dpu: Json) -> Json | None:
        """Give a DPU a slot in the first cluster with room that its selector matches."""
        spec = dpu["spec"].get("cluster") or {}
        if spec.get("name"):
            return dpu
        for cluster in self.state.all(CLUSTER):
            ready = (cluster.get("status") or {}).get("phase") == READY and not is_deleting(cluster)
            room = len(self.members(cluster)) < cluster["spec"].get("maxNodes", 1000)
            if ready and room and selectors.matches(spec.get("selector"), labels_of(cluster)):
                return self._given(dpu, cluster)
        return None

    def _given(self, dpu: Json, cluster: Json) -> Json | None:
        def give(item: Json) -> None:
            slot = item["spec"].setdefault("cluster", {})
            slot |= {"name": name_of(cluster), "namespace": cluster["metadata"]["namespace"]}

        return self.state.change(DPU, dpu, give)

    def api_of(self, dpu: Json) -> Api | None:
        """Return access to the cluster of a DPU, or None if the cluster or its Secret is gone."""
        cluster = self.state.find(CLUSTER, (dpu["spec"].get("cluster") or {}).get("name") or "")
        if cluster is None:
            return None
        return self.state.links.open(self.state.secret(cluster["spec"].get("kubeconfig") or ""))

    def join(self, dpu: Json, ready: bool) -> None:
        """Let the kubelet of a DPU register its Node, not ready at first."""
        api = self.api_of(dpu)
        if api is None:
            return
        name, host = name_of(dpu), dpu["spec"][self.state.generation.host_field]
        labels = {**((dpu["spec"].get("cluster") or {}).get("nodeLabels") or {}), HOST_LABEL: host}
        labels[WORLD] = self.state.world.name
        before = api.get(NODE, name)
        if before is None:
            self.state.writes += 1
            api.create(NODE, {"metadata": {"name": name, "labels": labels}, "status": node_status(name, ready)})
            return

        def label(node: Json) -> None:
            node["metadata"]["labels"] = {**labels_of(node), **labels}

        def report(node: Json) -> None:
            node.setdefault("status", {}).update(node_status(name, ready))

        api.change(NODE, name, label)
        after = api.change(NODE, name, report, status=True)
        if after and after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]:
            self.state.writes += 1

    def is_joined(self, dpu: Json) -> bool:
        """Return whether the Node of a DPU is there, and ready."""
        api = self.api_of(dpu)
        node = api.get(NODE, name_of(dpu)) if api else None
        return node is not None and conditions.is_true(node, "Ready")

    def leave(self, dpu: Json) -> None:
        """Remove the Node of a DPU."""
        if api := self.api_of(dpu):
            api.delete(NODE, name_of(dpu))
