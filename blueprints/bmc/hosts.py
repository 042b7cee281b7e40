"""Addresses in registrations of BMCs."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated

from pydantic import AfterValidator

_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_NAME = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*")


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
