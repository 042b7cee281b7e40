"""The kind `gce`: hosts at Google Compute Engine, built when a lease asks for one."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from blueprints.cloud.config import CloudConfig
from blueprints.cloud.kind import CloudHost
from blueprints.gce.config import Credential, Image
from blueprints.gce.interruption import READER


class Config(CloudConfig):
    """Config of a blueprint of kind gce."""

    interruption: ClassVar[str] = READER
    image: Image = Field(default=Image(), description="What machines boot.")


class GceHost(CloudHost):
    """Hosts at Google Compute Engine."""

    name: ClassVar[str] = "gce"
    Config = Config
    Credential = Credential
    client_at: ClassVar[str] = "blueprints.gce.client:Gce"
    sdk: ClassVar[tuple[str, ...]] = ("google-cloud-compute>=1.56",)
    inventory_every: ClassVar[float] = 1800.0
    status_every: ClassVar[float] = 5.0
    unauthenticated: ClassVar[frozenset[str]] = frozenset(
        {"authError", "noCredentials", "noToken", "certificate", "401"}
    )
