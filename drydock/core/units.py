"""Durations and sizes as people write them."""

from __future__ import annotations

import datetime as dt
import re

from drydock.core.errors import InvalidRequest

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_MIB = {
    "": 1,
    "M": 1,
    "MIB": 1,
    "MB": 1,
    "G": 1024,
    "GIB": 1024,
    "GB": 1024,
    "T": 1 << 20,
    "TIB": 1 << 20,
    "TB": 1 << 20,
}
_LONGEST = dt.timedelta(days=3650)


def duration(text: str | float | dt.timedelta, *, field: str = "") -> dt.timedelta:
    """Return the duration given as `90`, `"90s"`, `"1h30m"` or a timedelta; a bare number is in seconds.

    Raises InvalidRequest if it is not a valid duration, not positive, or longer than ten years.
    """
    span = text if isinstance(text, dt.timedelta) else dt.timedelta(seconds=_seconds(text, field))
    if not dt.timedelta(0) < span <= _LONGEST:
        raise InvalidRequest(f"The duration {text!r} must be more than 0 and at most 3650d.", field=field)
    return span


def _seconds(text: str | float, field: str) -> float:
    if isinstance(text, int | float) and not isinstance(text, bool):
        return float(max(-1e10, min(text, 1e10))) if text == text else 0.0
    if len(str(text)) > 63:
        raise InvalidRequest("It is not a valid duration.", field=field, hint='Write it like "90s", "2h" or "1h30m".')
    pieces = re.findall(r"([0-9]+(?:\.[0-9]+)?)([smhdw])", str(text))
    if pieces and "".join(n + u for n, u in pieces) == text:
        return min(sum(float(n) * _SECONDS[u] for n, u in pieces), 1e10)
    if re.fullmatch(r"[0-9]{1,10}(\.[0-9]+)?", str(text)):
        return float(text)
    raise InvalidRequest(
        f"{text!r} is not a valid duration.", field=field, hint='Write it like "90s", "2h" or "1h30m".'
    )


def mebibytes(text: str | int, *, field: str = "") -> int:
    """Return the size in MiB given as `512`, `"512MiB"`, `"4G"` or `"1TiB"`; a bare number is in MiB.

    Raises InvalidRequest if it is not a valid size, or exceeds 2^40 MiB.
    """
    found = re.fullmatch(r"([0-9]{1,13})\s*([A-Z]*)", str(text).strip().upper())
    if isinstance(text, bool) or not found or found[2] not in _MIB:
        raise InvalidRequest(f"{text!r} is not a valid size.", field=field, hint='Write it like "512MiB" or "4GiB".')
    size = int(found[1]) * _MIB[found[2]]
    if size > 1 << 40:
        raise InvalidRequest(f"{text!r} is too large.", field=field)
    return size


_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def written(span: dt.timedelta) -> str:
    """Return a duration in the form in which it can be entered: `1d12h`, `90s`."""
    seconds = span.total_seconds()
    if seconds != int(seconds):
        return f"{seconds:f}".rstrip("0") + "s"
    rest, pieces = int(seconds), []
    for size, unit in _UNITS:
        count, rest = divmod(rest, size)
        if count:
            pieces.append(f"{count}{unit}")
    return "".join(pieces) or "0s"


def in_words(span: dt.timedelta | float) -> str:
    """Return a duration for people to read: `850 ms`, `12 s`, `4 min`, `2 h 5 min`, `3 d`."""
    seconds = span.total_seconds() if isinstance(span, dt.timedelta) else float(span)
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    if seconds < 3600:
        return f"{seconds // 60:.0f} min"
    if seconds < 86400:
        return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:.0f} min".replace(" 0 min", "")
    return f"{seconds / 86400:.0f} d"
