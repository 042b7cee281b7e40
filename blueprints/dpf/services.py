"""The DPUServices of a lease: their manifests, and what their objects and pods say. Pure.

DPF installs the chart of a DPUService by Argo CD in its DPU clusters, and hands it the labels, annotations and node
selector of `serviceDaemonSet`, which a chart for DPF puts on its pods (doca-platform,
`internal/dpuservice/controllers/dpuservice_controller.go`). By these labels the pods of a service are found, and by an
annotation those of its last version.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from blueprints.answers import Json
from blueprints.kube import Dialect, Object, label_value, object_name
from drydock.core.errors import InvalidRequest
from interfaces.dpu_services import Condition, Deployed, Pod, Service

KIND = "DPUService"
LEASE = "drydock-lease"
"""The label of a DPUService and of its pods with the key of the lease."""
NAME = "drydock-service"
"""The label of a DPUService and of its pods with the name of the service."""
DEFINITION = "drydock-service-definition"
"""The annotation of a DPUService with the service as JSON: an API server stores the Helm value 1.0 as 1."""
VERSION = "drydock-service-version"
"""The annotation of the pods with a hash of the definition that they were made from."""
_RELEASE = 53
"""Characters in the name of a Helm release (https://helm.sh/docs/chart_template_guide/builtin_objects/)."""
_PORTS, _CLUSTERS, _PRIVILEGED = "spec.configPorts", "spec.dpuClusterSelector", "spec.security.privileged"
_INTERFACES = "spec.interfaces"
_LONGEST = 500


def name_of(lease: str, service: str) -> str:
    """Return the name of the DPUService of a service, which is also that of its Helm release."""
    return object_name(f"{lease}-{service}", _RELEASE)


def service_id(lease: str, service: str) -> str:
    """Return the id by which interfaces in the DPU cluster name the pods of a service."""
    return name_of(lease, service)


def interface_name(lease: str, service: str, interface: str) -> str:
    """Return the name of the DPUServiceInterface of a service. It is written with the chain that connects it."""
    return object_name(f"{lease}-{service}-{interface}")


def labels_of(lease: str) -> dict[str, str]:
    """Return the labels of all DPUServices of a lease, beside the proof of its resource."""
    return {LEASE: label_value(lease)}


def check_expressible(dialect: Dialect, service: Service) -> None:
    """Raise InvalidRequest, with the field, if servers of this dialect cannot express the service."""
    if service.ports and not dialect.has(KIND, _PORTS):
        raise InvalidRequest("This version of DPF cannot expose ports of a service.", field="ports")
    if service.interfaces and not dialect.has(KIND, _INTERFACES):
        raise InvalidRequest("This version of DPF cannot connect interfaces of a service.", field="interfaces")


def manifest(
    dialect: Dialect, service: Service, *, lease: str, namespace: str, proof: Mapping[str, str],
    cluster: Mapping[str, str],
) -> Json:  # fmt: skip
    """Return the DPUService of a service, whose pods run on the node with the labels `proof` and on no other.

    `cluster` has the labels of the DPU cluster. Servers that can select clusters by labels then install nothing in
    clusters without them. Raises InvalidRequest.
    """
    check_expressible(dialect, service)
    found = dialect.type(KIND).manifest(
        name_of(lease, service.name), namespace, spec=_spec(dialect, service, lease, proof, cluster)
    )
    found["metadata"]["labels"] = {**proof, **labels_of(lease), NAME: service.name}
    found["metadata"]["annotations"] = {DEFINITION: text_of(service)}
    return found


def _spec(dialect: Dialect, service: Service, lease: str, proof: Mapping[str, str], cluster: Mapping[str, str]) -> Json:
    source = {
        "repoURL": service.chart.repository, "chart": service.chart.name, "version": service.chart.version,
        "releaseName": name_of(lease, service.name),
    }  # fmt: skip
    chart: Json = {"source": source} | ({"values": dict(service.values)} if service.values else {})
    node = [{"key": key, "operator": "In", "values": [value]} for key, value in sorted(proof.items())]
    pods = {
        "labels": {**service.labels, **labels_of(lease), NAME: service.name},
        "annotations": {VERSION: version_of(service)},
        "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": node}]},
    }
    made: Json = {"helmChart": chart, "serviceDaemonSet": pods}
    if service.interfaces:
        made["serviceID"] = service_id(lease, service.name)
        made["interfaces"] = [interface_name(lease, service.name, one) for one in service.interfaces]
    if service.ports:
        ports = [{"name": one.name, "port": one.port, "protocol": one.protocol} for one in service.ports]
        made["configPorts"] = {"serviceType": "NodePort", "ports": ports}
    if cluster and dialect.has(KIND, _CLUSTERS):
        made["dpuClusterSelector"] = {"matchLabels": dict(cluster)}
    if dialect.has(KIND, _PRIVILEGED):
        made["security"] = {"privileged": False}
    return made


