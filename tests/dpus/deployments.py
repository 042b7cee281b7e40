"""The controller of DPUDeployments: DPUServices with their interfaces and chain, and then DPUSets.

From `internal/dpuservice/controllers/dpudeployment_controller*.go` of NVIDIA/doca-platform, v24.10 and later. What it
makes has one label with the name of the DPUDeployment, and that as its owner; no label of the DPUDeployment is copied.
In 24.10 names follow from those of deployment and service, later they end at random (here in a hash of the revision).
What a DPUDeployment refers to has its finalizer. It goes last, after what was made: services first, then DPUSets.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

from tests.dpus import conditions
from tests.dpus.api import (
    BFB,
    CHAIN,
    CONFIGURATION,
    DEPLOYMENT,
    DPU,
    FLAVOR,
    INTERFACE,
    SERVICE,
    SET,
    SOFTWARE,
    TEMPLATE,
    Json,
    Kind,
    is_deleting,
    labels_of,
    name_of,
)
from tests.dpus.generations import FINALIZERS, READY
from tests.dpus.images import FIELDS
from tests.dpus.state import State, owner_reference

OWNED_BY = "svc.dpu.nvidia.com/owned-by-dpudeployment"
CONSUMED_BY = "dpu.nvidia.com/consumed-by-dpudeployment-name"
SERVICE_ID, INTERFACE_NAME = "svc.dpu.nvidia.com/service", "svc.dpu.nvidia.com/interface"
CHAIN_VERSION = "svc.dpu.nvidia.com/dpuservicechain-version"
VERSION = "svc.dpu.nvidia.com/dpuservice-version"
REFERRED = (BFB, SOFTWARE, FLAVOR, TEMPLATE, CONFIGURATION)
RECONCILING = "Reconciling"
"""A phase in which a test can keep a deployment, such as by `Faults.stick(RECONCILING, kind="DPUDeployment")`."""


class Deployments:
    """DPUDeployments of both versions. Templates are ready at once."""

    def __init__(self, state: State) -> None:
        self.state = state

    def run(self) -> None:
        if self.state.has_field(TEMPLATE, "status", "conditions"):
            for template in self.state.all(TEMPLATE):
                self._template(template)
        for one in self.state.all(DEPLOYMENT):
            if is_deleting(one):
                self._delete(one)
            else:
                self._step(self.state.add_finalizer(DEPLOYMENT, one))

    def _template(self, template: Json) -> None:
        generation = template["metadata"]["generation"]

        def put(status: Json) -> None:
            status["observedGeneration"] = generation
            conditions.put(status, READY, True, "Success", generation=generation)

        self.state.change_status(TEMPLATE, template, put)

    def _step(self, one: Json) -> None:
        if self.state.faults.is_stuck(DEPLOYMENT.name, RECONCILING, name_of(one)):
            self._put(one, "Error occurred: stuck")
            return
        if problem := self._missing(one):
            self._put(one, f"Error occurred: {problem}")
            return
        self._mark(one)
        node, kept, ids = {OWNED_BY: _parent(one)}, set[tuple[str, str]](), dict[str, str]()
        for kind, name, body in [*self._services(one, node, ids), *self._chain(one, node, ids)]:
            kept.add((kind.name, name))
            self._ensure(kind, name, body, one)
        for option in one["spec"]["dpus"]["dpuSets"]:
            name = f"{name_of(one)}-{option['nameSuffix']}"
            kept.add((SET.name, name))
            self._ensure(SET, name, self._set(one, option, node), one)
        for kind in (SERVICE, INTERFACE, CHAIN, SET):
            for item in self.made(kind, one):
                if (kind.name, name_of(item)) not in kept:
                    self.state.delete(kind, item)
        self._put(one, "")

    # What it refers to

    def _referred(self, one: Json) -> Iterator[tuple[Kind, str]]:
        for kind, field in FIELDS.items():
            if field in one["spec"]["dpus"]:
                yield kind, one["spec"]["dpus"][field]
        yield FLAVOR, one["spec"]["dpus"]["flavor"]
        for service in one["spec"]["services"].values():
            yield TEMPLATE, service["serviceTemplate"]
            yield CONFIGURATION, service["serviceConfiguration"]

    def _missing(self, one: Json) -> str:
        for kind, name in self._referred(one):
            found = self.state.find(kind, name)
            if found is None:
                return f"{kind.name} {name} not found"
            if kind in FIELDS and self.state.generation.devices and (found.get("status") or {}).get("phase") != READY:
                return f"{kind.name} is not ready yet"
        for name, of in one["spec"]["services"].items():
            for kind, key in ((TEMPLATE, "serviceTemplate"), (CONFIGURATION, "serviceConfiguration")):
                if (self.state.find(kind, of[key]) or {})["spec"]["deploymentServiceName"] != name:
                    return f"service in {kind.name} {of[key]} doesn't match requested service in DPUDeployment"
        return ""

    def _mark(self, one: Json) -> None:
        """Keep what is referred to from being deleted, and let go what is not any more."""
        mine = {(kind.name, name) for kind, name in self._referred(one)}
        for kind in REFERRED:
            for item in self.state.all(kind):
                if (kind.name, name_of(item)) in mine:
                    self._change(kind, item, add=name_of(one))
                elif labels_of(item).get(CONSUMED_BY) == name_of(one):
                    self._change(kind, item, add="")

    def _change(self, kind: Kind, item: Json, *, add: str) -> None:
        ours = FINALIZERS[DEPLOYMENT.name]

        def change(body: Json) -> None:
            meta = body["metadata"]
            finalizers = [found for found in meta.get("finalizers") or [] if found != ours]
            meta["finalizers"] = [*finalizers, ours] if add else finalizers
            labels = {key: value for key, value in labels_of(body).items() if key != CONSUMED_BY}
            meta["labels"] = {**labels, CONSUMED_BY: add} if add else labels

        marked = ours in (item["metadata"].get("finalizers") or [])
        if add and marked and labels_of(item).get(CONSUMED_BY):  # several deployments of one image take turns in DPF
            return
        if is_deleting(item) and add and not marked:
            return
        self.state.change(kind, item, change)
        self.state.violations.forget(item)

    # What it makes

    def made(self, kind: Kind, one: Json) -> list[Json]:
        """Return the objects of a kind that were made of a deployment."""
        return [item for item in self.state.all(kind) if labels_of(item).get(OWNED_BY) == _parent(one)]

    def _services(self, one: Json, node: dict[str, str], ids: dict[str, str]) -> Iterator[tuple[Kind, str, Json]]:
        for name, of in sorted(one["spec"]["services"].items()):
            template = self.state.find(TEMPLATE, of["serviceTemplate"]) or {}
            given = self.state.find(CONFIGURATION, of["serviceConfiguration"]) or {}
            template, given = template["spec"], given["spec"]
            digest = hashlib.sha256(json.dumps([template, given], sort_keys=True).encode()).hexdigest()
            object_name, service_id, version = self._names(one, name, digest)
            ids[name] = service_id
            node[f"svc.dpu.nvidia.com/dpuservice-{name}-version"] = version
            terms = _terms({f"svc.dpu.nvidia.com/dpuservice-{name}-version": version, OWNED_BY: _parent(one)})
            interfaces = []
            for interface in given.get("interfaces") or []:
                made = f"{name_of(one)}-{name}-{interface['name'].replace('_', '-')}"
                interfaces.append(made)
                yield INTERFACE, made, _interface(service_id, interface, terms)
            configured = given.get("serviceConfiguration") or {}
            pods = configured.get("serviceDaemonSet") or {}
            values = {**((configured.get("helmChart") or {}).get("values") or {}),
                      **(template["helmChart"].get("values") or {})}  # fmt: skip
            spec: Json = {
                "helmChart": {"source": template["helmChart"]["source"], **({"values": values} if values else {})},
                "serviceID": service_id,
                "serviceDaemonSet": {**pods, "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": terms}]}},
                **({"interfaces": interfaces} if interfaces else {}),
            }
            yield SERVICE, object_name, {"metadata": {"annotations": {VERSION: digest[:10]}}, "spec": spec}

    def _names(self, one: Json, service: str, digest: str) -> tuple[str, str, str]:
        """Return name and id of a DPUService, and the value of its label at nodes."""
        if not self.state.generation.devices:
            name = f"{name_of(one)}-{service}"
            return name, f"dpudeployment_{name_of(one)}_{service}", "placeholder-for-version"
        # Revisions that need no node effect change the DPUService in place.
        there = [name_of(item) for item in self.made(SERVICE, one) if name_of(item)[:-6] == service]
        name = there[0] if there else f"{service}-{digest[:5]}"
        return name, f"{name_of(one)}_{service}_{digest[:10]}", name

    def _chain(self, one: Json, node: dict[str, str], ids: dict[str, str]) -> Iterator[tuple[Kind, str, Json]]:
        given = one["spec"].get("serviceChains")
        if not given:
            return
        node[CHAIN_VERSION] = name_of(one)
        switches = [
            {"ports": [_port(port, ids) for port in switch["ports"]]}
            for switch in (given if isinstance(given, list) else given["switches"])
        ]
        terms = _terms({CHAIN_VERSION: name_of(one), OWNED_BY: _parent(one)})
        template = {"spec": {"switches": switches}}
        spec = {"nodeSelector": {"matchExpressions": terms}, "template": template}
        yield CHAIN, name_of(one), {"spec": {"template": {"spec": spec}}}

    def _set(self, one: Json, option: Json, node: dict[str, str]) -> Json:
        dpus = one["spec"]["dpus"]
        selectors = ("nodeSelector", "dpuSelector", "dpuNodeSelector", "dpuDeviceSelector")
        image = {field: {"name": dpus[field]} for field in FIELDS.values() if field in dpus}
        template: Json = {**image, "dpuFlavor": dpus["flavor"], "cluster": {"nodeLabels": node}}
        if "nodeEffect" in dpus:
            template["nodeEffect"] = dpus["nodeEffect"]
        return {
            "spec": {
                **{key: option[key] for key in selectors if key in option},
                "strategy": dpus.get("dpuSetStrategy", {"type": "RollingUpdate"}),
                "dpuTemplate": {"spec": template, "annotations": option.get("dpuAnnotations") or {}},
            }
        }

    def _ensure(self, kind: Kind, name: str, body: Json, one: Json) -> None:
        """Write an object by server-side apply, which leaves what others own, and defaults that nobody has set."""
        found = self.state.find(kind, name)
        if found is not None and is_deleting(found):
            return
        meta = {
            **body.get("metadata", {}), "name": name, "labels": {OWNED_BY: _parent(one)},
            "ownerReferences": [owner_reference(one)],
        }  # fmt: skip
        self.state.apply(kind, {**body, "metadata": meta}, known=found)

    # Status and deletion

    def _put(self, one: Json, problem: str) -> None:
        generation = one["metadata"]["generation"]
        unready = [
            name_of(item) for kind in (SERVICE, CHAIN, INTERFACE) for item in self.made(kind, one)
            if not conditions.is_true(item, READY)
        ]  # fmt: skip

        def put(status: Json) -> None:
            if self.state.has_field(DEPLOYMENT, "status", "observedGeneration"):
                status["observedGeneration"] = generation
            reason = "Pending" if problem else "Success"
            conditions.put(status, "PrerequisitesReady", not problem, reason, problem, generation)
            said = problem or (f"Objects not ready: {','.join(unready)}" if unready else "")
            conditions.put(status, READY, not said, "Pending" if said else "Success", said, generation)

        self.state.change_status(DEPLOYMENT, one, put)

    def _delete(self, one: Json) -> None:
        """Remove services before DPUSets: controllers on the DPUs must still be able to remove their finalizers."""
        for kinds in ((CHAIN, INTERFACE, SERVICE), (SET,)):
            there = [(kind, item) for kind in kinds for item in self.made(kind, one)]
            for kind, item in there:
                self.state.delete(kind, item)
            if there:
                self._put(one, "Objects are being deleted")
                return
        if self.made(DPU, one) and self.state.generation.devices:
            return
        for kind in REFERRED:
            for item in self.state.all(kind):
                if labels_of(item).get(CONSUMED_BY) == name_of(one):
                    self._change(kind, item, add="")
        self.state.drop_finalizer(DEPLOYMENT, one)


def _parent(one: Json) -> str:
    return f"{one['metadata']['namespace']}_{name_of(one)}"


def _terms(labels: dict[str, str]) -> list[Json]:
    return [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()]


def _interface(service_id: str, interface: Json, terms: list[Json]) -> Json:
    service = {"serviceID": service_id, "network": interface["network"], "interfaceName": interface["name"]}
    template = {
        "metadata": {"labels": {SERVICE_ID: service_id, INTERFACE_NAME: interface["name"]}},
        "spec": {"interfaceType": "service", "service": service},
    }
    return {"spec": {"template": {"spec": {"nodeSelector": {"matchExpressions": terms}, "template": template}}}}


def _port(port: Json, ids: dict[str, str]) -> Json:
    if "serviceInterface" in port:
        return {"serviceInterface": port["serviceInterface"]}
    asked = port["service"]
    return {"serviceInterface": {"matchLabels": {SERVICE_ID: ids[asked["name"]], INTERFACE_NAME: asked["interface"]}}}
