"""The controller of DPUServices, with Argo CD, the scheduler and the kubelets of the DPU clusters.

In every cluster that a service selects, each Node that its selector matches gets one pod, with the labels and
annotations that a chart for DPF takes from `serviceDaemonSet`. A chart with the value `hook` has a finished hook, too.
"""

from __future__ import annotations

import hashlib
import json

from kubernetes.client.exceptions import ApiException

from tests.dpus import conditions, selectors
from tests.dpus.api import (
    CLUSTER,
    INTERFACE,
    NAMESPACE,
    NODE,
    POD,
    SERVICE,
    Api,
    Json,
    annotations_of,
    is_deleting,
    labels_of,
    name_of,
    uid_of,
)
from tests.dpus.generations import READY
from tests.dpus.state import State
from tests.dpus.world import WORLD

PULLING, STARTING = "Pulling Chart", "Starting Pods"
"""Phases in which a test can keep a service, such as by `Faults.stick(PULLING, name, kind="DPUService")`."""
SERVICE_ID = "svc.dpu.nvidia.com/service"
RELEASE = "dpus.test/release"
"""The label of the pods of one DPUService: Argo CD knows what belongs to its application, whatever its id is now."""
CONDITIONS = ("ApplicationPrereqsReconciled", "ApplicationsReconciled")
INTERFACES_RECONCILED = "DPUServiceInterfaceReconciled"
CONSUMED_BY = "dpu.nvidia.com/consumed-by"
"""The annotation of a DPUServiceInterface with the DPUService that uses it."""
NETWORKS = "k8s.v1.cni.cncf.io/networks"
PULL_ERROR = "failed to pull chart: unexpected status code 404"
CRASH = {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting failed container"}


class Services:
    """Pods of services, replaced after a change, and removed before the finalizer is."""

    def __init__(self, state: State) -> None:
        self.state = state

    def run(self) -> None:
        for service in self.state.all(SERVICE):
            self._step(self.state.add_finalizer(SERVICE, service))

    def _step(self, service: Json) -> None:
        if is_deleting(service):
            self._delete(service)
        elif self.state.faults.is_stuck(SERVICE.name, PULLING, name_of(service)):
            self._put(service, PULL_ERROR)
        elif problem := self._consume(service):
            self._put(service, "", f"Unable to reconcile interfaces for {problem}")
        else:
            clusters = selected(self.state, service["spec"].get("dpuClusterSelector"))
            ready = all([self._install(api, service, name) for name, api in clusters])
            self._put(service, "" if ready else "The following applications are not ready")

    def _consume(self, service: Json) -> str:
        """Mark the interfaces of a service as its own. Returns why one of them cannot be used."""
        spec = service["spec"]
        for name in spec.get("interfaces") or []:
            found = self.state.find(INTERFACE, name)
            if found is None:
                return f'dpuserviceinterfaces.svc.dpu.nvidia.com "{name}" not found'
            made = found["spec"]["template"]["spec"]["template"]["spec"]
            if made["interfaceType"] != "service":
                return f"wrong service definition in DPUServiceInterface {name}"
            if made["service"]["serviceID"] != spec["serviceID"]:
                return f"conflicting ServiceID in DPUServiceInterface {name}"
            user = annotations_of(found).get(CONSUMED_BY, name_of(service))
            if user != name_of(service):
                return f"dpuServiceInterface {name} is in use by another DPUService"

            def mark(body: Json) -> None:
                body["metadata"]["annotations"] = {**annotations_of(body), CONSUMED_BY: name_of(service)}

            if not is_deleting(found):
                self.state.change(INTERFACE, found, mark)
        return ""

    # Pods

    def _install(self, api: Api, service: Json, cluster: str) -> bool:
        """Bring the pods of a service in a cluster up to date. Returns whether all of them are, and ready."""
        wanted = {name_of(pod): pod for pod in self._wanted(api, service)}
        there = {name_of(pod): pod for pod in self.pods(api, service)}
        for name in there.keys() - wanted.keys():
            self.state.writes += 1
            api.delete(POD, name)
        for name in wanted.keys() - there.keys():
            self.state.writes += 1
            ensure_namespace(api)
            there[name] = api.create(POD, wanted[name])
        stuck = self.state.faults.is_stuck(SERVICE.name, STARTING, name_of(service))
        return all([self._started(api, there[name], stuck) for name in wanted])

    def pods(self, api: Api, service: Json) -> list[Json]:
        """Return the pods of a service in a cluster."""
        return api.all(POD, f"{RELEASE}={uid_of(service)}")

    def _wanted(self, api: Api, service: Json) -> list[Json]:
        given = service["spec"].get("serviceDaemonSet") or {}
        values = service["spec"]["helmChart"].get("values") or {}
        terms = (given.get("nodeSelector") or {}).get("nodeSelectorTerms")
        nodes = [
            node
            for node in api.all(NODE, f"{WORLD}={self.state.world.name}")
            if terms is None or any(selectors.matches(term, labels_of(node)) for term in terms)
        ]
        if names := service["spec"].get("interfaces"):
            given = {**given, "annotations": {**(given.get("annotations") or {}), NETWORKS: self._networks(names)}}
        made = [_pod(service, given, name_of(node)) for node in nodes]
        hooks = [_pod(service, given, name_of(node), hook=True) for node in nodes if values.get("hook")]
        return made + hooks

    def _networks(self, names: list[str]) -> str:
        """Return the networks of the pods of a service."""
        found = (self.state.find(INTERFACE, name) for name in names)
        made = [one["spec"]["template"]["spec"]["template"]["spec"]["service"] for one in found if one]
        return json.dumps([{"name": one["network"], "interface": one["interfaceName"]} for one in made])

    def _started(self, api: Api, pod: Json, stuck: bool) -> bool:
        status = _finished() if "hook" in labels_of(pod) else _waiting() if stuck else _running()

        def report(body: Json) -> None:
            if not _is_like(body.get("status") or {}, status):
                body["status"] = status

        after = api.change(POD, name_of(pod), report, status=True, known=pod)
        if after and after["metadata"]["resourceVersion"] != pod["metadata"]["resourceVersion"]:
            self.state.writes += 1
        return not stuck

    def _delete(self, service: Json) -> None:
        if self.state.faults.keeps_finalizer(SERVICE.name, name_of(service)):
            return
        for cluster in self.state.all(CLUSTER):
            secret = self.state.secret(cluster["spec"].get("kubeconfig") or "")
            api = self.state.pod_links.open(secret)
            for pod in self.pods(api, service) if api else []:
                self.state.writes += 1
                api.delete(POD, name_of(pod))  # type: ignore[union-attr]
        self.state.drop_finalizer(SERVICE, service)

    # The status

    def _put(self, service: Json, problem: str, of_interfaces: str = "") -> None:
        generation = service["metadata"]["generation"]

        def put(status: Json) -> None:
            status["observedGeneration"] = generation
            for of_type in CONDITIONS:
                conditions.put(status, of_type, True, "Success", generation=generation)
            reason = "Error" if of_interfaces else "Success"
            conditions.put(status, INTERFACES_RECONCILED, not of_interfaces, reason, of_interfaces, generation)
            for of_type in ("ApplicationsReady", READY):
                wrong = problem or of_interfaces
                conditions.put(status, of_type, not wrong, "Pending" if wrong else "Success", problem, generation)

        self.state.change_status(SERVICE, service, put)


def _pod(service: Json, given: Json, node: str, *, hook: bool = False) -> Json:
    """Return the pod of a service on a node. Another version of it has another name."""
    release = service["spec"]["helmChart"]["source"].get("releaseName") or name_of(service)
    labels = {**(given.get("labels") or {}), SERVICE_ID: _service_id(service), RELEASE: uid_of(service)} | (
        {"hook": "yes"} if hook else {}
    )
    metadata = {"labels": labels, "annotations": given.get("annotations") or {}}
    digest = hashlib.sha256(json.dumps([metadata, node], sort_keys=True).encode()).hexdigest()[:8]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "hook", "uid": uid_of(service)}
    metadata |= {"name": f"{release}-{digest}"} | ({"ownerReferences": [owner]} if hook else {})
    return {
        "metadata": metadata,
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "registry.example.org/main:1"}]},
    }


