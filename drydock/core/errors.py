"""Errors that every layer may raise. The client package has the same classes, so errors are preserved over HTTP."""

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
