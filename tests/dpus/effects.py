"""Node effects: what happens to a host while a DPU of it is provisioned.

In 26.4 a DPUNodeMaintenance carries the effect for all DPUs of a host that ask for it (its requestors). In 24.10 the
DPU controller does it itself, on the Node. A drain is a cordon here: there are no pods.
"""

from __future__ import annotations

import hashlib
import json

from tests.dpus import conditions
from tests.dpus.api import DPU, DPU_NODE, MAINTENANCE, NODE, Json, annotations_of, is_deleting, labels_of, name_of
from tests.dpus.generations import HOLD, NODE_NAME
from tests.dpus.state import State

APPLIED = "NodeEffectApplied"
ON_NODES = ("drain", "taint", "customLabel")
SYNC_WAIT = "NodeEffectSync"
"""Name under which `Double.dwell` has the ticks that hosts with several cards wait for each other's DPUs (30 s)."""


def kind_of(effect: Json) -> str:
    """Return which effect is chosen."""
    chosen = ("customAction", "drain", "hold", "taint", "customLabel")
    return next((key for key in chosen if effect.get(key) not in (None, False)), "noEffect")


def maintenance_name(host: str, effect: Json) -> str:
    """Return the name of the DPUNodeMaintenance of a host and an effect."""
    kind = kind_of(effect)
    if kind == "customAction":
        return f"{host}-custom-action-{effect[kind]}"
    if kind in ("taint", "customLabel"):
        short = hashlib.sha256(json.dumps(effect[kind], sort_keys=True).encode()).hexdigest()[:8]
        return f"{host}-{'taint' if kind == 'taint' else 'cl'}-{short}"
    return f"{host}-{'k8sdrain' if kind == 'drain' else 'hold'}"


class NodeEffects:
    """Effects on Nodes."""

    def __init__(self, state: State) -> None:
        self.state = state

    def apply(self, node: str, effect: Json) -> bool:
        """Apply an effect to a Node. Returns whether it was there already."""
        kind = kind_of(effect)

        def change(item: Json) -> None:
            spec = item.setdefault("spec", {})
            if kind == "drain":
                spec["unschedulable"] = True
            elif kind == "taint":
                others = [one for one in spec.get("taints") or [] if one["key"] != effect["taint"]["key"]]
                spec["taints"] = [*others, effect["taint"]]
            elif kind == "customLabel":
                item["metadata"]["labels"] = {**labels_of(item), **effect["customLabel"]}

        return self._changed(node, change)

    def remove(self, node: str, effect: Json) -> None:
        """Remove an effect from a Node."""
        kind = kind_of(effect)

        def change(item: Json) -> None:
            spec = item.setdefault("spec", {})
            if kind == "drain":
                spec.pop("unschedulable", None)
            elif kind == "taint":
                left = [one for one in spec.get("taints") or [] if one["key"] != effect["taint"]["key"]]
                spec["taints"] = left
                if not left:
                    del spec["taints"]
            elif kind == "customLabel":
                for key in effect["customLabel"]:
                    labels_of(item).pop(key, None)

        self._changed(node, change)

    def _changed(self, node: str, change: object) -> bool:
        item = self.state.find(NODE, node)
        if item is None:
            return True
        changed = self.state.change(NODE, item, change)  # type: ignore[arg-type]
        return changed is not None and changed["metadata"]["resourceVersion"] == item["metadata"]["resourceVersion"]


