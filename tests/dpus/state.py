"""What the controllers share: the objects as they were at the beginning of a tick, and how they write."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from kubernetes.client.exceptions import ApiException

from tests.dpus.api import (
    CRD,
    DPU,
    MANAGER,
    NODE,
    PROVISIONING,
    SECRET,
    Api,
    Json,
    Kind,
    is_deleting,
    name_of,
    uid_of,
)
from tests.dpus.clusterlinks import ClusterLinks
from tests.dpus.faults import Faults
from tests.dpus.generations import DEVICE_NAME, FINALIZERS, PCI_ADDRESS, V24_10, V26_4, Generation
from tests.dpus.violations import Violations
from tests.dpus.world import Card, World

How = Callable[[Json], None]
WORLD_MANAGER, STRANGER = "world", "stranger"


class State:
    """The objects of one namespace, and everything around them."""

    def __init__(self, kubeconfig: str, namespace: str, generation: Generation | None) -> None:
        self.lock = threading.RLock()
        self.api = Api(kubeconfig, namespace=namespace, user=MANAGER)
        self.admin = Api(kubeconfig, namespace=namespace, manager=WORLD_MANAGER)
        self.stranger = Api(kubeconfig, namespace=namespace, manager=STRANGER)
        self._crds: dict[str, Json | None] = {}
        self.generation = generation or self._detected()
        self.violations, self.faults = Violations(), Faults()
        self.violations.tolerated.add(STRANGER)
        self.world = World(self.admin, self.generation, self.violations.add, self.lock)
        self.links = ClusterLinks()
        self.pod_links = ClusterLinks(namespace)
        """Access to the namespace of the same name in DPU clusters, in which the pods of services are."""
        self.apart = f"{namespace}-apart"
        """The namespace that is set aside for credentials, here and in DPU clusters."""
        self.secrets = Api(kubeconfig, namespace=self.apart, user=MANAGER)
        self.account_links = ClusterLinks(self.apart)
        self.dwell: dict[str, int] = {}
        """Ticks that objects stay in a phase; 1 where there is none."""
        self.writes = self.waits = 0
        self.items: dict[str, list[Json]] = {}
        self._bodies: dict[tuple[str, str], Json] = {}
        self._ages: defaultdict[tuple[str, str], int] = defaultdict(int)

    def close(self) -> None:
        """Close all connections."""
        self.links.close()
        self.pod_links.close()
        self.account_links.close()
        for api in (self.api, self.admin, self.stranger, self.secrets):
            api.close()

    # Reading

    def read(self) -> None:
        """Read everything anew, and look at what others wrote."""
        self.writes = self.waits = 0
        self.items = {}
        for kind in self.generation.kinds:
            items = self.world.nodes(self.api) if kind is NODE else self.api.all(kind)
            self.items[kind.name] = items
            self.violations.check(kind.name, items)
            for item in items:
                self._bodies[kind.name, name_of(item)] = item

    def all(self, kind: Kind) -> list[Json]:
        return list(self.items.get(kind.name, []))

    def find(self, kind: Kind, name: str) -> Json | None:
        return next((item for item in self.all(kind) if name_of(item) == name), None)

    def secret(self, name: str) -> Json | None:
        return self.api.get(SECRET, name)

    def has_field(self, kind: Kind, *path: str) -> bool:
        """Return whether the server's CRD has a field, such as `("status", "rebootStatus")`."""
        crd = self._crd(kind)
        if crd is None:
            return False
        schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for key in path:
            schema = (schema.get("properties") or {}).get(key)
            if schema is None:
                return False
        return True

    def card_of(self, dpu: Json) -> Card | None:
        """Return the card of a DPU: by serial number, or by host and address in 24.10."""
        spec = dpu["spec"]
        if serial := spec.get("serialNumber"):
            return self.world.find_card(serial)
        host = self.world.hosts.get(spec.get(self.generation.host_field, ""))
        address = (dpu["metadata"].get("labels") or {}).get(PCI_ADDRESS)
        return next((card for card in host.cards if card.pci == address), None) if host else None

    def dpus_of(self, host: str) -> list[Json]:
        """Return the DPUs of a host, by the host's name in Kubernetes."""
        return [dpu for dpu in self.all(DPU) if dpu["spec"].get(self.generation.host_field) == host]

    # Writing

    def change(self, kind: Kind, item: Json, how: How) -> Json | None:
        """Change an object, and what this tick knows of it."""
        return self._changed(kind, item, how, status=False)

    def change_status(self, kind: Kind, item: Json, how: How) -> Json | None:
        """Change the status of an object by a function of the status."""

        def changed(body: Json) -> None:
            how(body.setdefault("status", {}))

        return self._changed(kind, item, changed, status=True)

    def create(self, kind: Kind, body: Json) -> Json:
        made = self.api.create(kind, body)
        self.writes += 1
        self.violations.know(made)
        self.items.setdefault(kind.name, []).append(made)
        return made

    def apply(self, kind: Kind, body: Json, known: Json | None) -> None:
        """Write an object by server-side apply, unless the one that is known has all of it."""
        if known is not None and _has(known, body):
            return
        made = self.api.apply(kind, body)
        if known is None or made["metadata"]["resourceVersion"] != known["metadata"]["resourceVersion"]:
            self.writes += 1
        made |= {"kind": kind.name, "apiVersion": kind.api_version}
        self.violations.know(made)
        rest = [one for one in self.items.get(kind.name, []) if uid_of(one) != uid_of(made)]
        self.items[kind.name] = [*rest, made]

    def delete(self, kind: Kind, item: Json) -> None:
        """Delete an object, once."""
        if not is_deleting(item):
            self.writes += 1
            self.api.delete(kind, name_of(item), uid_of(item))
            self.violations.forget(item)

    def add_finalizer(self, kind: Kind, item: Json) -> Json:
        """Add the finalizer of a kind."""
        ours = FINALIZERS[kind.name]
        if is_deleting(item) or ours in (item["metadata"].get("finalizers") or []):
            return item

        def add(body: Json) -> None:
            body["metadata"]["finalizers"] = [*(body["metadata"].get("finalizers") or []), ours]

        return self.change(kind, item, add) or item

    def drop_finalizer(self, kind: Kind, item: Json) -> bool:
        """Remove the finalizer of a kind, unless a fault keeps it. Returns whether it is gone."""
        ours = FINALIZERS[kind.name]
        if ours not in (item["metadata"].get("finalizers") or []):
            return True
        if self.faults.keeps_finalizer(kind.name, name_of(item)):
            return False

        def drop(body: Json) -> None:
            body["metadata"]["finalizers"] = [one for one in body["metadata"].get("finalizers") or [] if one != ours]

        self.change(kind, item, drop)
        self.violations.forget(item)
        self.writes += 1  # also where the object is gone with it
        return True

    def is_due(self, item: Json, phase: str) -> bool:
        """Return whether an object has been in a phase for long enough. To be asked once in a tick."""
        name = name_of(item)
        if self.faults.is_stuck(item["kind"], phase, name):
            return False
        key = (uid_of(item), phase)
        self._ages[key] += 1
        if self._ages[key] < self.dwell.get(phase, 1):
            self.waits += 1
            return False
        del self._ages[key]
        return True

    def recreate(self) -> None:
        """Let the stranger create objects again that are gone, where a fault says so."""
        for (kind_name, name), times in list(self.faults.recreated.items()):
            kind = next(kind for kind in self.generation.kinds if kind.name == kind_name)
            body = self._bodies.get((kind_name, name))
            if not times or body is None or self.find(kind, name):
                continue
            self.faults.recreated[kind_name, name] = times - 1
            made = self.stranger.create(kind, {"metadata": {"name": name}, "spec": body["spec"]})
            self.writes += 1
            self.items[kind_name].append(made)

    def allow_phase(self, phase: str) -> None:
        """Let the server accept a phase that its CRD does not have, as a later version does."""

        def widen(crd: Json) -> None:
            status = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
            for key in ("phase", "previousPhase"):
                if phase not in status.get(key, {}).get("enum", [phase]):
                    status[key]["enum"].append(phase)

        self.admin.change(CRD, f"{DPU.plural}.{PROVISIONING}", widen)

    def _changed(self, kind: Kind, item: Json, how: How, *, status: bool) -> Json | None:
        uid = uid_of(item)

        def change(body: Json) -> None:
            if uid_of(body) == uid:  # and not another one under its name
                how(body)

        def look(body: Json) -> None:
            self.violations.look(kind.name, body)

        known = next((one for one in self.all(kind) if uid_of(one) == uid), None)
        changed = self.api.change(kind, name_of(item), change, status=status, known=known, look=look)
        if changed is None or uid_of(changed) != uid:
            return None
        if known is None or changed["metadata"]["resourceVersion"] != known["metadata"]["resourceVersion"]:
            self.writes += 1
        changed |= {"kind": kind.name, "apiVersion": kind.api_version}
        self.violations.know(changed)
        items = self.items.get(kind.name, [])
        self.items[kind.name] = [changed if uid_of(one) == uid_of(changed) else one for one in items]
        return changed

    def _crd(self, kind: Kind) -> Json | None:
        if kind.name not in self._crds:
            self._crds[kind.name] = self.admin.get(CRD, f"{kind.plural}.{kind.group}")
        return self._crds[kind.name]

    def _detected(self) -> Generation:
        from tests.dpus.api import DEVICE

        if self._crd(DPU) is None:
            raise AssertionError("the server has no CRDs of DPF: load them before the double starts")
        return V26_4 if self._crd(DEVICE) else V24_10


def _has(there: Any, wanted: Any) -> bool:
    """Return whether an object has all of another one. Selectors are compared as a whole."""
    if isinstance(wanted, dict):
        whole = "matchLabels" in wanted or "matchExpressions" in wanted
        if not isinstance(there, dict):
            return not wanted
        return there == wanted if whole else all(_has(there.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        same = isinstance(there, list) and len(there) == len(wanted)
        return same and all(_has(one, other) for one, other in zip(there, wanted, strict=True))
    return bool(there == wanted)


def is_refused(error: ApiException) -> bool:
    """Return whether the server refused a value."""
    return bool(error.status == 422)


def owner_reference(owner: Json) -> Json:
    """Return the reference of a controller to its child."""
    return {
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": name_of(owner), "uid": uid_of(owner),
        "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip


def device_name(dpu: Json) -> Any:
    return dpu["spec"].get("dpuDeviceName") or (dpu["metadata"].get("labels") or {}).get(DEVICE_NAME)