def version_of(service: Service) -> str:
    """Return a hash of a definition, with which its pods are marked."""
    return hashlib.sha256(text_of(service).encode()).hexdigest()[:16]


def text_of(service: Service) -> str:
    """Return a definition as text, always the same for equal ones."""
    return json.dumps(service.to_json(), sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def version(found: Object) -> str:
    """Return what identifies a DPUService in its present definition. Its status does not change it."""
    return f"{found.uid}/{found.generation}"


def deployed(
    dialect: Dialect, found: Object, *, lease: str, proof: Mapping[str, str], pods: Sequence[Object] = (),
    unread: str = "",
) -> Deployed | None:  # fmt: skip
    """Return a DPUService of a lease with its pods; None if its definition cannot be understood."""
    service = definition(found)
    if service is None:
        return None
    conditions = [
        Condition(type=one.type, status=one.status, reason=one.reason, message=one.message[:_LONGEST])
        for one in found.conditions
    ]
    intact = _same(found.spec, _spec(dialect, service, lease, proof, {}))
    if not intact:
        said = "Its object is not as Drydock wrote it. Apply another version of the service, or remove it."
        conditions.insert(0, Condition(type="Unchanged", status="False", reason="ChangedByOthers", message=said))
    kept = [one for one in unfinished(pods) if one.labels.get(NAME) == service.name]
    latest = all(one.annotations.get(VERSION) == version_of(service) for one in kept)
    return Deployed(
        service=service, version=version(found), current=found.observed and intact and latest, removing=found.deleting,
        conditions=tuple(conditions), pods=tuple(pod_of(one) for one in kept), unread=unread,
    )  # fmt: skip


def definition(found: Object) -> Service | None:
    """Return the service that a DPUService was written for; None if it is not one of ours, or was garbled."""
    try:
        written = json.loads(found.annotations.get(DEFINITION, ""))
        service = Service.from_json(written if isinstance(written, dict) else {})
    except (InvalidRequest, ValueError, AttributeError, RecursionError):
        return None
    return service if found.labels.get(NAME) == service.name else None


def _same(spec: Json, wanted: Json) -> bool:
    """Return whether a spec is as wanted. The labels of a cluster may have changed since it was written."""
    return {key: value for key, value in spec.items() if key != "dpuClusterSelector"} == wanted


def unfinished(pods: Sequence[Object]) -> Iterator[Object]:
    """Yield the pods that count: not those that end, and not those of hooks and other jobs that have succeeded."""
    done = {job for one in pods if one.status.get("phase") == "Succeeded" for job in _jobs(one)}
    for one in pods:
        if not one.deleting and one.status.get("phase") != "Succeeded" and not _jobs(one) & done:
            yield one


def _jobs(pod: Object) -> set[str]:
    owners = pod.body["metadata"].get("ownerReferences")
    return {
        str(one.get("uid"))
        for one in (owners if isinstance(owners, list) else ())
        if isinstance(one, dict) and one.get("kind") == "Job"
    }


def pod_of(found: Object) -> Pod:
    """Return a pod, with the reason why it is not ready."""
    containers = list(_containers(found.status))
    ready = found.condition("Ready")
    reason, message = next(filter(None, map(_why, containers)), ("", ""))
    if not reason:
        wrong = next((one for one in found.conditions if one.status == "False" and one.reason), None)
        reason, message = (wrong.reason, wrong.message) if wrong is not None else ("", "")
    return Pod(
        name=found.name, phase=str(found.status.get("phase") or "Pending")[:63], ready=ready is not None and ready.true,
        reason=reason[:_LONGEST], message=message[:_LONGEST],
        restarts=sum(n for one in containers if type(n := one.get("restartCount")) is int),
    )  # fmt: skip


def _containers(status: Json) -> Iterator[Json]:
    for name in ("initContainerStatuses", "containerStatuses"):
        found = status.get(name)
        yield from (one for one in (found[:100] if isinstance(found, list) else ()) if isinstance(one, dict))


def _why(container: Json) -> tuple[str, str] | None:
    """Return reason and message of a container that waits, or that has ended with an error."""
    state: Any = container.get("state")
    for name in ("waiting", "terminated"):
        said = state.get(name) if isinstance(state, dict) else None
        if isinstance(said, dict) and said.get("reason") not in (None, "", "Completed"):
            return str(said["reason"]), str(said.get("message") or "")
    return None