class Maintenances:
    """The controller of DPUNodeMaintenances, and what the DPU controller asks of them."""

    def __init__(self, state: State) -> None:
        self.state, self.effects = state, NodeEffects(state)

    def run(self) -> None:
        for item in self.state.all(MAINTENANCE):
            if is_deleting(item):
                self._delete(item)
            elif not item["spec"].get("requestor"):
                self.state.delete(MAINTENANCE, item)
            else:
                self._apply(self.state.add_finalizer(MAINTENANCE, item))

    def request(self, dpu: Json) -> str:
        """Ask for the effect of a DPU. Returns why it is not there yet, or nothing."""
        effect, host = dpu["spec"]["nodeEffect"], dpu["spec"]["dpuNodeName"]
        node = self.state.find(DPU_NODE, host)
        if node is None:
            return "DPUNodeNotFound"
        if kind_of(effect) in ON_NODES and not (node.get("status") or {}).get("kubeNodeRef"):
            return "InvalidNodeEffect"
        name = maintenance_name(host, effect)
        found = self.state.find(MAINTENANCE, name)
        if found is None:
            self._create(name, host, dpu)
            return "CreatedDPUNodeMaintenance"
        if is_deleting(found):
            return "DPUNodeMaintenanceDeleting"
        if name_of(dpu) not in found["spec"].get("requestor", []):
            # As in DPF: who joins an effect that is applied goes on at once.
            self._set_requestors(found, [*found["spec"].get("requestor", []), name_of(dpu)])
        return "" if conditions.is_true(found, APPLIED) else "NodeEffectProcessing"

    def withdraw(self, dpu: Json) -> bool:
        """Take back what a DPU asked for. Returns whether the effect is gone."""
        found = self.state.find(MAINTENANCE, maintenance_name(dpu["spec"]["dpuNodeName"], dpu["spec"]["nodeEffect"]))
        if found is None:
            return True
        asking = found["spec"].get("requestor", [])
        if name_of(dpu) in asking:
            self._set_requestors(found, [name for name in asking if name != name_of(dpu)])
            return False
        # Others still need it: it stays, and this DPU does not wait for them (assumed).
        return bool(asking)

    def _create(self, name: str, host: str, dpu: Json) -> None:
        effect = {key: value for key, value in dpu["spec"]["nodeEffect"].items() if not key.startswith("nodeMaint")}
        asking = [*dpu["spec"]["nodeEffect"].get("nodeMaintenanceAdditionalRequestors", []), name_of(dpu)]
        spec = {"dpuNodeName": host, "nodeEffect": effect, "requestor": asking}
        self.state.create(MAINTENANCE, {"metadata": {"name": name, "labels": {NODE_NAME: host}}, "spec": spec})

    def _set_requestors(self, item: Json, names: list[str]) -> None:
        def put(body: Json) -> None:
            body["spec"]["requestor"] = names

        self.state.change(MAINTENANCE, item, put)

    def _apply(self, item: Json) -> None:
        if conditions.is_true(item, APPLIED):
            return
        started = bool((item.get("status") or {}).get("nodeEffectSyncStartTime"))
        self._put(item, False, "Pending", "waiting for other DPUs of the host") if not started else None
        node = self.state.find(DPU_NODE, item["spec"]["dpuNodeName"])
        several = node is not None and len(node["spec"].get("dpus") or []) > 1
        if several and not item["spec"]["nodeEffect"].get("force") and not self._synced(item):
            return
        why = self._applied(item)
        self._put(item, not why, "Success" if not why else "NodeEffectIsProcessing", why)

    def _synced(self, item: Json) -> bool:
        return self.state.is_due(item, SYNC_WAIT)

    def _applied(self, item: Json) -> str:
        """Return what the effect waits for, or nothing."""
        effect = item["spec"]["nodeEffect"]
        kind = kind_of(effect)
        if kind == "hold":
            return self._held(item)
        if kind == "customAction":
            return "Node effect is being applied: there are no Jobs here"
        if kind in ON_NODES and not self.effects.apply(item["spec"]["dpuNodeName"], effect):
            return "Node effect is being applied: node maintenance is processing"
        return ""

    def _held(self, item: Json) -> str:
        value = annotations_of(item).get(HOLD)
        if value is None:

            def hold(body: Json) -> None:
                body["metadata"]["annotations"] = {**annotations_of(body), HOLD: "true"}

            self.state.change(MAINTENANCE, item, hold)
        elif value.lower() in ("false", "f", "0"):
            return ""
        elif value.lower() not in ("true", "t", "1"):
            self.state.violations.add(f"DPUNodeMaintenance {name_of(item)}: {HOLD} is {value!r}, not true or false")
        return "Node effect is being applied: DPUNodeMaintenance is in waiting for external node effect"

    def _put(self, item: Json, applied: bool, reason: str, message: str) -> None:
        generation = item["metadata"]["generation"]

        def put(status: Json) -> None:
            status.setdefault("nodeEffectSyncStartTime", conditions.now())
            status |= {"maxUnavailableDPUNodes": 50, "multiDPUOperationsSyncWaitTime": "30s"}
            conditions.put(status, APPLIED, applied, reason, message, generation)

        self.state.change_status(MAINTENANCE, item, put)

    def _delete(self, item: Json) -> None:
        if item["spec"].get("requestor"):
            return
        self.effects.remove(item["spec"]["dpuNodeName"], item["spec"]["nodeEffect"])
        self.state.drop_finalizer(MAINTENANCE, item)


def requestors(state: State, host: str) -> list[str]:
    """Return the DPUs that hold effects on a host."""
    return [
        name
        for item in state.all(MAINTENANCE)
        if item["spec"]["dpuNodeName"] == host
        for name in item["spec"].get("requestor") or []
        if state.find(DPU, name)
    ]
