"""Writes of others that no user of DPF should make. The API server accepts them all, as far as a role allows them.

Every object is compared with the state in which the controllers have last seen or written it: what differs then, others
wrote. Their names are from `managedFields`. A write that another one undoes before the next tick is not seen.
"""

from __future__ import annotations

from tests.dpus.api import (
    ATTACHMENT,
    CHAIN,
    CONFIGURATION,
    CREDENTIAL,
    DEPLOYMENT,
    DPU,
    DPU_NODE,
    INTERFACE,
    IPAM,
    MAINTENANCE,
    MANAGER,
    NAD,
    SERVICE,
    SET,
    VIRTUAL_NETWORK,
    VOLUME,
    VPC,
    Json,
    annotations_of,
    is_deleting,
    name_of,
    uid_of,
)
from tests.dpus.generations import FINALIZERS, HOLD, REBOOT

# From the rules `self == oldSelf` of both sets of CRDs (x-kubernetes-validations), which a server before 1.25 ignores.
IMMUTABLE: dict[str, tuple[str, ...]] = {
    "BFB": ("url", "fileName"),
    "DPUFlavor": ("",),
    "BlueFieldSoftware": ("",),
    "DPUDevice": ("serialNumber", "bmcPort", "numberOfPFs", "pf0Name", "psid", "opn"),
}
SET_ONCE: dict[str, tuple[str, ...]] = {"DPUCluster": ("kubeconfig",), "BFB": ("versions",)}
NAME_LIMITS = {"BFB": 187, "BlueFieldSoftware": 187,
               "DPUCluster": 63, "DPUSet": 63, "DPUNode": 48, "DPUDevice": 63, "DPUNodeMaintenance": 63,
               "DPUService": 63, "DPUServiceCredentialRequest": 63, "DPUServiceInterface": 63,
               "DPUDeployment": 20, "DPUServiceTemplate": 63, "DPUServiceConfiguration": 63,
               "DPUServiceChain": 63, "DPUServiceIPAM": 63, "DPUServiceNAD": 63, "DPUVolume": 63,
               "DPUVolumeAttachment": 63, "DPUVirtualNetwork": 63}  # fmt: skip
EFFECTS = ("taint", "noEffect", "customLabel", "drain", "customAction", "hold")
OURS = (DPU.name, MAINTENANCE.name)
"""Kinds that only the controllers create and change. Others may delete DPUs, and write the annotation HOLD."""
WITH_STATUS = ("DPUDeployment", "DPUServiceTemplate",
               "BFB", "BlueFieldSoftware",
               "DPUCluster", "DPUSet", "DPU", "DPUNode", "DPUDevice", "DPUNodeMaintenance", "DPUService",
               "DPUServiceCredentialRequest", "DPUServiceInterface", "DPUServiceChain", "DPUServiceIPAM",
               "DPUServiceNAD", "DPUVolume", "DPUVolumeAttachment", "DPUVPC", "DPUVirtualNetwork")  # fmt: skip
UNCHANGED = (INTERFACE.name, CHAIN.name, IPAM.name, NAD.name, VOLUME.name, ATTACHMENT.name, VPC.name,
             VIRTUAL_NETWORK.name)  # fmt: skip
"""Kinds whose spec nobody changes: by rules of the CRDs of the last four, and as Drydock makes the others anew."""


