"""The credential for one Azure subscription, and the image selectors of a blueprint."""

from __future__ import annotations

import re
from typing import Any, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from blueprints.cloud.config import ImageWords
from blueprints.contract import Fields

ENDPOINT = "https://management.azure.com"
WAYS = "a token, a service principal (tenant_id, client_id, client_secret), managed_identity or environment"


class Credential(Fields):
    """The credential for one subscription and resource group, with one way to authenticate.

    It needs the role Contributor on the resource group, and Reader on the subscription, where sizes, usage and the
    status of all machines are read.
    """

    subscription_id: str = Field(min_length=1, description="The subscription's id (a GUID).")
    resource_group: str = Field(
        min_length=1,
        max_length=90,
        pattern=r"^[\w.()-]*[\w()-]$",
        description="An existing resource group. Everything is created in it; use it for nothing else.",
    )
    tenant_id: str = Field(default="", description="Tenant (directory) of the service principal.")
    client_id: str = Field(default="", description="Client id of the service principal.")
    client_secret: SecretStr = Field(default=SecretStr(""), description="Secret of the service principal.")
    managed_identity: bool | str = Field(
        default=False,
        description=(
            "true: the managed identity of the machine that Drydock runs on; or the client id of a managed identity."
        ),
    )
    environment: bool = Field(
        default=False, description="Use the credentials that azure-identity's DefaultAzureCredential finds."
    )
    token: SecretStr = Field(
        default=SecretStr(""), description="A bearer token that does not expire: for private clouds and tests."
    )
    endpoint: str = Field(default=ENDPOINT, description="URL of Azure Resource Manager.")
    authority: str = Field(default="", description="URL of the login endpoint. Empty: that of Azure's public cloud.")
    ca_bundle: str = Field(default="", description="File of trusted certificate authorities. Empty: the system's.")
    prices: str = Field(default="", description="File of a price table that replaces the bundled one.")

    @field_validator("managed_identity", mode="before")
    @classmethod
    def _words(cls, given: Any) -> Any:
        """Parse the text from a form or from the environment."""
        words = {"": False, "false": False, "no": False, "true": True, "yes": True}
        return words.get(given.strip().lower(), given.strip()) if isinstance(given, str) else given

    @field_validator("endpoint", "authority")
    @classmethod
    def _is_url(cls, given: str) -> str:
        if given and not given.startswith("https://"):
            raise ValueError("The URL must begin with https://, because a bearer token is sent to it.")
        return given.rstrip("/")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        principal = (self.tenant_id, self.client_id, self.client_secret.get_secret_value())
        if any(principal) and not all(principal):
            raise ValueError("A service principal needs tenant_id, client_id and client_secret.")
        ways = [bool(self.token.get_secret_value()), all(principal), bool(self.managed_identity), self.environment]
        if sum(ways) == 0:
            raise ValueError(f"The credential has no way to authenticate. Give {WAYS}.")
        if sum(ways) > 1:
            raise ValueError(f"The credential has more than one way to authenticate. Give only one of {WAYS}.")
        return self


class Image(ImageWords):
    """The image to boot: one from the marketplace, or one of your own, given by its id."""

    publisher: str = "Debian"
    offer: str = "debian-12"
    sku: str = Field(default="", description="SKU of the image. Empty: 12-gen2, or 12-arm64 for ARM.")
    version: str = Field(
        default="latest", description="Version of the image. latest is looked up once for each machine."
    )
    id: str = Field(
        default="",
        description="Resource id of a managed image, a gallery image or one of its versions, or "
        "PUBLISHER:OFFER:SKU:VERSION. The other fields are then unused.",
    )

    @model_validator(mode="after")
    def _whole(self) -> Self:
        own = self.id.lower().startswith(("/subscriptions/", "/communitygalleries/", "/sharedgalleries/"))
        if self.id and not own and not re.fullmatch(r"[^:/]+(:[^:/]+){3}", self.id):
            raise ValueError(
                "id must be a resource id such as /subscriptions/.../images/NAME, or PUBLISHER:OFFER:SKU:VERSION."
            )
        if not self.id and not (self.publisher and self.offer and self.version):
            raise ValueError("Give either publisher, offer, sku and version, or an id.")
        if not self.id and not self.sku and (self.publisher, self.offer) != ("Debian", "debian-12"):
            raise ValueError("An image of an offer other than Debian's requires a sku.")
        return self

    def sku_for(self, arch: str) -> str:
        """Return the sku, or Debian's for an architecture (Debian publishes 12-gen2 and 12-arm64)."""
        return self.sku or ("12-arm64" if arch == "arm64" else "12-gen2")
