"""The DPUDeployment of a DPU, with a DPUServiceTemplate and a DPUServiceConfiguration for each of its services. Pure.

DPF makes a DPUSet, DPUServices, DPUServiceInterfaces and a DPUServiceChain of a DPUDeployment. It copies none of its
labels to them: they have one label with its name, and it as their owner (doca-platform,
`internal/dpuservice/controllers/dpudeployment_controller.go`). The DPUSet copies its own labels to its DPUs. So a
DPUDeployment is written with selectors that match nothing, the DPUSet gets our labels, and only then it selects a card.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from blueprints.answers import Json
from blueprints.dpf import manifests, services
from blueprints.dpf.images import Image
from blueprints.kube import Dialect, Object, at, object_name
from interfaces.dpu_services import Condition, Deployed, Service

KIND, TEMPLATE, CONFIGURATION = "DPUDeployment", "DPUServiceTemplate", "DPUServiceConfiguration"
KINDS = (KIND, TEMPLATE, CONFIGURATION)
"""The kinds of objects that Drydock writes for a deployment."""
CHILDREN = ("DPUServiceChain", "DPUServiceInterface", services.KIND, "DPUSet", "DPU")
"""The kinds of objects that DPF makes of a deployment."""
OWNED_BY = "svc.dpu.nvidia.com/owned-by-dpudeployment"
"""The label of all that DPF makes of a DPUDeployment. Its value has the namespace, so that is limited as well."""
MOST_NAMESPACE = 42
"""Characters in the name of a namespace with deployments: `OWNED_BY` has it, and a name of 20 characters."""
OF = "drydock-deployment"
"""The label of the pods of services of a deployment, with its name."""
NOTHING = "drydock-selects-nothing"
"""A label that nothing has, so that a selector with it matches nothing."""
SUFFIX = "card"
_SETS = "spec.dpus.dpuSets[]"
_RELEASE = 53


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The services of a deployment, and the chains that connect their interfaces."""

    services: tuple[Service, ...]
    chains: tuple[tuple[Json, ...], ...] = ()
    """Switches, each with its ports: `{"service": ..., "interface": ...}` or `{"labels": ...}`."""
    network: str = "mybrsfc"
    """The network of the interfaces of services."""
    resources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Service -> what its pods need of the card, which DPF compares with the flavor."""


def parent(namespace: str, name: str) -> dict[str, str]:
    """Return the label of the objects that DPF makes of a DPUDeployment."""
    return {OWNED_BY: f"{namespace}_{name}"}


def set_name(name: str) -> str:
    """Return the name of the DPUSet that DPF makes of a DPUDeployment."""
    return f"{name}-{SUFFIX}"


def part_name(key: str, service: str) -> str:
    """Return the name of the DPUServiceTemplate and the DPUServiceConfiguration of a service."""
    return object_name(f"{key}-{service}")


def parts(
    dialect: Dialect, key: str, name: str, namespace: str, layout: Layout, proof: Mapping[str, str]
) -> list[Json]:
    """Return the templates and configurations of the services of the DPUDeployment `name`, for the DPU with a key."""
    found = []
    for one in layout.services:
        for kind, spec in (
            (TEMPLATE, _template(dialect, key, one, layout)),
            (CONFIGURATION, _configuration(dialect, name, one, layout, proof)),
        ):
            made = dialect.type(kind).manifest(part_name(key, one.name), namespace, spec=spec)
            made["metadata"]["labels"] = {services.NAME: one.name}
            made["metadata"]["annotations"] = {services.DEFINITION: services.text_of(one)}
            found.append(made)
    return found


def _template(dialect: Dialect, key: str, service: Service, layout: Layout) -> Json:
    source = {
        "repoURL": service.chart.repository, "chart": service.chart.name, "version": service.chart.version,
        "releaseName": object_name(f"{key}-{service.name}", _RELEASE),
    }  # fmt: skip
    made: Json = {"deploymentServiceName": service.name, "helmChart": {"source": source}}
    if needed := layout.resources.get(service.name):
        made["resourceRequirements"] = dict(needed)
    if dialect.has(TEMPLATE, "spec.security.privileged"):
        made["security"] = {"privileged": False}
    return made


def _configuration(dialect: Dialect, name: str, service: Service, layout: Layout, proof: Mapping[str, str]) -> Json:
    pods = {
        "labels": {**service.labels, **proof, services.NAME: service.name, OF: name},
        "annotations": {services.VERSION: services.version_of(service)},
    }
    given: Json = {"serviceDaemonSet": pods} | (
        {"helmChart": {"values": dict(service.values)}} if service.values else {}
    )
    made: Json = {"deploymentServiceName": service.name, "serviceConfiguration": given}
    if service.interfaces:
        made["interfaces"] = [{"name": one, "network": layout.network} for one in service.interfaces]
    # Otherwise DPF would take the host out of service again for a new version of a service.
    if dialect.has(CONFIGURATION, "spec.upgradePolicy.applyNodeEffect"):
        made["upgradePolicy"] = {"applyNodeEffect": False}
    return made


def deployment(
    dialect: Dialect, name: str, namespace: str, card: Mapping[str, Any], *, key: str, image: Image, flavor: str,
    layout: Layout, selects: bool,
) -> Json:  # fmt: skip
    """Return the DPUDeployment of a card. Unless it `selects`, its DPUSet selects nothing."""
    dpus: Json = {image.field: image.name, "flavor": flavor, "dpuSets": [_set(dialect, card, selects)]}
    if dialect.has(KIND, "spec.dpus.nodeEffect"):
        holds = dialect.has(KIND, "spec.dpus.nodeEffect.hold")
        dpus["nodeEffect"] = dict(manifests.HELD if holds else manifests.NO_EFFECT)
    if dialect.has(KIND, "spec.dpus.dpuSetStrategy"):
        dpus["dpuSetStrategy"] = {"type": "OnDelete"}
    named = {one.name: part_name(key, one.name) for one in layout.services}
    spec: Json = {
        "dpus": dpus,
        "services": {one: {"serviceTemplate": of, "serviceConfiguration": of} for one, of in named.items()},
    }
    if layout.chains:
        spec["serviceChains"] = _chains(dialect, layout.chains)
    return dialect.type(KIND).manifest(name, namespace, spec=spec)


def _set(dialect: Dialect, card: Mapping[str, Any], selects: bool) -> Json:
    if not card.get("card_labels"):
        raise ValueError("a DPUSet without a selector selects all nodes")
    nothing = {} if selects else {NOTHING: "true"}
    made: Json = {"nameSuffix": SUFFIX}
    if dialect.has(KIND, f"{_SETS}.dpuDeviceSelector"):
        made["dpuDeviceSelector"] = {"matchLabels": {**card["card_labels"], **nothing}}
        if card.get("node_labels"):
            made["dpuNodeSelector"] = {"matchLabels": dict(card["node_labels"])}
    else:
        made["nodeSelector"] = {"matchLabels": {**card["node_labels"], **nothing}}
        made["dpuSelector"] = dict(card["card_labels"])
    return made


def _chains(dialect: Dialect, chains: Sequence[Sequence[Json]]) -> Any:
    switches = [{"ports": [_port(one) for one in ports]} for ports in chains]
    if dialect.field_type(KIND, "spec.serviceChains") == "array":
        return switches
    policy = dialect.has(KIND, "spec.serviceChains.upgradePolicy.applyNodeEffect")
    return {"switches": switches} | ({"upgradePolicy": {"applyNodeEffect": False}} if policy else {})


def _port(port: Json) -> Json:
    if port.get("service"):
        return {"service": {"name": port["service"], "interface": port["interface"]}}
    return {"serviceInterface": {"matchLabels": dict(port["labels"])}}


def is_made_of(found: Object, deployment: Object) -> bool:
    """Return whether DPF has made an object of this very DPUDeployment."""
    owners = found.body["metadata"].get("ownerReferences")
    uids = {one.get("uid") for one in (owners if isinstance(owners, list) else ()) if isinstance(one, dict)}
    return deployment.uid in uids


def amendment(dialect: Dialect, found: Object, labels: Mapping[str, str], node: Mapping[str, str]) -> Json:
    """Return what the DPUSet of a deployment lacks, as a merge patch; empty if nothing.

    That is our labels, those of the node of the DPU, and, on servers whose DPUDeployments cannot say so, that DPF
    neither drains nor reboots the host.
    """
    template: Json = {}
    if missing := _missing(at(found.spec, "dpuTemplate.spec.cluster.nodeLabels"), node):
        template["cluster"] = {"nodeLabels": missing}
    if not dialect.has(KIND, "spec.dpus.nodeEffect"):
        effect = at(found.spec, "dpuTemplate.spec.nodeEffect") or {}
        if effect != manifests.NO_EFFECT:
            template["nodeEffect"] = {**dict.fromkeys(effect), **manifests.NO_EFFECT}
        reboots = dialect.has("DPUSet", "spec.dpuTemplate.spec.automaticNodeReboot")
        if reboots and at(found.spec, "dpuTemplate.spec.automaticNodeReboot") is not False:
            template["automaticNodeReboot"] = False
    made: Json = {"spec": {"dpuTemplate": {"spec": template}}} if template else {}
    ours = _missing(dict(found.labels), labels)
    return made | ({"metadata": {"labels": ours}} if ours else {})


def _missing(there: Any, wanted: Mapping[str, str]) -> dict[str, str]:
    known = there if isinstance(there, dict) else {}
    return {key: value for key, value in wanted.items() if known.get(key) != value}


def deployed(template: Object, made: Sequence[Object], pods: Sequence[Object], unread: str = "") -> Deployed | None:
    """Return a service of a deployment: what its template defines, and what DPF has made of it.

    None if the template is not one of ours. Of several revisions, the one of the present definition counts.
    """
    service = services.definition(template)
    if service is None:
        return None
    version = services.version_of(service)
    mine = [one for one in made if at(one.spec, "serviceDaemonSet.labels." + services.NAME) == service.name]
    found = next((one for one in mine if _version(one) == version), None)
    conditions = [] if found is None else [
        Condition(type=one.type, status=one.status, reason=one.reason, message=one.message) for one in found.conditions
    ]  # fmt: skip
    if not mine:
        conditions = [Condition(type="Ready", status="False", reason="Pending", message="DPF has made no DPUService.")]
    elif found is not None and not _has_chart(found, template):
        said = "Its DPUService has another chart than its template."
        conditions.insert(0, Condition(type="Unchanged", status="False", reason="ChangedByOthers", message=said))
        found = None
    kept = [one for one in services.unfinished(pods) if one.labels.get(services.NAME) == service.name]
    latest = all(one.annotations.get(services.VERSION) == version for one in kept)
    return Deployed(
        service=service, version=f"{template.uid}/{template.generation}", removing=template.deleting,
        current=found is not None and found.observed and latest, conditions=tuple(conditions),
        pods=tuple(services.pod_of(one) for one in kept), unread=unread, of_blueprint=True,
    )  # fmt: skip


def _version(found: Object) -> Any:
    return at(found.spec, "serviceDaemonSet.annotations." + services.VERSION)


def _has_chart(found: Object, template: Object) -> bool:
    wanted, there = at(template.spec, "helmChart.source") or {}, at(found.spec, "helmChart.source") or {}
    return all(there.get(key) == value for key, value in wanted.items())
