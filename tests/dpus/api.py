"""An API server as the controllers of DPF use it: the official client, under a user and field manager of its own."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import yaml
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from kubernetes.config.kube_config import load_kube_config_from_dict

Json = dict[str, Any]

MANAGER = "dpf-controller"
"""The user and the field manager of the double."""
PROVISIONING = "provisioning.dpu.nvidia.com"
TIMEOUT = (5, 30)
ATTEMPTS = 6


@dataclass(frozen=True)
class Kind:
    """A type of objects. Objects without a group are core ones."""

    name: str
    plural: str
    group: str = PROVISIONING
    version: str = "v1alpha1"
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


BFB = Kind("BFB", "bfbs")
SOFTWARE = Kind("BlueFieldSoftware", "bluefieldsoftwares")
CLUSTER = Kind("DPUCluster", "dpuclusters")
DEVICE = Kind("DPUDevice", "dpudevices")
DPU = Kind("DPU", "dpus")
DPU_NODE = Kind("DPUNode", "dpunodes")
FLAVOR = Kind("DPUFlavor", "dpuflavors")
MAINTENANCE = Kind("DPUNodeMaintenance", "dpunodemaintenances")
SERVICE = Kind("DPUService", "dpuservices", "svc.dpu.nvidia.com")
CREDENTIAL = Kind("DPUServiceCredentialRequest", "dpuservicecredentialrequests", "svc.dpu.nvidia.com")
INTERFACE = Kind("DPUServiceInterface", "dpuserviceinterfaces", "svc.dpu.nvidia.com")
CHAIN = Kind("DPUServiceChain", "dpuservicechains", "svc.dpu.nvidia.com")
INTERFACE_SET = Kind("ServiceInterfaceSet", "serviceinterfacesets", "svc.dpu.nvidia.com")
SERVICE_INTERFACE = Kind("ServiceInterface", "serviceinterfaces", "svc.dpu.nvidia.com")
CHAIN_SET = Kind("ServiceChainSet", "servicechainsets", "svc.dpu.nvidia.com")
SERVICE_CHAIN = Kind("ServiceChain", "servicechains", "svc.dpu.nvidia.com")
IPAM = Kind("DPUServiceIPAM", "dpuserviceipams", "svc.dpu.nvidia.com")
NAD = Kind("DPUServiceNAD", "dpuservicenads", "svc.dpu.nvidia.com")
DEPLOYMENT = Kind("DPUDeployment", "dpudeployments", "svc.dpu.nvidia.com")
TEMPLATE = Kind("DPUServiceTemplate", "dpuservicetemplates", "svc.dpu.nvidia.com")
CONFIGURATION = Kind("DPUServiceConfiguration", "dpuserviceconfigurations", "svc.dpu.nvidia.com")
POLICY = Kind("DPUStoragePolicy", "dpustoragepolicies", "storage.dpu.nvidia.com")
VOLUME = Kind("DPUVolume", "dpuvolumes", "storage.dpu.nvidia.com")
ATTACHMENT = Kind("DPUVolumeAttachment", "dpuvolumeattachments", "storage.dpu.nvidia.com")
VPC = Kind("DPUVPC", "dpuvpcs", "vpc.dpu.nvidia.com")
VIRTUAL_NETWORK = Kind("DPUVirtualNetwork", "dpuvirtualnetworks", "vpc.dpu.nvidia.com")
ISOLATION = Kind("IsolationClass", "isolationclasses", "vpc.dpu.nvidia.com", namespaced=False)
SET = Kind("DPUSet", "dpusets")
NODE = Kind("Node", "nodes", "", "v1", namespaced=False)
SECRET = Kind("Secret", "secrets", "", "v1")
ACCOUNT = Kind("ServiceAccount", "serviceaccounts", "", "v1")
POD = Kind("Pod", "pods", "", "v1")
NAMESPACE = Kind("Namespace", "namespaces", "", "v1", namespaced=False)
CRD = Kind("CustomResourceDefinition", "customresourcedefinitions", "apiextensions.k8s.io", "v1", namespaced=False)
ROLE = Kind("ClusterRole", "clusterroles", "rbac.authorization.k8s.io", "v1", namespaced=False)
BINDING = Kind("ClusterRoleBinding", "clusterrolebindings", "rbac.authorization.k8s.io", "v1", namespaced=False)


class FieldsPruned(AssertionError):
    """The double wrote fields that the server does not have: the double is wrong about this version of DPF."""


class Api:
    """One API server, and one namespace of it.

    `user` is impersonated: the double has an administrator's kubeconfig, and no more rights than its own role.
    """

    def __init__(self, kubeconfig: str, *, namespace: str, user: str = "", manager: str = MANAGER) -> None:
        self.namespace, self.manager = namespace, manager
        configuration = client.Configuration()
        load_kube_config_from_dict(  # type: ignore[no-untyped-call]
            yaml.safe_load(kubeconfig), client_configuration=configuration
        )
        configuration.proxy = None
        configuration.retries = False
        self._client = client.ApiClient(configuration)
        if user:
            self._client.default_headers["Impersonate-User"] = user

    def close(self) -> None:
        """Close its connections."""
        self._client.rest_client.pool_manager.clear()
        self._client.close()  # type: ignore[no-untyped-call]

    # Reading

    def get(self, kind: Kind, name: str) -> Json | None:
        """Return an object, or None where there is none."""
        try:
            found: Json = self._call("GET", self._path(kind, name))
            return found
        except ApiException as error:
            if error.status == 404:
                return None
            raise

    def all(self, kind: Kind, labels: str = "") -> list[Json]:
        """Return all objects of a kind in the namespace, by name."""
        answer = self._call("GET", self._path(kind), query=[("labelSelector", labels)] if labels else [])
        for item in answer["items"]:
            item |= {"kind": kind.name, "apiVersion": kind.api_version}
        return sorted(answer["items"], key=name_of)

    # Writing

    def create(self, kind: Kind, body: Json) -> Json:
        """Create an object. Raises FieldsPruned if the server dropped a part of it."""
        body = {"apiVersion": kind.api_version, "kind": kind.name} | body
        answer: Json = self._call("POST", self._path(kind), body=body, query=self._as_manager)
        _compare(body, answer, kind)
        return answer

    def apply(self, kind: Kind, body: Json) -> Json:
        """Write an object by server-side apply, as the owner of its fields."""
        body = {"apiVersion": kind.api_version, "kind": kind.name} | body
        query = [*self._as_manager, ("force", "true")]
        path, media = self._path(kind, name_of(body)), "application/apply-patch+yaml"
        answer: Json = self._call("PATCH", path, body=body, query=query, media=media)
        _compare(body, answer, kind)
        return answer

    def change(
        self, kind: Kind, name: str, how: Callable[[Json], None], *, status: bool = False,
        known: Json | None = None, look: Callable[[Json], None] | None = None,
    ) -> Json | None:  # fmt: skip
        """Change an object or its status by a function, again on its newest version after a conflict.

        Nothing is written if the function changes nothing. A `known` version is tried first. `look` is called with each
        version that is read. Returns None if the object no longer exists.
        """
        for attempt in range(ATTEMPTS):
            before = self.get(kind, name) if known is None else known
            if before is None:
                return None
            before |= {"kind": kind.name, "apiVersion": kind.api_version}
            if look and known is None:
                look(before)
            known = None
            body = copy.deepcopy(before)
            how(body)
            if body == before:
                return before
            path = self._path(kind, name) + ("/status" if status else "")
            try:
                answer: Json = self._call("PUT", path, body=body, query=self._as_manager)
            except ApiException as error:
                if error.status == 404:
                    return None
                if error.status == 409 and attempt + 1 < ATTEMPTS:
                    continue
                raise
            # The last finalizer's removal deletes the object, which the server answers with its last state.
            _compare(body, answer, kind, only="status" if status else "spec")
            return answer
        raise AssertionError("unreachable")

    def delete(self, kind: Kind, name: str, uid: str = "") -> None:
        """Delete an object, if it is there (and has this uid). A pod goes at once, as there is no kubelet."""
        body: Json = {"preconditions": {"uid": uid}} if uid else {}
        body |= {"gracePeriodSeconds": 0} if kind is POD else {}
        try:
            self._call("DELETE", self._path(kind, name), body=body)
        except ApiException as error:
            if error.status not in (404, 409):
                raise

    def token(self, account: str, seconds: int) -> str:
        """Return a new token of a service account."""
        spec = {"expirationSeconds": seconds}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        return str(self._call("POST", self._path(ACCOUNT, account) + "/token", body=body)["status"]["token"])

    @property
    def _as_manager(self) -> list[tuple[str, str]]:
        return [("fieldManager", self.manager)]

    def _path(self, kind: Kind, name: str = "") -> str:
        root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
        within = f"/namespaces/{self.namespace}" if kind.namespaced else ""
        return f"{root}{within}/{kind.plural}" + (f"/{name}" if name else "")

    def _call(
        self, method: str, path: str, *, query: list[tuple[str, str]] | None = None, body: Any = None,
        media: str = "application/json",
    ) -> Any:  # fmt: skip
        headers = {"Accept": "application/json", "Content-Type": media}
        prepared = self._client.param_serialize(
            method, path, query_params=query or [], header_params=headers, body=body, auth_settings=["BearerToken"]
        )
        answer = self._client.call_api(*prepared, _request_timeout=TIMEOUT)
        text = answer.read()
        if not 200 <= answer.status < 300:
            raise ApiException(status=answer.status, reason=f"{method} {path}: {text.decode(errors='replace')[:2000]}")
        return json.loads(text)


def grant(admin: Api) -> None:
    """Give the double the rights of DPF's controllers, once for each server."""
    rules = [
        {"apiGroups": [PROVISIONING, SERVICE.group, VOLUME.group, VPC.group], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["nodes", "nodes/status", "secrets", "namespaces"], "verbs": ["*"]},
        {"apiGroups": [CRD.group], "resources": [CRD.plural], "verbs": ["get", "list"]},
    ]
    subject = {"kind": "User", "name": MANAGER, "apiGroup": ROLE.group}
    role = {"kind": "ClusterRole", "name": MANAGER, "apiGroup": ROLE.group}
    _once(admin, ROLE, {"metadata": {"name": MANAGER}, "rules": rules})
    _once(admin, BINDING, {"metadata": {"name": MANAGER}, "roleRef": role, "subjects": [subject]})


