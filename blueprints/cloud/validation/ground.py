"""Deprecated: `Ground` is `blueprints.cloud.validation.environment.Environment`."""

from __future__ import annotations

from drydock.core.deprecation import moved

__getattr__ = moved(__name__, {"Ground": "blueprints.cloud.validation.environment:Environment"})
