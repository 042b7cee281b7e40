"""The controller of DPUs: one phase after another, at most one in a tick."""

from __future__ import annotations

from collections.abc import Callable

from kubernetes.client.exceptions import ApiException

from tests.dpus import conditions
from tests.dpus.api import BFB, DEVICE, DPU, DPU_NODE, FLAVOR, MANAGER, NODE, Json, is_deleting, name_of, uid_of
from tests.dpus.clusters import Clusters
from tests.dpus.effects import Maintenances, kind_of
from tests.dpus.generations import (
    DELETING,
    ERROR,
    HOST_NETWORK,
    INSTALLING,
    JOINING,
    NODE_EFFECT,
    PENDING,
    READY,
    REBOOTING,
    REMOVAL,
    WAITING,
)
from tests.dpus.images import Images, image_of, url_of
from tests.dpus.state import State, is_refused
from tests.dpus.world import Card, Host

INTERFACE, PREPARE, DMS = "Initialize Interface", "Prepare BFB", "DMS Deployment"
FIRST = "Initializing"

Blocked = tuple[str, str]
"""Reason and message of what a phase waits for."""


class Provisioning:
    """DPUs of both versions."""

    def __init__(self, state: State, images: Images, clusters: Clusters, maintenances: Maintenances) -> None:
        self.state, self.images, self.clusters, self.maintenances = state, images, clusters, maintenances
        self._booted: dict[str, int] = {}
        """How often the host of a DPU had booted before its installation, by uid. DPF compares uptimes."""
        self._waits: dict[str, Callable[[Json], Blocked | None]] = {
            FIRST: self._initialize, PENDING: self._pend, NODE_EFFECT: self._take_effect, DMS: self._deploy,
            INTERFACE: self._reach, INSTALLING: self._install, REBOOTING: self._reboot, JOINING: self._join,
            REMOVAL: self._remove_effect,
        }  # fmt: skip

    def run(self) -> None:
        for dpu in self.state.all(DPU):
            dpu = self.state.add_finalizer(DPU, dpu)
            phase = (dpu.get("status") or {}).get("phase") or FIRST
            if is_deleting(dpu):
                self._leave(dpu, phase)
            elif phase == READY:
                self._keep(dpu)
            elif phase != ERROR:
                self._step(dpu, phase)

    # One phase

    def _step(self, dpu: Json, phase: str) -> None:
        name = name_of(dpu)
        if failure := self.state.faults.failure(DPU.name, phase, name):
            self._fail(dpu, phase, failure.reason, failure.message)
            return
        if not (dpu.get("status") or {}).get("conditions"):
            self._put(dpu, phase)  # the first status, so that the phase is seen from its beginning
        if blocked := self._waits.get(phase, _nothing)(dpu):
            self._block(dpu, phase, *blocked)
            return
        dpu = self.state.find(DPU, name) or dpu
        if (dpu.get("status") or {}).get("phase") == ERROR or not self.state.is_due(dpu, phase):
            return
        self._advance(dpu, phase)

    def _advance(self, dpu: Json, phase: str) -> None:
        if phase == INSTALLING:
            self._installed(dpu)
        following = self._following(dpu, phase)
        self._put(dpu, following, done=phase)

    def _following(self, dpu: Json, phase: str) -> str:
        if phase in self.state.faults.inserted:
            return self.state.faults.inserted[phase]
        back = {inserted: after for after, inserted in self.state.faults.inserted.items()}
        names = [one.name for one in self.state.generation.phases]
        following = names[names.index(back.get(phase, phase)) + 1]
        if following == HOST_NETWORK and not self._is_trusted(dpu):
            following = names[names.index(following) + 1]
        return following

    def _is_trusted(self, dpu: Json) -> bool:
        """Return whether DPF configures the host's network: not where it installs through BMCs (zero trust)."""
        if not self.state.generation.devices:
            return True
        node = self.state.find(DPU_NODE, dpu["spec"]["dpuNodeName"])
        return node is not None and (node.get("status") or {}).get("dpuInstallInterface") != "redfish"

    # What phases wait for

    def _initialize(self, dpu: Json) -> Blocked | None:
        """Protect the card's object while the DPU uses it."""
        if self.state.generation.devices:
            device = self.state.find(DEVICE, dpu["spec"]["dpuDeviceName"])
            if device is None:
                return "DPUDeviceNotFound", f"DPUDevice {dpu['spec']['dpuDeviceName']} not found"
            self.state.add_finalizer(DEVICE, device)
        return None

    def _pend(self, dpu: Json) -> Blocked | None:
        """Wait for image, flavor, and a slot in a cluster."""
        image = image_of(self.state, dpu["spec"])
        if image is None:
            return "GetBFBFailed", f"BFB {dpu['spec'].get('bfb')!r} not found"
        if (phase := (image.get("status") or {}).get("phase")) != READY:
            return f"{image['kind']}NotReady", f"{image['kind']} {name_of(image)} is {phase}"
        flavor = dpu["spec"].get("dpuFlavor")
        if flavor and self.state.find(FLAVOR, flavor) is None:
            return "DPUFlavorNotFound", f"DPUFlavor {flavor!r} not found"
        if self.clusters.allocate(dpu) is None:
            return "ClusterAllocationFailed", "no DPUCluster is Ready and has room"
        return None

    def _take_effect(self, dpu: Json) -> Blocked | None:
        effect = dpu["spec"].get("nodeEffect") or {"noEffect": True}
        if kind_of(effect) == "noEffect":
            return None
        if self.state.generation.devices:
            why = self.maintenances.request(dpu)
            return (why, f"node effect: {why}") if why else None
        applied = self.maintenances.effects.apply(dpu["spec"]["nodeName"], effect)
        return None if applied else ("NodeEffectProcessing", "node effect is processing")

    def _remove_effect(self, dpu: Json) -> Blocked | None:
        effect = dpu["spec"].get("nodeEffect") or {}
        if kind_of(effect) == "noEffect" or self.maintenances.withdraw(dpu):
            return None
        return "NodeEffectRemoval", "waiting for DPUNodeMaintenance to be deleted"

    def _deploy(self, dpu: Json) -> Blocked | None:
        """24.10: a pod on the host, whose start is what the host's uptime is compared with later."""
        machine = self._machine(dpu)
        self._booted.setdefault(uid_of(dpu), machine.boots if machine else 0)
        return None

    def _reach(self, dpu: Json) -> Blocked | None:
        card = self.state.card_of(dpu)
        if card is None:
            return "FailedToReachDPU", f"no card with serial number {dpu['spec'].get('serialNumber')} answers"
        return None

    def _install(self, dpu: Json) -> Blocked | None:
        """Write the image to the card. Nothing interrupts it, and no host may be rebooted meanwhile."""
        card = self.state.card_of(dpu)
        if card is None:
            return "FailedToReachDPU", "no such card answers"
        if card.installing not in ("", name_of(dpu)):
            self.state.violations.add(
                f"card {card.serial} is imaged by DPUs {card.installing} and {name_of(dpu)} at once"
            )
        card.installing = name_of(dpu)
        card.running = ""
        image = self.images.table.get(self._url(dpu))
        if image and card.model not in image.models:
            self._fail(dpu, INSTALLING, "FailToInstallOS", f"Invalid FW Package: the image is not for {card.model}")
        return None

    def _reboot(self, dpu: Json) -> Blocked | None:
        """Wait for the reboot of the host; in 26.4 the controller of the DPUNode says when it was."""
        if self.state.generation.devices:
            if conditions.is_true(dpu, "Rebooted"):
                return None
            found = conditions.find(dpu.get("status") or {}, "Rebooted")
            return (found["reason"], found["message"]) if found else ("", "")
        machine = self._machine(dpu)
        if machine is None:
            return "HostNotFound", f"no host {dpu['spec']['nodeName']} answers"
        if machine.on and machine.boots > self._booted.setdefault(uid_of(dpu), machine.boots):
            return None
        drain = (dpu["spec"].get("nodeEffect") or {}).get("drain") or {}
        if drain.get("automaticNodeReboot") or dpu["spec"].get("automaticNodeReboot"):
            machine.reboot(by=MANAGER)
            return "Rebooting", "the host is rebooting"
        return WAITING, "waiting for manual power cycle or reboot"

    def _join(self, dpu: Json) -> Blocked | None:
        if self.clusters.is_joined(dpu):
            return None
        api = self.clusters.api_of(dpu)
        there = api is not None and api.get(NODE, name_of(dpu)) is not None
        self.clusters.join(dpu, ready=there)  # first its Node, then its readiness
        return ("NodeNotReady", "node is not ready") if there else ("NodeNotFound", f"node {name_of(dpu)} not found")

    # Ready, failed, deleted

    def _keep(self, dpu: Json) -> None:
        """Keep the labels of the Node of a Ready DPU as its spec has them."""
        if not self.state.generation.devices:
            effect = dpu["spec"].get("nodeEffect") or {}
            self.maintenances.effects.remove(dpu["spec"]["nodeName"], effect)
        if dpu["metadata"]["generation"] != (dpu.get("status") or {}).get("observedGeneration"):  # none in 24.10
            self.clusters.join(dpu, ready=True)
            self._put(dpu, READY)

    def _fail(self, dpu: Json, phase: str, reason: str, message: str) -> None:
        """End in Error, which is final: only a deletion helps."""
        if card := self.state.card_of(dpu):
            card.installing = ""
        self._put(dpu, ERROR, false=self.state.generation.phase(phase).condition, reason=reason, message=message)

    def _block(self, dpu: Json, phase: str, reason: str, message: str) -> None:
        of_type = self.state.generation.phase(phase).condition
        if (of_type and reason and phase != REBOOTING) or reason == WAITING:
            self._put(dpu, phase, false=of_type, reason=reason, message=message)

    def _leave(self, dpu: Json, phase: str) -> None:
        """Delete. An installation is not interrupted: the DPU stays in it until it ends (DPF issue 16)."""
        name = name_of(dpu)
        if self.state.faults.is_stale(name):
            self.state.waits += 1
        elif phase == INSTALLING and (card := self.state.card_of(dpu)) and card.installing == name:
            if self.state.is_due(dpu, phase):
                self._installed(dpu)
                self._put(dpu, DELETING, done=INSTALLING)
        elif phase != DELETING:
            self._put(dpu, DELETING)
        elif self.state.is_due(dpu, DELETING):
            self._clean_up(dpu)

    def _clean_up(self, dpu: Json) -> None:
        """Remove what a DPU has elsewhere. What runs on the card goes on running."""
        self.clusters.leave(dpu)
        effect = dpu["spec"].get("nodeEffect") or {}
        if self.state.generation.devices:
            if kind_of(effect) != "noEffect":
                self.maintenances.withdraw(dpu)
            if device := self.state.find(DEVICE, dpu["spec"]["dpuDeviceName"]):
                self.state.drop_finalizer(DEVICE, device)
        else:
            self.maintenances.effects.remove(dpu["spec"]["nodeName"], effect)
        self.state.drop_finalizer(DPU, dpu)

    # The machine

    def _machine(self, dpu: Json) -> Host | None:
        card = self.state.card_of(dpu)
        return self.state.world.host_of(card) if card else None

    def _url(self, dpu: Json) -> str:
        image = image_of(self.state, dpu["spec"])
        return url_of(image) if image else ""

    def _installed(self, dpu: Json) -> None:
        card: Card | None = self.state.card_of(dpu)
        if card:
            card.installing = ""
            card.running = self._url(dpu)
            card.imaged.append(card.running)

    # Status

    def _put(
        self, dpu: Json, phase: str, *, done: str = "", false: str = "", reason: str = "", message: str = ""
    ) -> None:
        """Write a phase: the condition of the one that is done becomes true, that of a failed one false."""
        rich = self.state.generation.devices
        generation = dpu["metadata"]["generation"]
        true = self.state.generation.phase(done).condition if done else ""

        def put(status: Json) -> None:
            before = status.get("phase") or FIRST
            status["phase"] = phase
            if rich and before != phase:
                status["previousPhase"] = before
            if rich:
                status["observedGeneration"] = generation
            if true and done != REBOOTING:
                conditions.put(status, true, True, generation=generation)
            elif done == REBOOTING:
                conditions.put(status, true, True)
            if phase == REBOOTING and before != REBOOTING:
                conditions.remove(status, "Rebooted")  # each reboot begins anew
            if false:
                conditions.put(status, false, False, reason, message, generation)
            ready = "DPUReady" if phase == READY else phase.replace(" ", "")
            conditions.put(status, "Ready", phase == READY, ready, message if phase == ERROR else "", generation)
            if phase == ERROR and rich:
                conditions.put(status, ERROR, True, reason, message, generation)
            self._describe(status, dpu, done)

        try:
            self.state.change_status(DPU, dpu, put)
        except ApiException as error:
            # The server serves a changed CRD some moments later.
            if not is_refused(error) or phase not in self.state.faults.inserted.values():
                raise
            self.state.waits += 1

    def _describe(self, status: Json, dpu: Json, done: str) -> None:
        """Write what is known of the card after a phase."""
        card, rich = self.state.card_of(dpu), self.state.generation.devices
        bfb = self.state.find(BFB, dpu["spec"].get("bfb") or "")
        if done == INTERFACE and card:
            status |= {
                "dpuType": card.model,
                "dpuInstallInterface": "hostAgent" if self._is_trusted(dpu) else "redfish",
            }
        if done == PREPARE and bfb:
            place = f"{dpu['metadata']['namespace']}-{name_of(bfb)}"
            status["bfbFile"] = f"/bfb/{(bfb.get('status') or {}).get('fileName', place + '.bfb')}"
            status["bfCFGFile"] = f"bfcfg/{dpu['metadata']['namespace']}_{name_of(dpu)}_{uid_of(dpu)}"
        if done == INSTALLING and bfb:
            image = self.images.table.get(url_of(bfb))
            status["bfbVersion"] = image.doca if image else ""
            status["requiredReset"] = True
        if rich and done == FIRST:
            status["dpfVersion"] = f"v{self.state.generation.name}.0"


def _nothing(dpu: Json) -> Blocked | None:
    return None
