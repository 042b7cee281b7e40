"""Errors every layer may raise; the client package has the same ones, so that HTTP hides none of them."""

from __future__ import annotations

from drydock_client.errors import (
    Busy,
    Conflict,
    DrydockError,
    InvalidRequest,
    NotAllowed,
    NotFound,
    NotSupported,
    Problem,
    TimedOut,
)

__all__ = [
    "Busy",
    "Conflict",
    "DrydockError",
    "InvalidRequest",
    "NotAllowed",
    "NotFound",
    "NotSupported",
    "Problem",
    "TimedOut",
]
