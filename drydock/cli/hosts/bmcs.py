"""Addresses of BMCs in the spellings of Ironic and MAAS, as the fields of Drydock's drivers."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from drydock.cli.hosts.rows import Unusable

_LEVELS = {"administrator": "administrator", "admin": "administrator", "operator": "operator", "user": "user"}


def redfish(address: Any, system: Any) -> dict[str, Any]:
    """Return the access of the driver `redfish`. `address` is a host or a URL; `system` an id or a path.

    Raises Unusable.
    """
    parts = _split(address, "https")
    if parts.scheme not in ("https", "http"):
        raise Unusable(f"the Redfish address {str(address)[:100]!r} is neither https nor http")
    if parts.path.strip("/") not in ("", "redfish", "redfish/v1"):
        raise Unusable(f"the Redfish service at {str(address)[:100]!r} has a path of its own, which is not supported")
    found: dict[str, Any] = {"driver": "redfish", "address": parts.hostname or ""}
    port = _port(parts)
    if port not in (None, 443) or parts.scheme == "http":
        found["port"] = port or 80
    if parts.scheme == "http":
        found["tls"] = "off"
    if name := str(system or "").rstrip("/").rpartition("/")[2]:
        found["system"] = name
    return found


def ipmi(address: Any, port: Any = None, cipher_suite: Any = None, privilege: Any = None) -> dict[str, Any]:
    """Return the access of the driver `ipmi`. Raises Unusable."""
    parts = _split(address, "ipmi")
    found: dict[str, Any] = {"driver": "ipmi", "address": parts.hostname or ""}
    given = str(port or _port(parts) or "")
    if given and given != "623":
        if not (given.isascii() and given.isdecimal() and 0 < int(given[:6]) < 65536):
            raise Unusable(f"{given[:20]!r} is not a UDP port")
        found["port"] = int(given)
    if (suite := str(cipher_suite or "")) not in ("", "3", "17"):
        raise Unusable(f"IPMI cipher suite {suite[:20]!r} is not supported; 3 and 17 are")
    if suite:
        found["cipher_suite"] = suite
    if level := _LEVELS.get(str(privilege or "").lower()):
        found["privilege"] = level
    return found


def _split(address: Any, scheme: str) -> Any:
    text = str(address or "").strip()
    if not text:
        raise Unusable("it has no address of a BMC")
    bare = text.count(":") > 1 and not text.startswith("[") and "://" not in text
    try:
        parts = urlsplit(text if "://" in text else f"{scheme}://[{text}]" if bare else f"{scheme}://{text}")
    except ValueError:
        raise Unusable(f"{text[:100]!r} is not an address") from None
    if parts.username is not None:
        raise Unusable("the address of the BMC contains a login")
    return parts


def _port(parts: Any) -> int | None:
    try:
        found: int | None = parts.port
    except ValueError:
        raise Unusable("the address of the BMC has an invalid port") from None
    return found
