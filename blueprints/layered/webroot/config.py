"""Config of blueprints of kind webroot, attributes of a web root, and requirements of leases."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Self

from pydantic import Field, JsonValue, PositiveInt, model_validator

from blueprints.amounts import Amounts
from blueprints.contract import Fields
from blueprints.layered.frame import fits
from blueprints.matching import Match
from blueprints.specs import Asked, Draft
from interfaces.httpd import Site

Port = int


class Config(Fields):
    """Config of a blueprint of kind webroot. By default, sites can be reached only from this machine."""

    address: str = Field(default="127.0.0.1", description="Address of the host on which sites listen.")
    public_host: str = Field(default="", description="Host name in the addresses of pages. Empty: `address`.")
    first_port: Port = Field(default=8100, ge=1, le=65535, description="First port for sites.")
    last_port: Port = Field(default=8999, ge=1, le=65535, description="Last port for sites.")
    disk_mib: PositiveInt = Field(default=256, description="Default size of the storage, in MiB.")
    storage: Mapping[str, JsonValue] = Field(default={}, description="Requirements for the storage, such as its limit.")
    index: tuple[str, ...] = Field(default=("index.html",), description="File names of the index page of a folder.")
    headers: Mapping[str, str] = Field(default={}, description="Headers added to every answer.")
    fallback: str = Field(default="", description="Page that is shown in place of missing pages. Empty: a plain 404.")
    listing: bool = Field(default=False, description="List the contents of folders without an index page.")
    tls: bool = Field(default=False, description="Serve pages by HTTPS, with a new certificate for each lease.")

    @model_validator(mode="after")
    def _can_be_served(self) -> Self:
        if self.last_port < self.first_port:
            raise ValueError("last_port is less than first_port")
        ipaddress.ip_address(self.address)
        self.site(self.first_port)
        if self.tls and not self.public_host and ipaddress.ip_address(self.address).is_unspecified:
            raise ValueError("tls requires public_host if sites listen on all addresses: a certificate names its host")
        return self

    def site(self, port: int) -> Site:
        """Return the site on this port. Raises InvalidRequest."""
        return Site(
            address=self.address, port=port, public_host=self.public_host, index=self.index,
            headers=tuple(self.headers.items()), fallback=self.fallback, listing=self.listing, tls=self.tls,
        )  # fmt: skip

    def ports(self, start: int) -> list[str]:
        """Return all ports, rotated to a position derived from `start`.

        Sites then rarely request the same port first.
        """
        count = self.last_port - self.first_port + 1
        return [str(self.first_port + (start + n) % count) for n in range(count)]


class Attributes(Fields):
    """Attributes of a web root."""

    address: str | None = Field(default=None, description="Address on which the site listens.")
    public_host: str | None = Field(default=None, description="Host name in the addresses of pages.")
    tls: bool | None = Field(default=None, description="Whether pages are served by HTTPS.")


class Requirements(Fields):
    """Requirements that a lease may set for its web root."""

    address: str | None = Field(default=None, description="Address on which the site must listen.")
    public_host: str | None = Field(default=None, description="Host name in the addresses of pages.")
    tls: bool | None = Field(default=None, description="Whether pages must be served by HTTPS.")


MATCHES = (Match("address", "=", "address"), Match("public_host", "=", "public_host"), Match("tls", "=", "tls"))


def drafts(config: Config, asked: Asked | None) -> Iterator[Draft]:
    """Yield the draft that the config describes, if it matches the request."""
    size = (asked.amounts.disk_mib if asked else 0) or config.disk_mib
    attributes: dict[str, JsonValue] = {"address": config.address, "tls": config.tls}
    if config.public_host:
        attributes["public_host"] = config.public_host
    draft = Draft(attributes=attributes, capacity=Amounts(disk_mib=size))
    if asked is None or fits(MATCHES, draft, asked):
        yield draft
