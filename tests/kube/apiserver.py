"""A real API server with the CRDs of a version of DPF: Kubernetes 1.20 with etcd, RBAC on.

It is built once from Debian's packages by the script beside the repository. Whoever starts a server stops it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from blueprints.kube import Cluster, Json, ObjectExists, ObjectType, connect
from tests.agent.captured import CAPTURES
from tests.kube import newer

SCRIPT = CAPTURES.parent / "peers" / "kube-apiserver"
BUILT = (
    Path(
        os.environ.get("PEERS_CACHE")
        or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "drydock-peers"
    )
    / "kube-apiserver-1.20/bin/kube-apiserver"
)
CRDS = {"24.10": "dpf-crds", "26.4": "dpf-crds-new", "26.10": "dpf-crds-new"}
SLOW = 60.0
"""Seconds that a call may take in tests, on a machine that others use, too."""
_RBAC = "rbac.authorization.k8s.io"
CRD = ObjectType(
    group="apiextensions.k8s.io", version="v1", kind="CustomResourceDefinition", plural="customresourcedefinitions",
    namespaced=False,
)  # fmt: skip
NAMESPACE = ObjectType(group="", version="v1", kind="Namespace", plural="namespaces", namespaced=False)
ACCOUNT = ObjectType(group="", version="v1", kind="ServiceAccount", plural="serviceaccounts")
TYPES = {
    kind: ObjectType(group=_RBAC, version="v1", kind=kind, plural=f"{kind.lower()}s", namespaced="Cluster" not in kind)
    for kind in ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
}


@dataclass(frozen=True)
class Server:
    """A running API server. `folder` is what the script knows it by."""

    version: str
    folder: Path

    @property
    def kubeconfig(self) -> str:
        """The kubeconfig of an administrator."""
        return (self.folder / "kubeconfig").read_text()

    def admin(self) -> Cluster:
        return connect({"kubeconfig": self.kubeconfig}, deadline=SLOW)

    def stop(self) -> None:
        """Stop it; `resume` starts it again with its data, keys and ports."""
        _script("stop", self.folder)

    def resume(self) -> None:
        _script("start", self.folder)


def missing() -> str:
    """Return why no server can be started here; empty if one can."""
    if not SCRIPT.is_file():
        return "the script that builds an API server is not beside the repository"
    if not BUILT.is_file():
        return "the API server is not built; `make kube-peer` builds it"
    return ""


def start(version: str, folder: Path) -> Server:
    """Start a server in a folder, with the CRDs of a version of DPF."""
    _script("start", folder)
    found = Server(version, folder)
    _install(found)
    return found


def account(administrator: str, namespace: str, roles: Sequence[Json]) -> str:
    """Make the service account `drydock` in a namespace, with these roles and bindings. Return its kubeconfig."""
    with connect({"kubeconfig": administrator}, deadline=SLOW) as admin:
        admin.create(ACCOUNT, ACCOUNT.manifest("drydock", namespace))
        for one in roles:
            admin.create(TYPES[one["kind"]], one)
        token = admin._transport.call(
            "POST", ACCOUNT.path(namespace, "drydock", "token"), deadline=SLOW, most=1 << 20,
            body={
                "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}
            },
        )  # fmt: skip
    granted = yaml.safe_load(token.body)["status"]["token"]
    config = yaml.safe_load(administrator)
    config["users"] = [{"name": "admin", "user": {"token": granted}}]
    config["contexts"][0]["context"]["namespace"] = namespace
    return str(yaml.safe_dump(config))


def _install(server: Server) -> None:
    """Install the CRDs, and wait until the server serves and publishes them."""
    crds = [
        one
        for file in sorted((CAPTURES / CRDS[server.version]).glob("*.yaml"))
        for one in yaml.load_all(file.read_text(), Loader=yaml.CSafeLoader)
        if one
    ]
    if server.version == "26.10":
        for one in crds:
            newer.changed(one)
    with server.admin() as admin:
        for one in crds:
            with contextlib.suppress(ObjectExists):
                # Not by `create`: this server drops the rules in CEL, as it is older than they are.
                admin._changed(admin._request("create", CRD), "POST", CRD.path(), [], one, "application/json")
        until = time.monotonic() + 120
        while time.monotonic() < until:
            published = admin.document("/openapi/v2")["definitions"]
            kinds = {g["kind"] for d in published.values() for g in d.get("x-kubernetes-group-version-kind", ())}
            if all(one["spec"]["names"]["kind"] in kinds for one in crds):
                return
            time.sleep(0.5)
    raise AssertionError("the API server does not publish its CRDs")


def _script(*words: Any) -> None:
    done = subprocess.run(
        ["nice", "-n", "10", "bash", SCRIPT, *words],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=600,
    )
    if done.returncode:
        raise AssertionError(f"kube-apiserver {words[0]}: {done.stderr[-1000:]}")