def _service_id(service: Json) -> str:
    return service["spec"].get("serviceID") or uid_of(service)[:10]


def _running() -> Json:
    return _status("Running", True, {"running": {}})


def _waiting() -> Json:
    return _status("Running", False, {"waiting": CRASH})


def _finished() -> Json:
    return _status("Succeeded", False, {"terminated": {"exitCode": 0, "reason": "Completed"}})


def _status(phase: str, ready: bool, state: Json) -> Json:
    container = {
        "name": "main", "image": "registry.example.org/main:1", "imageID": "", "ready": ready, "restartCount": 0,
        "state": state,
    }  # fmt: skip
    return {
        "phase": phase,
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        "containerStatuses": [container],
    }


def _is_like(status: Json, wanted: Json) -> bool:
    """Return whether a pod reports a status already."""
    return status.get("phase") == wanted["phase"] and _ready(status) == _ready(wanted)


def _ready(status: Json) -> list[bool]:
    return [one["ready"] for one in status.get("containerStatuses") or []]


def selected(state: State, selector: Json | None) -> list[tuple[str, Api]]:
    """Return the ready clusters that a selector selects, and access to each."""
    found = []
    for cluster in state.all(CLUSTER):
        secret = state.secret(cluster["spec"].get("kubeconfig") or "")
        ready = (cluster.get("status") or {}).get("phase") == READY
        if selectors.matches(selector, labels_of(cluster)) and ready and (api := state.pod_links.open(secret)):
            found.append((name_of(cluster), api))
    return found


def ensure_namespace(api: Api) -> None:
    """Create the namespace of an API, if it does not exist."""
    try:
        api.create(NAMESPACE, {"metadata": {"name": api.namespace}})
    except ApiException as error:
        if error.status != 409:
            raise
