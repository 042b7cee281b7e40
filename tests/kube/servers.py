"""Two real API servers, one with the CRDs of each version of DPF, shared by all processes of a test run.

    peer = server("26.4")               # started by the first test that needs it, stopped at the end of the run
    with lab(peer, rules) as there:     # a namespace of its own, and an account with a role of exactly these rules
        cluster = there.connect()

They are Kubernetes 1.20 with etcd, RBAC on, built once from Debian's packages by the script beside the repository.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from blueprints.kube import Cluster, Credential, Json, ObjectExists, ObjectType, Rule, connect, role
from tests.agent.captured import CAPTURES
from tests.settings import STATE

SCRIPT = CAPTURES.parent / "peers" / "kube-apiserver"
BUILT = (
    Path(
        os.environ.get("PEERS_CACHE")
        or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "drydock-peers"
    )
    / "kube-apiserver-1.20/bin/kube-apiserver"
)
CRDS = {"24.10": "dpf-crds", "26.4": "dpf-crds-new"}
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


@dataclass(frozen=True)
class Lab:
    """A namespace on a server, and the credential of an account that may do exactly what a role says."""

    server: Server
    namespace: str
    credential: Credential

    def connect(self, **options: Any) -> Cluster:
        return connect(self.credential, **({"deadline": SLOW} | options))


def server(version: str) -> Server:
    """Return the server with the CRDs of a version of DPF. Skips the test if it cannot run here."""
    if not SCRIPT.is_file():
        pytest.skip("the script that builds an API server is not beside the repository")
    if not BUILT.is_file():
        pytest.skip("the API server is not built; `make kube-peer` builds it")
    folder = Path(os.environ[STATE]) / f"kube-{version}"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = Server(version, folder / "server")
        if not (folder / "ready").exists():
            _script("start", found.folder)
            _install(found)
            (folder / "ready").touch()
    return found


def stop_all(state: Path) -> None:
    """Stop the servers of a test run. Called by the last process of the run."""
    for folder in state.glob("kube-*/server"):
        _script("stop", folder)


@contextlib.contextmanager
def lab(server: Server, rules: Sequence[Rule] = (), cluster_rules: Sequence[Rule] = ()) -> Iterator[Lab]:
    """Make a namespace, and an account in it with a role of exactly these rules."""
    name = f"lab-{uuid.uuid4().hex[:10]}"
    with server.admin() as admin:
        admin.create(NAMESPACE, NAMESPACE.manifest(name))
    made = role(rules, name)
    made += role(cluster_rules, "", name=name, account_namespace=name) if cluster_rules else []
    yield Lab(server, name, Credential(kubeconfig=account(server.kubeconfig, name, made)))


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
        pytest.fail(f"kube-apiserver {words[0]}: {done.stderr[-1000:]}", pytrace=False)
