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
    NAMESPACE,
    NODE,
    POD,
    SERVICE,
    Api,
    Json,
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
CONDITIONS = ("ApplicationPrereqsReconciled", "ApplicationsReconciled")
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
        else:
            ready = all([self._install(api, service, name) for name, api in self._clusters(service)])
            self._put(service, "" if ready else "The following applications are not ready")

    def _clusters(self, service: Json) -> list[tuple[str, Api]]:
        """Return the ready clusters that a service selects, and access to each."""
        found = []
        for cluster in self.state.all(CLUSTER):
            secret = self.state.secret(cluster["spec"].get("kubeconfig") or "")
            selected = selectors.matches(service["spec"].get("dpuClusterSelector"), labels_of(cluster))
            ready = (cluster.get("status") or {}).get("phase") == READY
            if selected and ready and (api := self.state.pod_links.open(secret)):
                found.append((name_of(cluster), api))
        return found

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
        return api.all(POD, f"{SERVICE_ID}={_service_id(service)}")

    def _wanted(self, api: Api, service: Json) -> list[Json]:
        given = service["spec"].get("serviceDaemonSet") or {}
        values = service["spec"]["helmChart"].get("values") or {}
        terms = (given.get("nodeSelector") or {}).get("nodeSelectorTerms")
        nodes = [
            node
            for node in api.all(NODE, f"{WORLD}={self.state.world.name}")
            if terms is None or any(selectors.matches(term, labels_of(node)) for term in terms)
        ]
        made = [_pod(service, given, name_of(node)) for node in nodes]
        hooks = [_pod(service, given, name_of(node), hook=True) for node in nodes if values.get("hook")]
        return made + hooks

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

    def _put(self, service: Json, problem: str) -> None:
        generation = service["metadata"]["generation"]

        def put(status: Json) -> None:
            status["observedGeneration"] = generation
            for of_type in CONDITIONS:
                conditions.put(status, of_type, True, "Success", generation=generation)
            for of_type in ("ApplicationsReady", READY):
                reason = "Pending" if problem else "Success"
                conditions.put(status, of_type, not problem, reason, problem, generation)

        self.state.change_status(SERVICE, service, put)


def _pod(service: Json, given: Json, node: str, *, hook: bool = False) -> Json:
    """Return the pod of a service on a node. Another version of it has another name."""
    release = service["spec"]["helmChart"]["source"].get("releaseName") or name_of(service)
    labels = {**(given.get("labels") or {}), SERVICE_ID: _service_id(service)} | ({"hook": "yes"} if hook else {})
    metadata = {"labels": labels, "annotations": given.get("annotations") or {}}
    digest = hashlib.sha256(json.dumps([metadata, node], sort_keys=True).encode()).hexdigest()[:8]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "hook", "uid": uid_of(service)}
    metadata |= {"name": f"{release}-{digest}"} | ({"ownerReferences": [owner]} if hook else {})
    return {
        "metadata": metadata,
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "registry.example.org/main:1"}]},
    }


def _service_id(service: Json) -> str:
    return uid_of(service)[:10]


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


def ensure_namespace(api: Api) -> None:
    """Create the namespace of an API, if it does not exist."""
    try:
        api.create(NAMESPACE, {"metadata": {"name": api.namespace}})
    except ApiException as error:
        if error.status != 409:
            raise
