"""The kind `azure`: hosts at Azure, built when a lease asks for one."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from blueprints.azure.config import Credential, Image
from blueprints.azure.interruption import READER
from blueprints.cloud.config import CloudConfig
from blueprints.cloud.kind import CloudHost
from blueprints.offers import Offer


class Config(CloudConfig):
    """Config of a blueprint of kind azure."""

    interruption: ClassVar[str] = READER
    image: Image = Field(default=Image(), description="What machines boot.")


class AzureHost(CloudHost):
    """Hosts at Azure."""

    name: ClassVar[str] = "azure"
    Config = Config
    Credential = Credential
    client_at: ClassVar[str] = "blueprints.azure.client:Azure"
    sdk: ClassVar[tuple[str, ...]] = ("azure-identity>=1.27", "azure-mgmt-compute>=39", "azure-mgmt-network>=30")
    inventory_every: ClassVar[float] = 300.0
    status_every: ClassVar[float] = 10.0
    unauthenticated: ClassVar[frozenset[str]] = frozenset(
        {
            "AuthenticationFailed",
            "ExpiredAuthenticationToken",
            "InvalidAuthenticationToken",
            "InvalidAuthenticationTokenTenant",
            "credentials",
        }
    )

    def surcharge(self, offer: Offer) -> float | None:
        """None besides: confidential machines are sizes of their own, with prices of their own."""
        return 0.0
