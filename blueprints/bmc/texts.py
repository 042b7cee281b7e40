"""Texts that drivers share: addresses in registrations, names of vendors, and foreign text in messages."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator

from drydock.core.characters import escaped
from drydock.core.logging import BLOT, redact

LONGEST = 300
"""Maximum number of characters of a foreign text in a message."""
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_NAME = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*")


def shown(text: str | bytes, secrets: Iterable[str] = ()) -> str:
    """Return a foreign text as one line of at most 300 characters, with these and all other known secrets redacted."""
    plain = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    parts = {part for secret in secrets for part in (secret, *secret.splitlines()) if part.strip()}
    for part in sorted(parts, key=len, reverse=True):
        plain = plain.replace(part, BLOT)
    line = escaped(" ".join(redact(plain).split()))
    return f"{line[:LONGEST]}…" if len(line) > LONGEST else line


def serial_of(vendor: str) -> str:
    """Return the namespace of a vendor's serial numbers, which is `serial:dell` for "Dell Inc." and "Dell EMC"."""
    return f"serial:{re.sub('[^a-z0-9]', '', vendor.lower().split(' ')[0]) or 'unknown'}"


def _is_address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        pass
    # Digits and dots that are no IPv4 address would be read as one by some resolvers, such as 127.1.
    if not _NAME.fullmatch(text) or not text.strip("0123456789."):
        raise ValueError("enter a host name or an IP address, without a scheme, port or path")
    return text


HostName = Annotated[str, AfterValidator(_is_address)]
"""A host name or IP address in a registration."""
