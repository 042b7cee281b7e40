"""The controllers of DPUNodes (hosts) and DPUDevices (cards), with the handshake about reboots. 26.4 only."""

from __future__ import annotations

from tests.dpus import conditions
from tests.dpus.api import (
    DEVICE,
    DPU,
    DPU_NODE,
    MAINTENANCE,
    MANAGER,
    NODE,
    Json,
    annotations_of,
    is_deleting,
    labels_of,
    name_of,
    uid_of,
)
from tests.dpus.effects import APPLIED
from tests.dpus.generations import NODE_NAME, REBOOT, REBOOTING, WAITING
from tests.dpus.state import State
from tests.dpus.world import Host, device_labels

IN_PROGRESS = "DPUNodeRebootInProgress"
EFFECT_IN_PROGRESS = "DPUNodeNodeEffectInProgress"


class Devices:
    """DPUDevices: found by serial number, and labelled with the host that lists them."""

    def __init__(self, state: State) -> None:
        self.state = state

    def run(self) -> None:
        for device in self.state.all(DEVICE):
            if is_deleting(device):
                self._delete(device)
            else:
                self._step(device)

    def host_of(self, device: str) -> Json | None:
        """Return the DPUNode that lists a DPUDevice."""
        for node in self.state.all(DPU_NODE):
            if device in [one["name"] for one in node["spec"].get("dpus") or []]:
                return node
        return None

    def _step(self, device: Json) -> None:
        card = self.state.world.find_card(device["spec"]["serialNumber"])
        node = self.host_of(name_of(device))
        found = device_labels(card) if card else {}
        if node:
            found[NODE_NAME] = name_of(node)

        def label(item: Json) -> None:
            item["metadata"]["labels"] = {**labels_of(item), **found}

        device = self.state.change(DEVICE, device, label) or device
        generation = device["metadata"]["generation"]

        def put(status: Json) -> None:
            if card:
                status |= {
                    "serialNumber": device["spec"]["serialNumber"], "pciAddress": card.pci, "dpuType": card.model,
                    "pf0Name": f"ens{card.index + 1}f0np0",
                }  # fmt: skip
            reason = "Success" if card else "NotFound"
            message = "" if card else f"no card with serial number {device['spec']['serialNumber']} answers"
            conditions.put(status, "Discovered", card is not None, reason, message, generation)
            attached = "Success" if node else "Pending"
            conditions.put(status, "NodeAttached", node is not None, attached, "", generation)
            conditions.put(status, "Initialized", card is not None, reason, message, generation)
            ready = bool(card and node)
            conditions.put(status, "Ready", ready, "Success" if ready else "Pending", message, generation)

        self.state.change_status(DEVICE, device, put)

    def _delete(self, device: Json) -> None:
        users = [name_of(dpu) for dpu in self.state.all(DPU) if dpu["spec"].get("dpuDeviceName") == name_of(device)]
        if users:
            self.state.violations.add(f"DPUDevice {name_of(device)} was deleted with DPU {users[0]} on it")


