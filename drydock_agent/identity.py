"""Recognize placeholders in place of serial numbers and UUIDs, from firmware, tools or anonymized captures."""

from __future__ import annotations

import re

_UNKNOWN_TEXT = """
    n/a na null nil unknown [redacted] redacted not_available not_specified not_present not_applicable [n/a]
    [not_supported] not_supported unknown_error requested_functionality_has_been_deprecated
    insufficient_permissions to_be_filled_by_o.e.m. to_be_filled_by_oem default_string
"""

_UNKNOWN = frozenset(_UNKNOWN_TEXT.split())

_EMPTY_TEXT = """
    none unset undefined default o.e.m. oem system_serial_number serial_number chassis_serial_number
    base_board_serial_number system_product_name empty invalid no_asset_tag asset_tag
"""

_EMPTY = _UNKNOWN | frozenset(_EMPTY_TEXT.split())

_SERIES = "0123456789abcdef0123456789"

_UUID = re.compile(r"\A(?:[a-z]+-)?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\Z")

_WELL_KNOWN = frozenset(["03000200-0400-0500-0006-000700080009", "00020003-0004-0005-0006-000700080009"])


def identity(text: str | None) -> str:
    """Return an identifying text with normalized white space, or an empty string if it is missing or a placeholder."""
    plain = " ".join((text or "").split())
    lower = plain.lower()
    if not plain or len(plain) > 200 or lower.replace(" ", "_") in _EMPTY or not plain.isprintable():
        return ""
    core = re.sub(r"[^0-9a-z]", "", lower.removeprefix("0x"))
    if len(set(core)) <= 1 or (len(core) >= 8 and core in _SERIES):
        return ""
    if (match := _UUID.match(lower)) and (match[1] in _WELL_KNOWN or all(map(_made_up, match[1].split("-")))):
        return ""
    return plain


def known(text: str | None) -> str:
    """Return a value that a tool printed, or an empty string if it means "unknown", such as `N/A`."""
    plain = " ".join((text or "").split())
    return "" if plain.lower().replace(" ", "_") in _UNKNOWN else plain


def _made_up(group: str) -> bool:
    """Return whether a group of a UUID is one digit repeated, or digits in their order."""
    return len(set(group)) == 1 or group in _SERIES
