"""Validate server addresses, and decide whether a token may be sent to a server."""

from __future__ import annotations

import ipaddress
import os
import ssl
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from drydock_client.errors import InvalidRequest, NotAllowed

INSECURE, CA = "DRYDOCK_INSECURE", "DRYDOCK_CA"


def checked(url: str) -> str:
    """Return the address of a server, without a trailing slash.

    Raises InvalidRequest if `url` is not the address of a server, and NotAllowed if the token would be sent unencrypted
    over a network.
    """
    parts = urlsplit(url if "//" in url else f"https://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise InvalidRequest(f"{url!r} is not the address of a server.", field="server", hint="Write https://HOST.")
    if parts.username or parts.password:
        raise InvalidRequest(
            "The address must not contain a user name or password.", field="server", hint="Use DRYDOCK_TOKEN."
        )
    if parts.scheme == "http" and not loopback(parts.hostname) and os.environ.get(INSECURE) != "1":
        raise NotAllowed(
            f"The token was not sent to {parts.hostname}, because anyone on the network could read it over plain HTTP.",
            hint=f"Use https://. If you trust the network: drydock --insecure, or {INSECURE}=1.",
        )
    return parts.geturl().rstrip("/")


def trusted(ca: str | None) -> str | None:
    """Return the file of trusted certificates, or None to trust the system's certificates.

    Raises InvalidRequest if the file cannot be used.
    """
    chosen = ca or os.environ.get(CA, "").strip()
    if not chosen:
        return None
    file = Path(chosen).expanduser()
    try:
        ssl.create_default_context(cafile=str(file))
    except (OSError, ssl.SSLError):
        raise InvalidRequest(
            f"{file} contains no readable certificates.", field="ca", hint="It must be a PEM file."
        ) from None
    return str(file)


def loopback(host: str) -> bool:
    """Return whether a host name or address is this machine's loopback address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def proxy_for(url: str) -> str | None:
    """Return the proxy that the environment sets for a server, or None. This machine never needs a proxy."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if loopback(host) or urllib.request.proxy_bypass(host):
        return None
    return urllib.request.getproxies().get(parts.scheme)
