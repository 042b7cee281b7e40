"""Deprecated: the old home of `leases.allocator.InsideTransaction`, which the documentation named."""

from __future__ import annotations

import warnings
from typing import Any

from leases.engine.core import database


def __getattr__(name: str) -> Any:
    if name != "InsideTransaction":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    message = "leases.engine.transaction.InsideTransaction is deprecated: import it from leases.allocator."
    warnings.warn(message, DeprecationWarning, stacklevel=2)
    return database.InsideTransaction