class Violations(list[str]):
    """What others wrote that they should not have, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.tolerated: set[str] = set()
        """Field managers whose writes are part of the test."""
        self._known: dict[str, Json] = {}
        self._said: set[str] = set()

    def add(self, text: str) -> None:
        """Record a violation, once."""
        if text not in self._said:
            self._said.add(text)
            self.append(text)

    def take(self) -> list[str]:
        """Return what was recorded, and forget it: the test expects it."""
        taken = list(self)
        self.clear()
        return taken

    def refuse(self) -> None:
        """Raise if there is any."""
        if self:
            raise AssertionError("writes that DPF's controllers do not expect:\n  " + "\n  ".join(self))

    # What the controllers know

    def check(self, kind: str, items: list[Json]) -> None:
        """Look at all objects of a kind."""
        here = {uid_of(item) for item in items}
        for uid, before in list(self._known.items()):
            if before["kind"] == kind and uid not in here:
                del self._known[uid]
                if FINALIZERS.get(kind) in _finalizers(before):
                    self.add(f"{kind} {name_of(before)} is gone: someone else removed its finalizer")
        for item in items:
            self.look(kind, item)

    def look(self, kind: str, item: Json) -> None:
        """Look at one object, which the controllers have read."""
        who, before = self._who(item), self._known.get(uid_of(item))
        self._known[uid_of(item)] = item
        if who in self.tolerated:
            return
        if before is None:
            self._check_new(kind, item, who)
        elif before["metadata"]["resourceVersion"] != item["metadata"]["resourceVersion"]:
            self._check_changed(kind, before, item, who)

    def know(self, item: Json) -> None:
        """Note an object as the controllers have written it."""
        self._known[uid_of(item)] = item

    def forget(self, item: Json) -> None:
        """Expect that an object goes, because the controllers delete it or remove its finalizer."""
        self._known.pop(uid_of(item), None)

    # One object

    def _check_new(self, kind: str, item: Json, who: str) -> None:
        name, spec = name_of(item), item.get("spec") or {}
        if len(name) > NAME_LIMITS.get(kind, 253):
            self.add(f"{kind} {name}: the name is longer than {NAME_LIMITS[kind]} characters")
        if kind in OURS and not is_deleting(item):
            self.add(f"{kind} {name} was created by {who}, not by the controllers")
        if kind == SET.name:
            self._check_set(name, spec)
        if kind == DEPLOYMENT.name:
            self._check_deployment(name, spec)
        if kind == CONFIGURATION.name:
            self._check_configuration(name, spec)
        if kind == SERVICE.name:
            self._check_service(name, spec)
        if kind == CREDENTIAL.name:
            self._check_credential(item)
        if kind in (INTERFACE.name, CHAIN.name):
            self._check_chain(kind, name, spec["template"]["spec"])
        if kind in (VPC.name, VIRTUAL_NETWORK.name) and not (spec.get("nodeSelector") or {}).get("matchLabels"):
            self.add(f"{kind} {name} is for all nodes")
        if kind == VPC.name and len(f"{item['metadata']['namespace']}_{name}") > 63:
            self.add(f"{kind} {name}: with its namespace, the name is too long for a label")
        if kind == IPAM.name and not (spec.get("nodeSelector") or {}).get("nodeSelectorTerms"):
            self.add(f"{kind} {name} is for all nodes")

    def _check_set(self, name: str, spec: Json) -> None:
        if spec.get("dpuSelector") and spec.get("dpuDeviceSelector"):
            self.add(f"DPUSet {name} has both spec.dpuSelector and spec.dpuDeviceSelector")
        effect = ((spec.get("dpuTemplate") or {}).get("spec") or {}).get("nodeEffect")
        chosen = [key for key in EFFECTS if effect and key in effect]
        if effect and len(chosen) != 1:
            self.add(f"DPUSet {name}: spec.dpuTemplate.spec.nodeEffect has {len(chosen)} effects, not one")

    def _check_deployment(self, name: str, spec: Json) -> None:
        for number, one in enumerate(spec["dpus"].get("dpuSets") or [{}]):
            keys = ("nodeSelector", "dpuSelector", "dpuNodeSelector", "dpuDeviceSelector")
            if not any(one.get(key) for key in keys):
                self.add(f"DPUDeployment {name}: spec.dpus.dpuSets[{number}] selects all cards")
            if len(one.get("nameSuffix", "")) > 24:
                self.add(f"DPUDeployment {name}: the suffix of a DPUSet has more than 24 characters")
        if any(len(key) > 28 for key in spec["services"]):
            self.add(f"DPUDeployment {name}: the name of a service has more than 28 characters")

    def _check_configuration(self, name: str, spec: Json) -> None:
        given = spec.get("serviceConfiguration") or {}
        if given.get("deployInCluster"):
            self.add(f"DPUServiceConfiguration {name} deploys in the cluster of DPF")
        pods = given.get("serviceDaemonSet") or {}
        for part in ("labels", "annotations"):
            if any("dpu.nvidia.com" in key for key in pods.get(part) or {}):
                self.add(f"DPUServiceConfiguration {name} has {part} of dpu.nvidia.com")

    def _check_made_set(self, before: Json, item: Json, who: str) -> None:
        """26.4 and 24.10 make DPUSets of DPUDeployments, and nobody else changes what these say."""
        name, labels = name_of(item), before["metadata"].get("labels") or {}
        if not any("owned-by-dpudeployment" in key for key in labels):
            return
        for key in _differing(labels, item["metadata"].get("labels") or {}):
            if not key.startswith("drydock"):
                self.add(f"DPUSet {name}: {who} wrote the label {key}")
        for key in _differing(before["spec"], item["spec"]):
            if key != "dpuTemplate":
                self.add(f"DPUSet {name}: {who} wrote spec.{key}")
        old, new = (one["spec"]["dpuTemplate"]["spec"] for one in (before, item))
        for key in _differing(old, new):
            if key not in ("cluster", "nodeEffect", "automaticNodeReboot"):
                self.add(f"DPUSet {name}: {who} wrote spec.dpuTemplate.spec.{key}")

    def _check_service(self, name: str, spec: Json) -> None:
        terms = ((spec.get("serviceDaemonSet") or {}).get("nodeSelector") or {}).get("nodeSelectorTerms") or []
        if not terms or not all(term.get("matchExpressions") for term in terms):
            self.add(f"DPUService {name} selects all nodes")
        if len((spec.get("helmChart") or {}).get("source", {}).get("releaseName") or "x" * 54) > 53:
            self.add(f"DPUService {name}: the release has no name, or one that Helm refuses")
        if "deployInCluster" in spec:
            self.add(f"DPUService {name} has spec.deployInCluster")

    def _check_chain(self, kind: str, name: str, spec: Json) -> None:
        if not (spec.get("nodeSelector") or {}).get("matchLabels"):
            self.add(f"{kind} {name} selects all nodes")
        template = spec["template"]
        if "node" in template["spec"]:
            self.add(f"{kind} {name} names a node, which the controllers do")
        if kind == INTERFACE.name and not (template.get("metadata") or {}).get("labels"):
            self.add(f"{kind} {name} has no labels by which a chain could find it")

    def _check_credential(self, item: Json) -> None:
        name, spec = name_of(item), item["spec"]
        if not spec.get("targetCluster"):
            self.add(f"{CREDENTIAL.name} {name} is for the API server of DPF itself")
        if not spec.get("duration"):
            self.add(f"{CREDENTIAL.name} {name} has no duration")
        for part in ("secret", "serviceAccount"):
            if spec[part].get("namespace") in (None, "", item["metadata"]["namespace"]):
                self.add(f"{CREDENTIAL.name} {name}: spec.{part} is in the namespace of DPF")

    def _check_changed(self, kind: str, before: Json, item: Json, who: str) -> None:
        name, old, new = name_of(item), before.get("spec") or {}, item.get("spec") or {}
        if kind in WITH_STATUS:
            for key in _differing(before.get("status") or {}, item.get("status") or {}):
                self.add(f"{kind} {name}: {who} wrote status.{key}")
        for key in IMMUTABLE.get(kind, ()):
            was, now, path = (old.get(key), new.get(key), f"spec.{key}") if key else (old, new, "spec")
            if was is not None and now is not None and was != now:
                self.add(f"{kind} {name}: {path} is immutable, and {who} changed it")
        for key in SET_ONCE.get(kind, ()):
            if old.get(key) and old[key] != new.get(key):
                self.add(f"{kind} {name}: spec.{key} can be set once, and {who} changed it")
        ours = FINALIZERS.get(kind)
        if ours in _finalizers(before) and ours not in _finalizers(item):
            self.add(f"{kind} {name}: someone else removed its finalizer {ours}")
        if kind == DPU_NODE.name and REBOOT in annotations_of(item) and REBOOT not in annotations_of(before):
            self.add(f"DPUNode {name}: {who} requested a reboot")
        if kind == MAINTENANCE.name and is_deleting(item) and not is_deleting(before):
            self.add(f"DPUNodeMaintenance {name}: someone else deleted it")
        if kind == SERVICE.name:
            self._check_service(name, new)
        if kind == SET.name:
            self._check_made_set(before, item, who)
        if kind == DEPLOYMENT.name:
            self._check_deployment(name, new)
        if kind == CONFIGURATION.name:
            self._check_configuration(name, new)
        if kind in UNCHANGED and old != new:
            self.add(f"{kind} {name}: {who} changed its spec")
        if kind == CREDENTIAL.name and old != new:
            self.add(f"{kind} {name}: {who} changed its spec, which leaves the account of the former one")
        if kind in OURS:
            self._check_ours(kind, before, item, who)

    def _check_ours(self, kind: str, before: Json, item: Json, who: str) -> None:
        name = name_of(item)
        for key in _differing(before.get("spec") or {}, item.get("spec") or {}):
            self.add(f"{kind} {name}: {who} wrote spec.{key}")
        for key in _differing(annotations_of(before), annotations_of(item)):
            if key != HOLD:
                self.add(f"{kind} {name}: {who} wrote the annotation {key}")
        for part in ("labels", "ownerReferences"):
            if before["metadata"].get(part) != item["metadata"].get(part):
                self.add(f"{kind} {name}: {who} wrote metadata.{part}")

    def _who(self, item: Json) -> str:
        """Return the last one who wrote, other than the controllers."""
        entries = [one for one in item["metadata"].get("managedFields") or [] if one.get("manager") != MANAGER]
        latest = max(entries, key=lambda one: one.get("time", ""), default={})
        return str(latest.get("manager", "someone"))


def _finalizers(item: Json) -> list[str]:
    return item["metadata"].get("finalizers") or []


def _differing(before: Json, item: Json) -> list[str]:
    return sorted(key for key in before.keys() | item.keys() if before.get(key) != item.get(key))
