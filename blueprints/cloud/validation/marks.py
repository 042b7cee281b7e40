"""Deprecated: `marks` is `blueprints.cloud.validation.tags.run_tags`."""

from __future__ import annotations

from drydock.core.deprecation import moved

_HOME = "blueprints.cloud.validation.tags"
__getattr__ = moved(__name__, {"Marks": f"{_HOME}:RunTags", "marks": f"{_HOME}:run_tags", "*": _HOME})
