"""Where a server is, and whether a token may be sent there."""

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
    """The address of a server without a slash at its end. Raises InvalidRequest for what is none, NotAllowed where
    a token would cross a network in the clear."""
    parts = urlsplit(url if "//" in url else f"https://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise InvalidRequest(f"{url!r} is not an address of a server.", field="server", hint="Write https://HOST.")
    if parts.username or parts.password:
        raise InvalidRequest("The address must not hold a password.", field="server", hint="Use DRYDOCK_TOKEN.")
    if parts.scheme == "http" and not loopback(parts.hostname) and os.environ.get(INSECURE) != "1":
        raise NotAllowed(
            f"A token is not sent to {parts.hostname} over plain HTTP, where everybody on the way could read it.",
            hint=f"Use https://. Where the way is safe all the same: drydock --insecure, or {INSECURE}=1.",
        )
    return parts.geturl().rstrip("/")


def trusted(ca: str | None) -> str | None:
    """The file of certificates to trust; None for the system's. Raises InvalidRequest where there is none."""
    chosen = ca or os.environ.get(CA, "").strip()
    if not chosen:
        return None
    file = Path(chosen).expanduser()
    try:
        ssl.create_default_context(cafile=str(file))
    except (OSError, ssl.SSLError):
        raise InvalidRequest(
            f"{file} holds no certificates that can be read.", field="ca", hint="PEM is needed."
        ) from None
    return str(file)


def loopback(host: str) -> bool:
    """Whether a host is this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def proxy_for(url: str) -> str | None:
    """The proxy that the environment names for a server; never for this machine."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if loopback(host) or urllib.request.proxy_bypass(host):
        return None
    return urllib.request.getproxies().get(parts.scheme)
