"""Config of blueprints of kind dpf_image, attributes of an image, and requirements of leases."""

from __future__ import annotations

from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from blueprints.amounts import Amounts
from blueprints.answers import Json
from blueprints.contract import Fields
from blueprints.dpf import Server, images
from blueprints.kube import Dialect
from blueprints.matching import Match
from blueprints.specs import Draft, Problem

_USERS = 10_000
"""DPUs that can use one image at a time."""
_MODELS = {images.BFB: ("BlueField2", "BlueField3"), images.SOFTWARE: ("BlueField4",)}
"""Kind of the object -> generations of cards that it is made for."""


class Image(Fields):
    """An image that DPUs can be installed with."""

    url: str = Field(
        max_length=2000, description="Address, http or https: of a BFB or, for BlueField 4, of the ISO of the system."
    )
    doca: str = Field(default="", max_length=63, description="Version of DOCA in it, such as 2.9.1.")
    models: tuple[str, ...] = Field(
        default=(),
        description="Generations of cards that it is made for. Empty: BlueField2 and BlueField3, or BlueField4 for an "
        "ISO.",
    )
    firmware: str = Field(
        default="", max_length=2000, description="Address of the firmware of the card (PLDM) for an ISO."
    )
    platform_firmware: str = Field(
        default="",
        max_length=2000,
        description="Address of the firmware of the platform (PLDM) for an ISO, which has that of the NICs.",
    )
    nic_firmware: str = Field(
        default="", max_length=2000, description="Address of other firmware of the NICs for an ISO."
    )

    @field_validator("url")
    @classmethod
    def _is_image(cls, value: str) -> str:
        return images.check_url(value)

    @field_validator(*images.FIRMWARE)
    @classmethod
    def _is_address(cls, value: str) -> str:
        return images.check_address(value) if value else value

    @model_validator(mode="after")
    def _firmware_is_of_an_iso(self) -> Self:
        given = [name for name in images.FIRMWARE if getattr(self, name)]
        if given and images.kind_of(self.url) == images.BFB:
            raise ValueError(f"{given[0]}: a BFB has its firmware in it; only an ISO is given with other firmware.")
        if self.platform_firmware and self.nic_firmware:
            raise ValueError("nic_firmware: give it or platform_firmware, not both, because DPF accepts one of them.")
        return self

    @property
    def made_for(self) -> tuple[str, ...]:
        """The generations of cards that it is made for."""
        return self.models or _MODELS[images.kind_of(self.url)]


class Config(Server):
    """Config of a blueprint of kind dpf_image."""

    images: tuple[Image, ...] = Field(min_length=1, max_length=200, description="The images that may be used.")
    download_timeout: float = Field(default=3600.0, gt=0, description="Seconds that a download may take.")

    @model_validator(mode="after")
    def _are_different(self) -> Self:
        urls = [one.url for one in self.images]
        twice = next((url for url in urls if urls.count(url) > 1), None)
        if twice is not None:
            raise ValueError(f"images: {twice} is listed twice.")
        return self


class Attributes(Fields):
    """Attributes of an image."""

    url: str | None = Field(default=None, description="Address of the image.")
    doca: str | None = Field(default=None, description="Version of DOCA in it.")
    models: list[str] | None = Field(default=None, description="Generations of cards that it is made for.")
    firmware: str | None = Field(default=None, description="Address of the firmware of the card.")
    platform_firmware: str | None = Field(default=None, description="Address of the firmware of the platform.")
    nic_firmware: str | None = Field(default=None, description="Address of the firmware of the NICs.")


class Requirements(Fields):
    """Requirements that a lease may set for an image."""

    url: str | None = Field(default=None, description="Address of the image.")
    doca: str | None = Field(default=None, description="Version of DOCA.")
    model: str | None = Field(default=None, description="Generation of the card that it must be made for.")


MATCHES = (Match("url", "=", "url"), Match("doca", "=", "doca"), Match("models", "contains", "model"))


def inexpressible(dialect: Dialect, config: Config, where: str) -> list[Problem]:
    """Return the fields that servers of a dialect do not accept of the images."""
    found = dict[str, None]()
    for one in config.images:
        made = images.manifest(dialect, "image", config.namespace, draft(one).attributes)
        findings = dialect.missing(made)
        for path in (*findings.unknown, *findings.missing, *findings.invalid):
            found[f"The API server at {where} does not accept the field {path} of a {made['kind']}."] = None
    return [Problem(message=message, field="images") for message in found]


def draft(image: Image) -> Draft:
    """Return the draft of an image. A failed download is remembered by its address."""
    found: Json = {"url": image.url, "doca": image.doca, "models": list(image.made_for)}
    found |= {name: getattr(image, name) for name in images.FIRMWARE}
    attributes = {name: value for name, value in found.items() if value}
    return Draft(
        name=urlsplit(image.url).path.rpartition("/")[2], attributes=attributes, capacity=Amounts(slots=_USERS),
        offer=image.url,
    )  # fmt: skip
