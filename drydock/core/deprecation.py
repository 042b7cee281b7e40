"""Old import paths that the documentation mentioned. They still work, with a DeprecationWarning."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any


def moved(old: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a `__getattr__` for a module that finds names in their new modules.

    Args:
        old: the old module, for the warning.
        homes: the new module for each name, or MODULE:NAME if the name is new, too; "*" is the module for all others.
    """

    def find(name: str) -> Any:
        home, _, renamed = homes.get(name, homes.get("*", "")).partition(":")
        new = renamed or name
        if not home or name.startswith("__") or not hasattr(importlib.import_module(home), new):
            raise AttributeError(f"module {old!r} has no attribute {name!r}")
        message = f"{old}.{name} is deprecated: import {renamed or 'it'} from {home}."
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return getattr(importlib.import_module(home), new)

    return find
