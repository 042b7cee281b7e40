"""The API servers of a test run, for the double: see `tests.kube.servers`."""

from __future__ import annotations

from dataclasses import dataclass

from tests.dpus.generations import Generation
from tests.kube.servers import server


@dataclass(frozen=True)
class Server:
    """A running API server with the CRDs of a version, and an administrator's kubeconfig for it."""

    generation: Generation
    kubeconfig: str


def running(generation: Generation) -> Server:
    """Return the server with the CRDs of a version. Skips the test where it cannot be run."""
    return Server(generation, server(generation.name).kubeconfig)