def _once(api: Api, kind: Kind, body: Json) -> None:
    try:
        api.create(kind, body)
    except ApiException as error:
        if error.status != 409:
            raise


def name_of(item: Json) -> str:
    return str(item["metadata"]["name"])


def uid_of(item: Json) -> str:
    return str(item["metadata"]["uid"])


def labels_of(item: Json) -> dict[str, str]:
    return item["metadata"].get("labels") or {}


def annotations_of(item: Json) -> dict[str, str]:
    return item["metadata"].get("annotations") or {}


def is_deleting(item: Json) -> bool:
    return bool(item["metadata"].get("deletionTimestamp"))


def _compare(sent: Json, answer: Json, kind: Kind, only: str = "") -> None:
    lost = list(_missing(sent.get(only, {}), answer.get(only, {}), only) if only else _missing(sent, answer, ""))
    if lost:
        raise FieldsPruned(f"{kind.name} {sent['metadata'].get('name')}: the server dropped {', '.join(lost)}")


def _missing(sent: Any, got: Any, path: str) -> Any:
    if isinstance(sent, dict) and isinstance(got, dict):
        for key, value in sent.items():
            if value in (None, {}, [], ""):  # which the server may leave out
                continue
            if key not in got:
                yield f"{path}.{key}".lstrip(".")
            else:
                yield from _missing(value, got[key], f"{path}.{key}".lstrip("."))
    elif isinstance(sent, list) and isinstance(got, list):
        for number, (one, other) in enumerate(zip(sent, got, strict=False)):
            yield from _missing(one, other, f"{path}[{number}]")
