"""The kind `gce`: hosts at Google Compute Engine, built when a lease asks for one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from blueprints.cloud.client import Client
from blueprints.cloud.config import CloudConfig
from blueprints.cloud.kind import CloudHost
from blueprints.gce.config import Credential, Image


class Config(CloudConfig):
    """Config of a blueprint of kind gce."""

    image: Image = Field(default=Image(), description="What machines boot.")


class GceHost(CloudHost):
    """Hosts at Google Compute Engine."""

    name: ClassVar[str] = "gce"
    Config = Config
    Credential = Credential
    inventory_every: ClassVar[float] = 1800.0
    status_every: ClassVar[float] = 5.0

    def client_class(self) -> type[Client]:
        """The vendor's client behind our contract."""
        from blueprints.gce.client import Gce

        return Gce

    def new_client(self, secrets: Mapping[str, Any]) -> Client:
        """A client for an account. Raises ValidationError."""
        from blueprints.gce.client import Gce

        return Gce(Credential.model_validate(dict(secrets)))