class Hosts:
    """DPUNodes: ready while no effect and no reboot is in progress."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._asked: dict[str, int] = {}
        """How often a host had booted when its reboot was requested, by uid of its DPUNode."""

    def run(self) -> None:
        for node in self.state.all(DPU_NODE):
            if is_deleting(node):
                self._delete(node)
                continue
            node = self.state.add_finalizer(DPU_NODE, node)
            progress = self._sync_reboot(node)
            self._put(self.state.find(DPU_NODE, name_of(node)) or node, progress)

    def machine(self, node: Json) -> Host | None:
        """Return the machine behind a DPUNode: by its cards, since others may name it as they like."""
        for one in node["spec"].get("dpus") or []:
            device = self.state.find(DEVICE, one["name"])
            card = self.state.world.find_card(device["spec"]["serialNumber"]) if device else None
            if card:
                return self.state.world.host_of(card)
        return self.state.world.hosts.get(name_of(node))

    # Reboots

    def _sync_reboot(self, node: Json) -> bool | None:
        """Take the next step of a reboot. Returns whether one is in progress; None where nothing changes."""
        dpus = self.state.dpus_of(name_of(node))
        phases = {(dpu.get("status") or {}).get("phase") for dpu in dpus}
        rebooting = [dpu for dpu in dpus if (dpu.get("status") or {}).get("phase") == REBOOTING]
        if not rebooting:
            return False if REBOOT not in annotations_of(node) else None
        if len(node["spec"].get("dpus") or []) > 1 and phases & self.state.generation.preparing:
            return None  # a reboot would interrupt another card's installation
        method = node["spec"].get("nodeRebootMethod") or {"hostAgent": {}}
        if "external" in method:
            return self._external(node, rebooting)
        if "script" not in method:  # the Job of a script is not played: the DPU stays in Rebooting
            self._by_agent(node, rebooting)
        return None

    def _external(self, node: Json, rebooting: list[Json]) -> bool:
        """Ask for a reboot by an annotation, then tell the DPUs, then wait for its removal; one step in a tick.

        Whoever removes the annotation before the DPUs were told gets a second request, as in DPF.
        """
        told = all(conditions.find(dpu.get("status") or {}, "Rebooted") for dpu in rebooting)
        asked = REBOOT in annotations_of(node)
        if told and asked:
            return True
        if told:
            return self._rebooted(node, rebooting)
        if not asked:
            self._ask(node)
            return True
        for dpu in rebooting:
            self._tell(dpu)
        return True

    def _ask(self, node: Json) -> None:
        def ask(item: Json) -> None:
            item["metadata"]["annotations"] = {**annotations_of(item), REBOOT: "true"}

        host = self.machine(node)
        self._asked[uid_of(node)] = host.boots if host else 0
        self.state.change(DPU_NODE, node, ask)

    def _tell(self, dpu: Json) -> None:
        # CRDs of 26.4.0-rc.3 have no status.rebootStatus, which its handshake is documented with: there, only the
        # condition says it.
        rich = self.state.has_field(DPU, "status", "rebootStatus")

        def put(status: Json) -> None:
            conditions.put(status, "Rebooted", False, WAITING, "waiting for manual power cycle or reboot")
            if rich:
                status["rebootStatus"] = {"phase": "Pending", "method": "external", "reason": WAITING}

        self.state.change_status(DPU, dpu, put)

    def _rebooted(self, node: Json, rebooting: list[Json]) -> bool:
        """The annotation is gone: the host should have been rebooted, once."""
        host = self.machine(node)
        if host and host.boots == self._asked.get(uid_of(node), -1):
            self.state.violations.add(f"DPUNode {name_of(node)}: {REBOOT} was removed before the host was rebooted")
        if self.state.faults.reboots:
            self.state.faults.reboots -= 1
            for dpu in rebooting:
                self.state.change_status(DPU, dpu, lambda status: conditions.remove(status, "Rebooted"))
            self._ask(node)
            return True
        self._finish(rebooting)
        return False

    def _finish(self, rebooting: list[Json]) -> None:
        def put(status: Json) -> None:
            conditions.put(status, "Rebooted", True)
            if "rebootStatus" in status:
                status["rebootStatus"]["phase"] = "Succeeded"

        for dpu in rebooting:
            self.state.change_status(DPU, dpu, put)

    def _by_agent(self, node: Json, rebooting: list[Json]) -> None:
        """Reboot the host as DPF's agent on it does."""
        if host := self.machine(node):
            host.reboot(by=MANAGER)
        self._finish(rebooting)

    # Status and deletion

    def _put(self, node: Json, progress: bool | None) -> None:
        kube = next((one for one in node["metadata"].get("ownerReferences") or [] if one["kind"] == "Node"), None)
        maintained = [one for one in self.state.all(MAINTENANCE) if one["spec"]["dpuNodeName"] == name_of(node)]
        effect = any(not conditions.is_true(one, APPLIED) for one in maintained)
        generation = node["metadata"]["generation"]

        def put(status: Json) -> None:
            status.setdefault("dpuInstallInterface", "hostAgent" if kube else "redfish")
            if kube:
                status["kubeNodeRef"] = kube["name"]
            if progress is not None:
                reason = "WaitForExternalReboot" if progress else ""
                conditions.put(status, IN_PROGRESS, progress, reason, generation=generation)
            if maintained:
                conditions.put(status, EFFECT_IN_PROGRESS, effect, "NodeEffectInProgress", generation=generation)
            else:
                conditions.remove(status, EFFECT_IN_PROGRESS)
            busy = conditions.is_true({"status": status}, IN_PROGRESS)
            message = "node effect is in progress" if effect else "reboot is in progress" if busy else ""
            conditions.put(status, "Ready", not message, "Ready", message, generation)

        self.state.change_status(DPU_NODE, node, put)

    def _delete(self, node: Json) -> None:
        """Delete its DPUs and its cards; then it may go."""
        for dpu in self.state.dpus_of(name_of(node)):
            self.state.violations.add(f"DPUNode {name_of(node)} was deleted with DPU {name_of(dpu)} on it")
            self.state.delete(DPU, dpu)
        devices = [one for one in self.state.all(DEVICE) if labels_of(one).get(NODE_NAME) == name_of(node)]
        for device in devices:
            self.state.delete(DEVICE, device)
        if not devices and not self.state.dpus_of(name_of(node)):
            self.state.drop_finalizer(DPU_NODE, node)


def node_names(state: State) -> list[str]:
    """Return the names of the Nodes of the world."""
    return [name_of(node) for node in state.all(NODE)]
