"""The kind `ec2`: hosts at Amazon EC2, built when a lease asks for one."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

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
    client_at: ClassVar[str] = "blueprints.ec2.client:Ec2"
    inventory_every: ClassVar[float] = 600.0
    status_every: ClassVar[float] = 5.0
