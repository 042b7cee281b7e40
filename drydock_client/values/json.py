"""Values as JSON."""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
from collections.abc import Mapping
from typing import Any


def to_json(value: Any) -> Any:
    """Convert a value of this package, or a list of such values, to JSON types.

    Times become ISO 8601 strings, durations seconds, and bytes base64.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json(one) for one in value]
    if isinstance(value, dt.datetime):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value
