"""Deprecated. Requests are in `leases.validation.requests`."""

from __future__ import annotations

from drydock.core.deprecation import moved

__getattr__ = moved(__name__, {"*": "leases.validation.requests"})
