"""Deprecated: tokens are stored by `drydock_client.token_store`."""

from __future__ import annotations

import warnings
from typing import Any

from drydock_client import token_store


def __getattr__(name: str) -> Any:
    if name.startswith("__") or not hasattr(token_store, name):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    message = f"{__name__}.{name} is deprecated: import it from {token_store.__name__}."
    warnings.warn(message, DeprecationWarning, stacklevel=2)
    return getattr(token_store, name)
