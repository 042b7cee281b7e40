"""The settings of a site. Each is checked before it is written to a configuration file."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self
from urllib.parse import quote

from drydock.core.errors import InvalidRequest
from interfaces.passing import unpassable

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
_TEXT = re.compile(r"[A-Za-z0-9 .,:;=/*+()_'@?&%-]{0,500}")


@dataclass(frozen=True, kw_only=True)
class Site:
    """The address and port on which a site listens, and how it serves.

    `public_host` replaces `address` in URIs. `headers` are (name, value) pairs added to every response. `fallback` is
    the page served in place of missing ones; "" means a plain 404. `listing` shows folders without an index page.
    `tls` serves HTTPS only, with the certificate and the key in the folder of the server. Raises InvalidRequest for
    values that a configuration file could misinterpret.
    """

    address: str
    port: int
    public_host: str = ""
    server_names: tuple[str, ...] = ()
    index: tuple[str, ...] = ("index.html",)
    headers: tuple[tuple[str, str], ...] = ()
    fallback: str = ""
    listing: bool = False
    tls: bool = False

    def __post_init__(self) -> None:
        try:
            ipaddress.ip_address(self.address)
        except ValueError as error:
            raise InvalidRequest("A site must listen on exactly one IP address.", field="address") from error
        if type(self.port) is not int or not 0 < self.port < 65536:
            raise InvalidRequest("The port must be from 1 to 65535.", field="port")
        if type(self.tls) is not bool:
            raise InvalidRequest("tls must be true or false.", field="tls")
        object.__setattr__(self, "headers", tuple((name, value) for name, value in self.headers))
        for field, pattern, texts in (
            ("public_host", _NAME, (self.public_host,) if self.public_host else ()),
            ("server_names", _NAME, self.server_names),
            ("index", _FILE, self.index),
            ("fallback", _FILE, (self.fallback,) if self.fallback else ()),
            ("headers", _HEADER, tuple(name for name, _ in self.headers)),
            ("headers", _TEXT, tuple(value for _, value in self.headers)),
        ):
            object.__setattr__(self, field, tuple(texts)) if field in ("server_names", "index") else None
            for text in texts:
                if not pattern.fullmatch(text):
                    raise InvalidRequest(f"A site's configuration cannot contain {text[:100]!r}.", field=field)

    @property
    def listen(self) -> str:
        """The address and port, as `address:port`."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port}"

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names and addresses by which clients reach the site. The one in its URIs is the first."""
        everywhere = ipaddress.ip_address(self.address).is_unspecified
        return tuple(dict.fromkeys([self.public_host or self.address, *([] if everywhere else [self.address])]))

    def uri(self, path: str = "") -> str:
        """Return the address of a page of the site. Raises InvalidRequest for invalid characters."""
        if said := unpassable(path):
            raise InvalidRequest(f"A path cannot contain {said}.", field="path")
        scheme = "https" if self.tls else "http"
        where = f"{self.public_host}:{self.port}" if self.public_host else self.listen
        return f"{scheme}://{where}/{quote(path.lstrip('/'), errors='surrogateescape')}"

    def to_json(self) -> dict[str, Any]:
        """Return the site as a dict of JSON types."""
        value = asdict(self)
        if not self.tls:
            del value["tls"]  # while an installation is upgraded, workers of the older version read the site too
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return the site that `to_json` wrote. Raises InvalidRequest."""
        try:
            return cls(**value)
        except TypeError as error:
            raise InvalidRequest(f"The site is invalid: {error}.") from error
