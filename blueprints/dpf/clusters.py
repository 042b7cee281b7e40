"""DPUClusters as values: their manifests, how far they are, and the kubeconfig in their secret. Everything is pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from blueprints.answers import Json
from blueprints.dpf.phases import why
from blueprints.kube import CredentialInvalid, Dialect, Object, at, read

KIND = "DPUCluster"
KAMAJI, STATIC = "kamaji", "static"
KEY = "drydock-key"
"""The label with the key of the resource, on DPUClusters whose name an operator has chosen."""
PERCENT: Mapping[str, int] = {"Pending": 10, "Creating": 40, "NotReady": 70, "Ready": 99}
"""The phases of a DPUCluster (doca-platform, `api/provisioning/v1alpha1/dpucluster_types.go`); Failed is another."""
_KUBECONFIGS = ("admin.conf", "super-admin.conf", "kubeconfig")
"""Keys under which the secret of a DPU cluster has its kubeconfig; `admin.conf` in doca-platform v24.10."""


def manifest(
    dialect: Dialect, name: str, namespace: str, *, type_: str, max_nodes: int, version: str = "",
    kubeconfig: str = "", keepalived: Mapping[str, Any] | None = None, key: str = "",
) -> Json:  # fmt: skip
    """Return a DPUCluster. Empty values are left out. `key` is for clusters that are not named by their key."""
    spec: Json = {"type": type_, "maxNodes": max_nodes}
    spec |= {"version": version} if version else {}
    spec |= {"kubeconfig": kubeconfig} if kubeconfig else {}
    spec |= {"clusterEndpoint": {"keepalived": dict(keepalived)}} if keepalived else {}
    made = dialect.type(KIND).manifest(name, namespace, spec=spec)
    if key:
        made["metadata"]["labels"] = {KEY: key}
    return made


def slots(found: Object, default: int) -> int:
    """Return how many nodes a cluster may have; `default` if it does not say so."""
    size = found.spec.get("maxNodes")
    return size if type(size) is int and 0 < size <= 3000 else default


def facts(found: Object) -> Json:
    """Return what the build of a DPU needs to know about a cluster."""
    return {
        "name": found.name, "namespace": found.namespace, "kubeconfig": secret_of(found),
        "version": str(found.status.get("version") or found.spec.get("version") or ""),
    }  # fmt: skip


def secret_of(found: Object) -> str:
    """Return the name of the secret with the kubeconfig of a cluster; empty if the cluster names none yet."""
    return str(found.spec.get("kubeconfig") or "")


def sentence(found: Object) -> str:
    """Return phase and reasons of a cluster, and while it is being deleted, the finalizers that keep it."""
    if found.deleting:
        said = str(found.status.get("phase") or "")
        phase = f" Its phase was {said[:63]}." if said else ""
        return f"DPUCluster {found.name} is being deleted.{phase}{found.finalizer_sentence}"
    return f"DPUCluster {found.name}: {found.phase or 'new'}. {why(found)}".strip()


def kubeconfig_in(secret: Object, name: str) -> tuple[str, str]:
    """Return the kubeconfig in the secret of a cluster, or why there is none that can be read. Quotes nothing of it."""
    found = at(secret.body, "data")
    data = found if isinstance(found, dict) else {}
    given = next((data[key] for key in _KUBECONFIGS if isinstance(data.get(key), str)), "")
    if not given:
        return "", f"Secret {name} has no kubeconfig. It needs one of the keys {', '.join(_KUBECONFIGS)}."
    try:
        return base64.b64decode(given, validate=True).decode(), ""
    except (binascii.Error, UnicodeDecodeError):
        return "", f"Secret {name} has no kubeconfig that can be read."


def kubeconfig_problem(secret: Object | None, name: str) -> str:
    """Return why the kubeconfig in a secret cannot be used; empty if it can. Quotes nothing of the secret."""
    if secret is None:
        return f"Secret {name} does not exist."
    kubeconfig, problem = kubeconfig_in(secret, name)
    if problem:
        return problem
    try:
        read({"kubeconfig": kubeconfig})
    except CredentialInvalid as error:
        return f"The kubeconfig in secret {name} cannot be used: {error.message}"
    return ""
