"""The credential for Google Cloud, and the image selectors of a blueprint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, ConfigDict, Field, SecretStr, model_validator

from blueprints.cloud.config import ImageWords
from blueprints.contract import Fields

KEY_FIELDS = ("client_email", "private_key", "token_uri")
"""Fields of a service account's key that google-auth needs."""


def _as_text(given: Any) -> Any:
    return json.dumps(given) if isinstance(given, Mapping) else given


class Credential(Fields):
    """The credential for one project: a service account's key, or the identity of the machine that Drydock runs on.

    The key never appears in a repr or an error.
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
        description=(
            "Use application default credentials: an attached service account, workload identity, or those of gcloud."
        ),
    )
    endpoint: str = Field(
        default="",
        pattern=r"^(https?://[^/\s]+)?$",
        description="URL of the API. Empty: https://compute.googleapis.com",
    )
    resource_manager: str = Field(
        default="",
        pattern=r"^(https?://[^/\s]+)?$",
        description="URL of Cloud Resource Manager, with which permissions are checked. Empty: "
        "https://cloudresourcemanager.googleapis.com, or no check if endpoint is set.",
    )
    ca_bundle: str = Field(default="", description="File of trusted certificate authorities, for your own endpoint.")
    prices: str = Field(default="", description="File of a price table that replaces the bundled one.")

    @model_validator(mode="after")
    def _is_somebody(self) -> Self:
        if self.environment == (self.service_account is not None):
            raise ValueError("give either service_account or environment: true")
        if self.service_account is not None:
            _check_key(self.key())
        return self

    def key(self) -> dict[str, Any]:
        """Return the service account's key. Raises ValueError if it is invalid."""
        text = self.service_account.get_secret_value() if self.service_account else ""
        try:
            key = json.loads(text)
        except ValueError:
            raise ValueError("service_account is not valid JSON; give the whole key file") from None
        if not isinstance(key, dict):
            raise ValueError("service_account must be the JSON object in a key file")
        return key


def _check_key(key: Mapping[str, Any]) -> None:
    if key.get("type") != "service_account":
        raise ValueError('service_account is not a service account\'s key: its "type" must be "service_account"')
    missing = [name for name in KEY_FIELDS if not key.get(name)]
    if missing:
        raise ValueError(f"service_account lacks {', '.join(missing)}; give the whole key file")


class Image(ImageWords):
    """The image that instances boot: the newest image of a family, an image by name, or an image by its full link."""

    project: str = Field(default="", description="The image's project, such as debian-cloud.")
    family: str = Field(
        default="", description="Image family, such as debian-12. For ARM, the family with the suffix -arm64 is used."
    )
    name: str = Field(default="", description="Name of an image in the project.")
    link: str = Field(
        default="",
        pattern=r"^((https://[^/]+/compute/v1/)?projects/[^/]+/global/images/(family/)?[^/]+)?$",
        description="Full link: projects/PROJECT/global/images/NAME, or .../images/family/FAMILY.",
    )

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if sum(map(bool, (self.family, self.name, self.link))) > 1:
            raise ValueError("give only one of family, name and link")
        if self.link and self.project:
            raise ValueError("link already includes the project, so omit project")
        if bool(self.family or self.name) != bool(self.project):
            raise ValueError("project requires family or name")
        return self

    def wanted(self) -> dict[str, str]:
        """Return the selectors in the form that `Gce.image` takes.

        The default is Ubuntu 24.04, which has cloud-init; Google's Debian does not.
        """
        return super().wanted() or {"project": "ubuntu-os-cloud", "family": "ubuntu-2404-lts-amd64"}
