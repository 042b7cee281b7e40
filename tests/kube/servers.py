"""Two real API servers, one with the CRDs of each version of DPF, shared by all processes of a test run.

peer = server("26.4")               # started by the first test that needs it, stopped at the end of the run
with lab(peer, rules) as there:     # a namespace of its own, and an account with a role of exactly these rules
    cluster = there.connect()
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from blueprints.kube import Cluster, Credential, Rule, connect, role
from tests.kube.apiserver import NAMESPACE, SLOW, Server, account, missing, start
from tests.settings import STATE


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
    if why := missing():
        pytest.skip(why)
    folder = Path(os.environ[STATE]) / f"kube-{version}"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / "ready").exists():
            return Server(version, folder / "server")
        found = start(version, folder / "server")
        (folder / "ready").touch()
    return found


def stop_all(state: Path) -> None:
    """Stop the servers of a test run. Called by the last process of the run."""
    for folder in state.glob("kube-*/server"):
        Server("", folder).stop()


@contextlib.contextmanager
def lab(server: Server, rules: Sequence[Rule] = (), cluster_rules: Sequence[Rule] = ()) -> Iterator[Lab]:
    """Make a namespace, and an account in it with a role of exactly these rules."""
    name = f"lab-{uuid.uuid4().hex[:10]}"
    with server.admin() as admin:
        admin.create(NAMESPACE, NAMESPACE.manifest(name))
    made = role(rules, name)
    made += role(cluster_rules, "", name=name, account_namespace=name) if cluster_rules else []
    yield Lab(server, name, Credential(kubeconfig=account(server.kubeconfig, name, made)))
