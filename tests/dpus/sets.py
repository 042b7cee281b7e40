"""The controller of DPUSets: one DPU for each card that they select."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from kubernetes.client.exceptions import ApiException

from tests.dpus import conditions, selectors
from tests.dpus.api import DEVICE, DPU, DPU_NODE, NODE, SET, Json, is_deleting, labels_of, name_of, uid_of
from tests.dpus.generations import DEVICE_NAME, NODE_NAME, PCI_ADDRESS, PF_NAME, SET_NAME, SET_NAMESPACE
from tests.dpus.images import FIELDS
from tests.dpus.state import State, owner_reference
from tests.dpus.world import NFD

MOST = 63


@dataclass(frozen=True)
class Target:
    """A card that a set selects, as its objects name it."""

    key: str
    """DPUDevice, or Node in 24.10: the name that tells DPUs of one set apart."""
    host: str
    name: str
    """Name of its DPU."""
    labels: dict[str, str]
    device: Json | None = None


class Sets:
    """DPUSets of both versions."""

    def __init__(self, state: State) -> None:
        self.state = state

    def run(self) -> None:
        for one in self.state.all(SET):
            if is_deleting(one):
                self._delete(one)
            else:
                self._step(self.state.add_finalizer(SET, one))

    def select(self, one: Json) -> list[Target]:
        """Return the cards that a set selects. Without a selector these are all cards of all hosts."""
        return self._devices(one) if self.state.generation.devices else self._indices(one)

    def owned(self, one: Json) -> list[Json]:
        """Return the DPUs of a set, by their labels."""
        wanted = {SET_NAME: name_of(one), SET_NAMESPACE: one["metadata"]["namespace"]}
        return [dpu for dpu in self.state.all(DPU) if wanted.items() <= labels_of(dpu).items()]

    def _step(self, one: Json) -> None:
        targets, owned = self.select(one), self.owned(one)
        self._judge(one, targets)
        field = "dpuDeviceName" if self.state.generation.devices else "nodeName"
        there = {dpu["spec"][field] for dpu in owned}
        failed = ""
        for target in targets:
            if target.key not in there:
                failed = self._create(one, target) or failed
        selected = {target.key for target in targets}
        for dpu in owned:
            if dpu["spec"][field] not in selected:
                self.state.delete(DPU, dpu)
        if (one["spec"].get("strategy") or {}).get("type") == "RollingUpdate":
            self._roll(one, len(targets))
        for dpu in self.owned(one):
            self._update(one, dpu)
        self._put(self.state.find(SET, name_of(one)) or one, failed)

    # Selection

    def _devices(self, one: Json) -> list[Target]:
        """26.4: DPUNodes by label, then their DPUDevices by label."""
        spec = one["spec"]
        equal = {"matchLabels": spec["dpuSelector"]} if spec.get("dpuSelector") else spec.get("dpuDeviceSelector")
        chosen: dict[str | None, list[Json]] = {}
        for device in self.state.all(DEVICE):
            if selectors.matches(equal, labels_of(device)):
                chosen.setdefault(labels_of(device).get(NODE_NAME), []).append(device)
        return [
            _target(name_of(node), device)
            for node in self.state.all(DPU_NODE)
            if name_of(node) in chosen and selectors.matches(spec.get("dpuNodeSelector"), labels_of(node))
            for device in chosen[name_of(node)]
        ]

    def _indices(self, one: Json) -> list[Target]:
        """24.10: Nodes by label, and of each the cards whose labels the selector names, or the first."""
        found = []
        for node in self.state.all(NODE):
            if selectors.matches(one["spec"].get("nodeSelector"), labels_of(node)):
                for index in _chosen(one["spec"].get("dpuSelector") or {}, labels_of(node)):
                    address = labels_of(node).get(f"{NFD}/dpu-{index}-pci-address")
                    if address:
                        own = {PCI_ADDRESS: address, PF_NAME: labels_of(node).get(f"{NFD}/dpu-{index}-pf0-name", "")}
                        dpu = f"{name_of(node).lower()}-{address}"
                        found.append(Target(name_of(node), name_of(node), dpu, own))
        return found

    def _judge(self, one: Json, targets: list[Target]) -> None:
        """Record a set of ours that may image more than one card."""
        if any(entry.get("manager") in self.state.violations.tolerated for entry in _managers(one)):
            return
        name, spec = name_of(one), one["spec"]
        field = "dpuNodeSelector" if self.state.generation.devices else "nodeSelector"
        by_device = not selectors.is_empty(spec.get("dpuDeviceSelector")) or spec.get("dpuSelector")
        if selectors.is_empty(spec.get(field)) and not (self.state.generation.devices and by_device):
            self.state.violations.add(f"DPUSet {name} has no selector: spec.{field} is absent, so it means every card")
        if len(targets) > 1:
            cards = ", ".join(target.name for target in targets)
            self.state.violations.add(f"DPUSet {name} selects {len(targets)} cards: {cards}")

    # DPUs

    def _create(self, one: Json, target: Target) -> str:
        """Create the DPU of a card. Returns why it could not be."""
        template = one["spec"].get("dpuTemplate") or {}
        asked = template.get("spec") or {}
        labels = {SET_NAME: name_of(one), SET_NAMESPACE: one["metadata"]["namespace"], **labels_of(one)}
        cluster = {
            key: value for key, value in (asked.get("cluster") or {}).items() if key in ("nodeLabels", "selector")
        }
        spec: Json = {
            **named(asked), "cluster": cluster, self.state.generation.host_field: target.host,
        }  # fmt: skip
        for key in ("dpuFlavor", "nodeEffect", "automaticNodeReboot", "secureBoot"):
            if key in asked:
                spec[key] = asked[key]
        if target.device:
            spec["dpuDeviceName"] = target.key
            spec["serialNumber"] = target.device["spec"]["serialNumber"]
            if address := (target.device.get("status") or {}).get("pciAddress"):
                spec["pciAddress"] = address
        metadata = {
            "name": target.name, "labels": {**labels, **target.labels}, "ownerReferences": [owner_reference(one)],
            "annotations": template.get("annotations") or {},
        }  # fmt: skip
        try:
            self.state.create(DPU, {"metadata": metadata, "spec": spec})
        except ApiException as error:
            if error.status != 409:
                raise
            return f'dpus.provisioning.dpu.nvidia.com "{target.name}" already exists'
        return ""

    def _update(self, one: Json, dpu: Json) -> None:
        """Copy new labels for the Node of a DPU, which disturbs nothing."""
        asked = (one["spec"].get("dpuTemplate") or {}).get("spec") or {}
        wanted = (asked.get("cluster") or {}).get("nodeLabels") or {}
        has = (dpu["spec"].get("cluster") or {}).get("nodeLabels") or {}
        if is_deleting(dpu) or wanted.items() <= has.items():
            return

        def put(item: Json) -> None:
            item["spec"].setdefault("cluster", {})["nodeLabels"] = {**has, **wanted}

        self.state.change(DPU, dpu, put)

    def _roll(self, one: Json, total: int) -> None:
        """Delete DPUs that are outdated, as many at once as may be unavailable."""
        asked = (one["spec"].get("dpuTemplate") or {}).get("spec") or {}
        most = _scaled((one["spec"]["strategy"].get("rollingUpdate") or {}).get("maxUnavailable", 0), total)
        owned = self.owned(one)
        away = total - len(owned) + sum(not _is_available(dpu) for dpu in owned)
        for dpu in owned:
            same = named(asked).items() <= dpu["spec"].items()
            if same and dpu["spec"].get("dpuFlavor") == asked.get("dpuFlavor"):
                continue
            if not _is_available(dpu):
                self.state.delete(DPU, dpu)
            elif away < most:
                self.state.delete(DPU, dpu)
                away += 1

    # Status and deletion

    def _put(self, one: Json, failed: str) -> None:
        owned = self.owned(one)
        counts: dict[str, int] = {}
        for dpu in owned:
            phase = (dpu.get("status") or {}).get("phase") or "Initializing"
            counts[phase] = counts.get(phase, 0) + 1
        generation = one["metadata"]["generation"]
        rich = self.state.has_field(SET, "status", "conditions")

        def put(status: Json) -> None:
            status["dpuStatistics"] = counts
            if not rich:
                return
            status["observedGeneration"] = generation
            reason = "Error" if failed else "Success"
            conditions.put(status, "DPUSetPrereqsReconciled", not failed, reason, failed, generation)
            ready = not failed and all(conditions.is_true(dpu, "Ready") for dpu in owned)
            conditions.put(
                status, "Ready", ready, "Success" if ready else reason if failed else "Pending", failed, generation
            )

        self.state.change_status(SET, one, put)

    def _delete(self, one: Json) -> None:
        """26.4 deletes the DPUs and waits for them. In 24.10 the garbage collection does, afterwards."""
        if not self.state.generation.devices:
            self.state.drop_finalizer(SET, one)
            return
        owned = self.owned(one)
        for dpu in owned:
            self.state.delete(DPU, dpu)
        if not owned:
            self.state.drop_finalizer(SET, one)
        else:
            self._put(one, "")


def _target(node: str, device: Json) -> Target:
    """Return a card of 26.4 by its DPUDevice."""
    name = name_of(device)
    own = {DEVICE_NAME: name, NODE_NAME: node, **labels_of(device)}
    return Target(name, node, f"{node[: MOST - len(name) - 1]}-{name}", own, device)


def _chosen(selector: dict[str, str], labels: dict[str, str]) -> list[int]:
    """Return the numbers of cards that a 24.10 dpuSelector names by equal labels; 0 without a selector."""
    if not selector:
        return [0]
    found = set()
    for key, value in selector.items():
        match = re.match(rf"^{re.escape(NFD)}/dpu-(\d+)-", key)
        if match and labels.get(key) == value:
            found.add(int(match[1]))
    return sorted(found)


def named(template: Json) -> Json:
    """Return how a DPU of a template names its image."""
    return {field: template[field].get("name", "") for field in FIELDS.values() if field in template} or {"bfb": ""}


def _scaled(value: int | str, total: int) -> int:
    """Return how many DPUs a number or a percentage is, at least one."""
    number = math.ceil(int(value[:-1]) * total / 100) if isinstance(value, str) and value.endswith("%") else int(value)
    return max(1, min(number, total))


def _is_available(dpu: Json) -> bool:
    return conditions.is_true(dpu, "Ready") and not is_deleting(dpu)


def _managers(item: Json) -> list[Json]:
    return item["metadata"].get("managedFields") or []


def owners(item: Json) -> list[str]:
    """Return the uids of the owners of an object."""
    return [reference["uid"] for reference in item["metadata"].get("ownerReferences") or []]


def is_owned_by(item: Json, owner: Json) -> bool:
    return uid_of(owner) in owners(item)
