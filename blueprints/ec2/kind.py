"""The kind `ec2`: hosts at Amazon EC2, built when a lease asks for one."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from blueprints.cloud.config import CloudConfig
from blueprints.cloud.kind import CloudHost
from blueprints.ec2.config import Credential, Image
from blueprints.ec2.interruption import READER
from blueprints.ec2.prices import table
from blueprints.offers import Offer

SNP_FEE = 0.1


class Config(CloudConfig):
    """Config of a blueprint of kind ec2."""

    interruption: ClassVar[str] = READER
    image: Image = Field(default=Image(), description="What machines boot.")
    cpu_credits: Literal["standard", "unlimited"] = Field(
        default="standard",
        description="Of the types T3, T3a and T4g. unlimited: they burst beyond their credits, and every vCPU hour of "
        "that is charged besides the price.",
    )

    def options(self) -> dict[str, str]:
        """`cpu_credits`, as `launches` reads it."""
        return {"cpu_credits": self.cpu_credits}


class Ec2Host(CloudHost):
    """Hosts at Amazon EC2."""

    name: ClassVar[str] = "ec2"
    Config = Config
    Credential = Credential
    client_at: ClassVar[str] = "blueprints.ec2.client:Ec2"
    sdk: ClassVar[tuple[str, ...]] = ("boto3>=1.44",)
    inventory_every: ClassVar[float] = 600.0
    status_every: ClassVar[float] = 5.0
    unauthenticated: ClassVar[frozenset[str]] = frozenset(
        {
            "AuthFailure",
            "ExpiredToken",
            "ExpiredTokenException",
            "IncompleteSignature",
            "InvalidAccessKeyId",
            "InvalidClientTokenId",
            "InvalidSecurity",
            "InvalidSecurityToken",
            "MissingAuthenticationToken",
            "RequestExpired",
            "SignatureDoesNotMatch",
            "UnrecognizedClientException",
            "credentials",
        }
    )

    def surcharge(self, offer: Offer) -> float | None:
        """A tenth of the price on demand, on the spot market too (EC2 guide, "AMD SEV-SNP", Pricing). Of a spot offer
        that is the bundled table's, where it has one."""
        usual = offer.price if offer.market == "on_demand" else table().regions.get(offer.location, {}).get(offer.type)
        return None if usual is None else SNP_FEE * usual
