"""The credential for EC2, and the image selectors of a blueprint."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import ConfigDict, Field, SecretStr, field_validator, model_validator

from blueprints.cloud.config import ImageWords
from blueprints.contract import Fields

DEBIAN = "136693071363"
"""The account that publishes Debian's own images (https://wiki.debian.org/Cloud/AmazonEC2Image)."""
UBUNTU = "099720109477"
"""The account that publishes Canonical's images
(https://documentation.ubuntu.com/aws/aws-how-to/instances/find-ubuntu-images/)."""
AMAZON = "137112412989"
"""The account that publishes Amazon Linux."""


class Credential(Fields):
    """The secrets of a credential for EC2: exactly one source (keys, a profile, the environment), perhaps with a role
    that is assumed from it."""

    # What was given may be a secret, so no error repeats it.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    access_key_id: str = Field(default="", description="Of an access key; with its secret half.")
    secret_access_key: SecretStr = Field(default=SecretStr(""), description="The secret half of the access key.")
    session_token: SecretStr = Field(default=SecretStr(""), description="Only for temporary access keys.")
    profile: str = Field(default="", description="A profile of ~/.aws/config of the user that runs the workers.")
    environment: bool = Field(
        default=False,
        description="Whatever the workers' environment offers, as every AWS program finds it: variables, the "
        "instance's or the container's role.",
    )
    role_arn: str = Field(
        default="", pattern=r"^$|^arn:aws[a-z-]*:iam::\d{12}:role/\S+$", description="A role to assume from the above."
    )
    external_id: SecretStr = Field(
        default=SecretStr(""), description="What the role's trust policy asks for, if it does."
    )
    region: str = Field(default="us-east-1", pattern=r"^[a-z0-9-]+$", description="For calls that need some region.")
    regions: tuple[str, ...] = Field(default=(), description="Only these; empty: every region enabled for the account.")
    endpoint: str = Field(
        default="", pattern=r"^$|^https?://\S+$", description="URL of a private cloud's API; empty: Amazon's own."
    )
    ca_bundle: str = Field(default="", description="Path of a file with the certificates to trust; empty: the usual.")
    prices: str = Field(
        default="", description="Path of a price table in the form of the one that is bundled, instead of it."
    )
    price_list: bool = Field(
        default=True,
        description="Ask AWS's Price List about regions that the table has not (permission pricing:GetProducts).",
    )
    rate: float = Field(
        default=1.0,
        gt=0,
        le=1000,
        description="How much of Amazon's published calls per second this process may use: 0.5 is half; more than 1 "
        "where the account's limits were raised, or at a private cloud.",
    )

    @field_validator("ca_bundle", "prices")
    @classmethod
    def _is_absolute(cls, path: str) -> str:
        if path and not Path(path).is_absolute():
            raise ValueError("This must be an absolute path, as workers run in folders of their own.")
        return path

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if bool(self.access_key_id) != bool(self.secret_access_key.get_secret_value()):
            raise ValueError("access_key_id and secret_access_key must be given together.")
        if self.session_token.get_secret_value() and not self.access_key_id:
            raise ValueError("session_token belongs to an access key; give access_key_id and secret_access_key too.")
        sources = [bool(self.access_key_id), bool(self.profile), self.environment]
        if sum(sources) != 1:
            raise ValueError("Give exactly one of: access_key_id with secret_access_key, profile, environment=true.")
        if self.external_id.get_secret_value() and not self.role_arn:
            raise ValueError("external_id is only of use with role_arn.")
        return self


class Image(ImageWords):
    """The image that machines boot: one by id, or an owner's newest one whose name matches."""

    id: str = Field(default="", pattern=r"^$|^ami-[0-9a-f]+$", description="Exactly this image (ami-...).")
    name: str = Field(
        default="debian-12-{arch}-20*",
        min_length=1,
        description="Pattern with * and ?; {arch} becomes amd64 or arm64, as Debian and Ubuntu call them.",
    )
    owner: str = Field(
        default=DEBIAN,
        pattern=r"^(self|amazon|aws-marketplace|\d{12})$",
        description="Whose image: an account number, or self. Anybody may publish images under any name.",
    )
