"""An API server in memory for tests of the kind dpf_cluster: objects by name, and a controller of DPUClusters.

It has no rules of its own. That the manifests are valid is tested with the dialects of both versions of DPF.
"""

from __future__ import annotations

import base64
import copy
from typing import Any, Self

import yaml

from blueprints.kube import SECRET, Dialect, Object, ObjectChanged, ObjectExists, ObjectType

KUBECONFIG = yaml.safe_dump(
    {
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "a", "user": {"token": "not-used"}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    }
)  # fmt: skip


class Memory:
    """The objects of one namespace. It stands in for a `Cluster`, and keeps its objects when it is closed."""

    where = "https://127.0.0.1:1"

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.phases = ["Pending", "Creating", "Ready"]
        """The phases of a new DPUCluster, one for each time that it is read."""
        self.finds_address = True
        """Whether the PCI address of a card is found out."""
        self.applied: dict[str, dict[str, str]] = {}
        """The labels that were applied, by the name of the object."""
        self.created: dict[str, set[str]] = {}
        """The names of the labels that were written by us, by the uid of the object."""
        self._made = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Keep the objects."""

    def find(self, type_: ObjectType, name: str, namespace: str = "") -> Object | None:
        """Return an object. A DPUCluster is then in its next phase."""
        body = self.objects.get((type_.kind, name))
        if body is None:
            return None
        found = Object.of(copy.deepcopy(body))
        if type_.kind == "DPUCluster":
            self._advance(body)
        if type_.kind == "DPUDevice":
            self._attach(body)
        return found

    def list(self, type_: ObjectType, namespace: str = "", *, labels: str = "") -> tuple[Object, ...]:
        """Return the objects of a type with these labels."""
        wanted = {tuple(one.split("=", 1)) for one in labels.split(",") if one}
        found = [body for (kind, _), body in sorted(self.objects.items()) if kind == type_.kind]
        return tuple(
            Object.of(copy.deepcopy(one)) for one in found if wanted <= set(one["metadata"].get("labels", {}).items())
        )

    def create(self, type_: ObjectType, manifest: dict[str, Any]) -> Object:
        """Create an object. Raises ObjectExists."""
        key = type_.kind, manifest["metadata"]["name"]
        if key in self.objects:
            raise ObjectExists(f"{key} exists.")
        assert type_ is SECRET or not self.dialect.missing(manifest)
        self._made += 1
        body = copy.deepcopy(manifest)
        body["metadata"] |= {"uid": f"00000000-0000-4000-8000-{self._made:012d}", "resourceVersion": str(self._made)}
        self.objects[key] = body
        self.created[body["metadata"]["uid"]] = set(manifest["metadata"].get("labels", {}))
        return Object.of(copy.deepcopy(body))

    def annotate(
        self, type_: ObjectType, current: Object, annotations: dict[str, Any], labels: dict[str, str | None]
    ) -> Object:
        """Set or remove (None) labels of an object, as a merge patch does."""
        body = self.objects[type_.kind, current.name]
        merged = {**body["metadata"].get("labels", {}), **labels}
        return self._labelled(body, {key: value for key, value in merged.items() if value is not None})

    def apply(self, type_: ObjectType, manifest: dict[str, Any], *, current: Object) -> Object:
        """Write the labels of a manifest, and remove those that were applied before; of a DPUNode, write the spec, too.

        One that Drydock has created has all its labels from there.
        """
        assert ("spec" in manifest) == (type_.kind == "DPUNode")
        body, wanted = self.objects[type_.kind, current.name], manifest["metadata"].get("labels", {})
        before = self.applied.get(current.name, {})
        if "spec" in manifest:
            if manifest["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
                raise ObjectChanged(f"{current.name} was changed meanwhile.")
            assert not self.dialect.missing(manifest)
            self._made += 1
            before = {
                key: value for key, value in body["metadata"]["labels"].items() if key in self.created[current.uid]
            }
            body["metadata"]["resourceVersion"] = str(self._made)
            body["spec"] = copy.deepcopy(manifest["spec"])
            self.created[current.uid] |= set(wanted)
        kept = {key: value for key, value in body["metadata"].get("labels", {}).items() if key not in before}
        self.applied[current.name] = wanted
        return self._labelled(body, {**kept, **wanted})

    def _labelled(self, body: dict[str, Any], labels: dict[str, Any]) -> Object:
        body["metadata"]["labels"] = labels
        return Object.of(copy.deepcopy(body))

    def delete(
        self, type_: ObjectType, name: str, namespace: str = "", *, uid: str, resource_version: str = ""
    ) -> Object | None:
        """Delete an object with this uid; one with finalizers is kept. Raises ObjectChanged for another version."""
        body = self.objects.get((type_.kind, name))
        if body is None or body["metadata"]["uid"] != uid:
            return None
        if resource_version not in ("", body["metadata"]["resourceVersion"]):
            raise ObjectChanged(f"{name} was changed meanwhile.")
        if body["metadata"].get("finalizers"):
            body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            return Object.of(copy.deepcopy(body))
        del self.objects[type_.kind, name]
        self.objects.pop(("Secret", f"{name}-admin-kubeconfig"), None)
        return None

    def secret(self, name: str, kubeconfig: str = KUBECONFIG) -> None:
        """Put the secret of a cluster there."""
        data = {"admin.conf": base64.b64encode(kubeconfig.encode()).decode()}
        if ("Secret", name) not in self.objects:
            self.create(SECRET, {"kind": "Secret", "metadata": {"name": name, "namespace": "dpf"}, "data": data})

    def _attach(self, body: dict[str, Any]) -> None:
        """Find the card of a DPUDevice, which is ready once a DPUNode lists it."""
        name, labels = body["metadata"]["name"], body["metadata"].setdefault("labels", {})
        within = [
            node["metadata"]["name"]
            for (kind, _), node in self.objects.items()
            if kind == "DPUNode" and name in [one["name"] for one in node["spec"].get("dpus", [])]
        ]
        ready = {"type": "Ready", "status": "True" if within else "False", "reason": "Pending", "message": ""}
        body["status"] = {"dpuType": "BlueField3", "conditions": [ready]}
        if within and self.finds_address:
            labels.setdefault("provisioning.dpu.nvidia.com/dpudevice-pciAddress", "0000-08-00")

    def _advance(self, body: dict[str, Any]) -> None:
        status = body.setdefault("status", {})
        before = status.get("phase")
        following = self.phases.index(before) + 1 if before in self.phases else 0
        if before in (None, *self.phases[:-1]):
            status["phase"] = self.phases[following]
        if status["phase"] == "Ready" and not body["spec"].get("kubeconfig"):
            name = f"{body['metadata']['name']}-admin-kubeconfig"
            self.secret(name)
            body["spec"]["kubeconfig"] = name
