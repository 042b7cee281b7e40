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
    """The secrets of a credential for EC2.

    It needs exactly one source (keys, a profile, the environment), and may name a role to assume with it.
    """

    # What was given may be a secret, so no error repeats it.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    access_key_id: str = Field(default="", description="Id of an access key.")
    secret_access_key: SecretStr = Field(default=SecretStr(""), description="Secret of the access key.")
    session_token: SecretStr = Field(
        default=SecretStr(""), description="Session token, for temporary access keys only."
    )
    profile: str = Field(default="", description="A profile in ~/.aws/config of the user that runs the workers.")
    environment: bool = Field(
        default=False,
        description="Use the credentials in the workers' environment, in the order of the AWS SDK: variables, then "
        "the role of the container or the instance.",
    )
    role_arn: str = Field(
        default="",
        pattern=r"^$|^arn:aws[a-z-]*:iam::\d{12}:role/\S+$",
        description="A role to assume with the credentials above.",
    )
    external_id: SecretStr = Field(
        default=SecretStr(""), description="External id, if the role's trust policy requires one."
    )
    region: str = Field(
        default="us-east-1",
        pattern=r"^[a-z0-9-]+$",
        description="Region for calls that are not made for a particular region.",
    )
    regions: tuple[str, ...] = Field(
        default=(), description="Allowed regions. Empty: every region enabled for the account."
    )
    endpoint: str = Field(
        default="", pattern=r"^$|^https?://\S+$", description="URL of a private cloud's API. Empty: Amazon's own."
    )
    ca_bundle: str = Field(default="", description="Path of a file with trusted certificates. Empty: the system's.")
    prices: str = Field(default="", description="Path of a price table that replaces the bundled one.")
    price_list: bool = Field(
        default=True,
        description="Query AWS's Price List for regions that the table lacks (permission pricing:GetProducts).",
    )
    rate: float = Field(
        default=1.0,
        gt=0,
        le=1000,
        description="Share of Amazon's published call rate that this process may use: 0.5 is half. Use more than 1 "
        "if the account's limits were raised, or for a private cloud.",
    )

    @field_validator("ca_bundle", "prices")
    @classmethod
    def _is_absolute(cls, path: str) -> str:
        if path and not Path(path).is_absolute():
            raise ValueError("It must be an absolute path, because workers run in folders of their own.")
        return path

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if bool(self.access_key_id) != bool(self.secret_access_key.get_secret_value()):
            raise ValueError("access_key_id and secret_access_key must be given together.")
        if self.session_token.get_secret_value() and not self.access_key_id:
            raise ValueError("session_token requires access_key_id and secret_access_key.")
        sources = [bool(self.access_key_id), bool(self.profile), self.environment]
        if sum(sources) != 1:
            raise ValueError("Give exactly one of: access_key_id with secret_access_key, profile, environment=true.")
        if self.external_id.get_secret_value() and not self.role_arn:
            raise ValueError("external_id requires role_arn.")
        return self


class Image(ImageWords):
    """The image that machines boot: a given image, or an owner's newest image with a matching name."""

    id: str = Field(default="", pattern=r"^$|^ami-[0-9a-f]+$", description="Id of an image (ami-...).")
    name: str = Field(
        default="debian-12-{arch}-20*",
        min_length=1,
        description="Name pattern with * and ?; {arch} becomes amd64 or arm64, as in the names of Debian and Ubuntu.",
    )
    owner: str = Field(
        default=DEBIAN,
        pattern=r"^(self|amazon|aws-marketplace|\d{12})$",
        description=(
            "Owner of the image: an account number, or self. This is needed because anybody may publish "
            "images under any name."
        ),
    )
