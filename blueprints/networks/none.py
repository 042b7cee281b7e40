"""The driver `none`: networks that Drydock leaves as they are."""

from __future__ import annotations

from typing import ClassVar

from blueprints.networks.contract import Access, NetworkDriver, Port


class NoNetworks(NetworkDriver):
    """Changes nothing: every machine is in one network for all purposes, or somebody else switches it."""

    name: ClassVar[str] = "none"
    switches: ClassVar[bool] = False

    def attach(self, access: Access, port: Port, network: str) -> None:
        """Do nothing."""

    def detach(self, access: Access, port: Port, network: str) -> None:
        """Do nothing."""

    def check(self, access: Access, port: Port) -> frozenset[str]:
        """Return no network, because none was attached."""
        return frozenset()
