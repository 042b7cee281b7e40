"""The credential for Google Cloud, and the image selectors of a blueprint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, ConfigDict, Field, SecretStr, model_validator

from blueprints.cloud.config import ImageWords
from blueprints.contract import Fields

KEY_FIELDS = ("client_email", "private_key", "token_uri")
"""What google-auth needs of a service account's key."""


def _as_text(given: Any) -> Any:
    return json.dumps(given) if isinstance(given, Mapping) else given


class Credential(Fields):
    """One project, and in whose name: a service account's key, or what the machine we run on has.

    Nothing of the key shows in a repr or an error.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    project: str = Field(
        pattern=r"^([a-z0-9.-]+:)?[a-z][-a-z0-9]{4,28}[a-z0-9]$", description="The project's id, not its number."
    )
    service_account: Annotated[SecretStr | None, BeforeValidator(_as_text)] = Field(
        default=None, description="The JSON key of a service account, as text or as an object."
    )
    environment: bool = Field(
        default=False,
        description="Application default credentials: an attached service account, workload identity, or gcloud's.",
    )
    endpoint: str = Field(
        default="", pattern=r"^(https?://[^/\s]+)?$", description="Empty: https://compute.googleapis.com"
    )
    resource_manager: str = Field(
        default="",
        pattern=r"^(https?://[^/\s]+)?$",
        description="Address of Cloud Resource Manager, which tells what we may do. Empty: "
        "https://cloudresourcemanager.googleapis.com, or nobody is asked where endpoint is one's own.",
    )
    ca_bundle: str = Field(default="", description="File of certificate authorities, for an endpoint of one's own.")
    prices: str = Field(default="", description="File with prices, in place of the table that ships with us.")

    @model_validator(mode="after")
    def _is_somebody(self) -> Self:
        if self.environment == (self.service_account is not None):
            raise ValueError("give either service_account or environment: true")
        if self.service_account is not None:
            _check_key(self.key())
        return self

    def key(self) -> dict[str, Any]:
        """The service account's key. Raises ValueError where it is none."""
        text = self.service_account.get_secret_value() if self.service_account else ""
        try:
            key = json.loads(text)
        except ValueError:
            raise ValueError("service_account is not JSON; give the whole key file") from None
        if not isinstance(key, dict):
            raise ValueError("service_account is not the JSON object that a key file holds")
        return key


def _check_key(key: Mapping[str, Any]) -> None:
    if key.get("type") != "service_account":
        raise ValueError('service_account is not a key of a service account: its "type" must be "service_account"')
    missing = [name for name in KEY_FIELDS if not key.get(name)]
    if missing:
        raise ValueError(f"service_account lacks {', '.join(missing)}; give the whole key file")


class Image(ImageWords):
    """What an instance boots: the newest image of a family, an image by name, or one by its full link."""

    project: str = Field(default="", description="The image's project, such as debian-cloud.")
    family: str = Field(default="", description="Such as debian-12. For ARM its -arm64 sister is taken by itself.")
    name: str = Field(default="", description="One image of the project.")
    link: str = Field(
        default="",
        pattern=r"^((https://[^/]+/compute/v1/)?projects/[^/]+/global/images/(family/)?[^/]+)?$",
        description="projects/PROJECT/global/images/NAME, or .../images/family/FAMILY.",
    )

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if sum(map(bool, (self.family, self.name, self.link))) > 1:
            raise ValueError("give one of family, name and link")
        if self.link and self.project:
            raise ValueError("link says the project already")
        if bool(self.family or self.name) != bool(self.project):
            raise ValueError("project goes with family or name")
        return self

    def wanted(self) -> dict[str, str]:
        """As `Gce.image` takes it. Nothing said: Ubuntu 24.04, which has cloud-init; Google's Debian has not."""
        return super().wanted() or {"project": "ubuntu-os-cloud", "family": "ubuntu-2404-lts-amd64"}
