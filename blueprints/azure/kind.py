"""The kind `azure`: hosts at Azure, built when a lease asks for one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from blueprints.azure.config import Credential, Image
from blueprints.cloud.client import Client
from blueprints.cloud.config import CloudConfig
from blueprints.cloud.kind import CloudHost


class Config(CloudConfig):
    """Config of a blueprint of kind azure."""

    image: Image = Field(default=Image(), description="What machines boot.")


class AzureHost(CloudHost):
    """Hosts at Azure."""

    name: ClassVar[str] = "azure"
    Config = Config
    Credential = Credential
    inventory_every: ClassVar[float] = 300.0
    status_every: ClassVar[float] = 10.0

    def client_class(self) -> type[Client]:
        """The vendor's client behind our contract."""
        from blueprints.azure.client import Azure

        return Azure

    def new_client(self, secrets: Mapping[str, Any]) -> Client:
        """A client for an account. Raises ValidationError."""
        from blueprints.azure.client import Azure

        return Azure(Credential.model_validate(dict(secrets)))
