"""Two API servers, each the DPU cluster of the other, and a namespace with a double for each test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.dpus.api import NAMESPACE, Api
from tests.dpus.double import Double
from tests.dpus.generations import V24_10, V26_4, V26_10
from tests.dpus.servers import Server, running
from tests.dpus.user import User


@pytest.fixture(autouse=True)
def _database():
    """The double needs no database."""


@pytest.fixture(scope="session")
def servers() -> dict[str, Server]:
    """A server for each version of DPF, by name."""
    return {one.name: running(one) for one in (V24_10, V26_4)}


def _made(servers: dict[str, Server], version: str) -> Iterator[User]:
    server = servers[version]
    other = next(one for name, one in servers.items() if name != version)
    namespace = f"t-{uuid.uuid4().hex[:8]}"
    admin = Api(server.kubeconfig, namespace=namespace)
    admin.create(NAMESPACE, {"metadata": {"name": namespace}})
    admin.close()
    with Double(
        server.kubeconfig, namespace=namespace, cluster=other.kubeconfig, generation=server.generation
    ) as double:
        user = User(double, server.kubeconfig)
        try:
            yield user
        finally:
            user.close()


@pytest.fixture
def new(servers: dict[str, Server]) -> Iterator[User]:
    """A user of DPF 26.4."""
    yield from _made(servers, V26_4.name)


@pytest.fixture
def old(servers: dict[str, Server]) -> Iterator[User]:
    """A user of DPF 24.10."""
    yield from _made(servers, V24_10.name)


@pytest.fixture
def newest(servers: dict[str, Server]) -> Iterator[User]:
    """A user of DPF 26.10, whose DPU clusters are on another server."""
    yield from _made({**servers, V26_10.name: running(V26_10)}, V26_10.name)


@pytest.fixture(params=[V24_10.name, V26_4.name])
def dpf(request: pytest.FixtureRequest, servers: dict[str, Server]) -> Iterator[User]:
    """A user of each version."""
    yield from _made(servers, request.param)
