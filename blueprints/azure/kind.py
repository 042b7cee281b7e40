"""The kind `azure`: hosts at Azure, built when a lease asks for one."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from blueprints.azure.config import Credential, Image
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
    client_at: ClassVar[str] = "blueprints.azure.client:Azure"
    inventory_every: ClassVar[float] = 300.0
    status_every: ClassVar[float] = 10.0
