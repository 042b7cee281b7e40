"""Config of blueprints of kind dpf_image, attributes of an image, and requirements of leases."""

from __future__ import annotations

from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from blueprints.amounts import Amounts
from blueprints.answers import Json
from blueprints.contract import Fields
from blueprints.dpf import Server
from blueprints.matching import Match
from blueprints.specs import Draft

_USERS = 10_000
"""DPUs that can use one image at a time."""


class Image(Fields):
    """An image that DPUs can be installed with."""

    url: str = Field(max_length=2000, description="Address of the BFB, http or https, ending in .bfb.")
    doca: str = Field(default="", max_length=63, description="Version of DOCA in it, such as 2.9.1.")
    models: tuple[str, ...] = Field(
        default=("BlueField2", "BlueField3"), min_length=1, description="Generations of cards that it is made for."
    )

    @field_validator("url")
    @classmethod
    def _is_bfb(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise ValueError("Must be an address that begins with http:// or https://, without a user name.")
        if not parts.path.endswith(".bfb"):
            raise ValueError("The path must end in .bfb, because DPF accepts no other file.")
        return value


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

    url: str | None = Field(default=None, description="Address of the BFB.")
    doca: str | None = Field(default=None, description="Version of DOCA in it.")
    models: list[str] | None = Field(default=None, description="Generations of cards that it is made for.")


class Requirements(Fields):
    """Requirements that a lease may set for an image."""

    url: str | None = Field(default=None, description="Address of the BFB.")
    doca: str | None = Field(default=None, description="Version of DOCA.")
    model: str | None = Field(default=None, description="Generation of the card that it must be made for.")


MATCHES = (Match("url", "=", "url"), Match("doca", "=", "doca"), Match("models", "contains", "model"))


def draft(image: Image) -> Draft:
    """Return the draft of an image. A failed download is remembered by its address."""
    found: Json = {"url": image.url, "doca": image.doca or None, "models": list(image.models)}
    attributes = {name: value for name, value in found.items() if value is not None}
    return Draft(
        name=urlsplit(image.url).path.rpartition("/")[2], attributes=attributes, capacity=Amounts(slots=_USERS),
        offer=image.url,
    )  # fmt: skip
