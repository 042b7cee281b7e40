"""The kind `ec2`: hosts at Amazon EC2, built when a lease asks for one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from blueprints.cloud.client import Client
from blueprints.cloud.config import CloudConfig
from blueprints.cloud.kind import CloudHost
from blueprints.ec2.config import Credential, Image


class Config(CloudConfig):
    """Config of a blueprint of kind ec2."""

    image: Image = Field(default=Image(), description="What machines boot.")


class Ec2Host(CloudHost):
    """Hosts at Amazon EC2."""

    name: ClassVar[str] = "ec2"
    Config = Config
    Credential = Credential
    inventory_every: ClassVar[float] = 600.0
    status_every: ClassVar[float] = 5.0

    def client_class(self) -> type[Client]:
        """The vendor's client behind our contract."""
        from blueprints.ec2.client import Ec2

        return Ec2

    def new_client(self, secrets: Mapping[str, Any]) -> Client:
        """A client for an account. Raises ValidationError."""
        from blueprints.ec2.client import Ec2

        return Ec2(Credential.model_validate(dict(secrets)))
