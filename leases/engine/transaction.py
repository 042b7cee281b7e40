"""Deprecated: import `InsideTransaction` from `leases.allocator` instead."""

from __future__ import annotations

from drydock.core.deprecation import moved

__getattr__ = moved(__name__, {"InsideTransaction": "leases.allocator"})
