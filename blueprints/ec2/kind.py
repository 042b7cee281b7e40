"""The kind `ec2`: hosts on Amazon EC2, built when a lease needs one."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from blueprints.cloud.config import CloudConfig
from blueprints.cloud.kind import CloudHost
from blueprints.ec2.config import Credential, Image
from blueprints.ec2.errors import UNAUTHENTICATED
from blueprints.ec2.market import table
from blueprints.offers import Offer

READER = """
provider, every = "ec2", 5


def notice():
    token = ask("/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}, "PUT")
    try:
        said = json.loads(ask("/latest/meta-data/spot/instance-action", {"X-aws-ec2-metadata-token": token}))
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise
    return said["action"], said["time"]
"""
"""Program with which the guest checks whether EC2 will interrupt the instance (see `blueprints.cloud.interruption`).

Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html: 404 until two
minutes before the end; polling every 5 seconds is recommended. The service requires a session token (IMDSv2).
"""
SNP_FEE = 0.1


class Config(CloudConfig):
    """Config of a blueprint of kind ec2."""

    interruption: ClassVar[str] = READER
    image: Image = Field(default=Image(), description="Image that the machines boot.")
    cpu_credits: Literal["standard", "unlimited"] = Field(
        default="standard",
        description="CPU credits of the instance types T3, T3a and T4g. unlimited: machines may burst beyond their "
        "credits, and every vCPU hour beyond them is billed in addition to the price.",
    )

    def options(self) -> dict[str, str]:
        """Return `cpu_credits` for `instances.launch`."""
        return {"cpu_credits": self.cpu_credits}


class Ec2Host(CloudHost):
    """Hosts on Amazon EC2."""

    name: ClassVar[str] = "ec2"
    Config = Config
    Credential = Credential
    client_at: ClassVar[str] = "blueprints.ec2.client:Ec2"
    sdk: ClassVar[tuple[str, ...]] = ("boto3>=1.44",)
    inventory_every: ClassVar[float] = 600.0
    reserved_tags: ClassVar[tuple[str, ...]] = ("aws:",)
    status_every: ClassVar[float] = 5.0
    unauthenticated: ClassVar[frozenset[str]] = frozenset({*UNAUTHENTICATED, "credentials"})

    def surcharge(self, offer: Offer) -> float | None:
        """Return a tenth of the on-demand price, also on the spot market (EC2 guide, "AMD SEV-SNP", Pricing).

        For a spot offer, the on-demand price is read from the bundled table. Returns None if the table lacks it.
        """
        usual = offer.price if offer.market == "on_demand" else table().regions.get(offer.location, {}).get(offer.type)
        return None if usual is None else SNP_FEE * usual
