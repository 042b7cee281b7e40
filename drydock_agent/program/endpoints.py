"""The endpoints of a running agent: `POST /hello` for drivers; `POST /discovery` and `GET /hardware` for the server."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from drydock_agent.cyborg import DISCOVERING, to_document
from drydock_agent.program import certificate
from drydock_agent.program.addresses import Address
from drydock_agent.program.agent import Agent
from drydock_agent.program.drivers import SeparateDrivers, secret_in
from drydock_agent.program.errors import AgentError
from drydock_agent.program.host import ThisHost
from drydock_agent.program.listener import Listener
from drydock_agent.program.signals import Stop
from drydock_agent.program.state import StateFolder

_SECRET = "driver-secret"  # noqa: S105


class Endpoints:
    """The endpoints that the options of `run` ask for. Both are bound when this is created. Raises AgentError."""

    def __init__(self, folder: StateFolder, given: argparse.Namespace, stop: Stop) -> None:
        self._stop = stop
        self._agent: Agent | None = None
        self._listeners: list[Listener] = []
        self._separate: SeparateDrivers | None = None
        self._announced = self._pem = ""
        if given.drivers:
            self._take_drivers(given, folder)
        if given.listen:
            self._listen(given, folder)
        elif given.announce or given.certificate or given.key:
            raise AgentError("--announce, --certificate and --key belong to --listen HOST:PORT, which is missing.")

    def host(self, root: str) -> ThisHost:
        """Return the host with its separate drivers, and the endpoint that its hello announces."""
        return ThisHost(root=root, separate=self._separate, endpoint=self._announced, certificate=self._pem)

    def serve(self, agent: Agent, serving: contextlib.ExitStack) -> None:
        """Answer requests until `serving` is closed."""
        self._agent = agent
        for one in self._listeners:
            serving.enter_context(one.serving())

    def _take_drivers(self, given: argparse.Namespace, folder: StateFolder) -> None:
        address = Address.parse(given.drivers)
        if not address.is_local:
            raise AgentError(f"--drivers {address}: drivers are on this machine. Use 127.0.0.1:PORT or unix:/PATH.")
        file = Path(given.driver_secret) if given.driver_secret else folder.path / _SECRET
        separate = self._separate = SeparateDrivers(secret_in(file))
        self._listeners.append(Listener(address, {("POST", "/hello"): separate.hello}, secret=lambda: separate.secret))

    def _listen(self, given: argparse.Namespace, folder: StateFolder) -> None:
        address = Address.parse(given.listen)
        announced = Address.parse(given.announce) if given.announce else address
        if address.path or announced.path:
            raise AgentError("The server cannot reach a Unix socket. Use --listen HOST:PORT.")
        if announced.is_wildcard:
            raise AgentError(f"{announced} is not an address that the server can call. Name one: --announce HOST:PORT.")
        if given.key and not given.certificate:
            raise AgentError("--key needs --certificate FILE.")
        if given.certificate:
            pair = certificate.Certificate(Path(given.certificate), Path(given.key or given.certificate))
        else:
            pair = certificate.own(folder.path)
        routes = {("POST", "/discovery"): self._discovery, ("GET", "/hardware"): self._hardware}
        self._listeners.append(Listener(address, routes, secret=self._secret, tls=pair.context))
        self._announced, self._pem = str(announced), pair.pem

    def _secret(self) -> str:
        """Return the secret that the server gave with its last welcome. Without one, no request is accepted."""
        return self._agent.state.secret if self._agent is not None else ""

    def _discovery(self, document: object) -> tuple[int, Mapping[str, Any]]:
        """Start a discovery across all drivers, which ends with a report to the server."""
        assert self._agent is not None
        self._agent.discovering = True
        self._stop.wake()
        return 202, DISCOVERING

    def _hardware(self, document: object) -> tuple[int, Mapping[str, Any]]:
        """Return the accelerators that were found last, across all drivers."""
        assert self._agent is not None
        if self._agent.hardware is None:
            return 503, {"detail": "The agent has not scanned its hardware yet. Try again."}
        return 200, to_document(self._agent.hardware, discovering=self._agent.discovering)
