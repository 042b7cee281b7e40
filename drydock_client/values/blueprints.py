"""Blueprints and the kinds they select."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class BlueprintInfo:
    """A blueprint, with how many of its resources are there and what is remembered against it."""

    id: int
    name: str
    kind: str
    type: str
    config: Mapping[str, Any]
    order: int
    enabled: bool
    drained: bool
    audience: str
    generation: int
    max_resources: int | None
    min_ready: int
    max_builds: int
    idle_timeout: dt.timedelta | None
    max_lifetime: dt.timedelta | None
    check_interval: dt.timedelta | None
    note: str
    there: int
    building: int
    errors: tuple[Mapping[str, Any], ...] = ()
    problems: tuple[Mapping[str, Any], ...] = ()
    """What its check found; only filled by a check."""
    default_ttl: dt.timedelta | None = None
    """How long a lease lasts that names no end."""
    max_ttl: dt.timedelta | None = None
    """The longest that a lease may last."""


@dataclass(frozen=True, kw_only=True)
class BlueprintChange:
    """What is to be different about a blueprint; None leaves a value, and `clear` names columns to empty."""

    kind: str | None = None
    config: Mapping[str, Any] | None = None
    order: int | None = None
    audience: str | None = None
    max_resources: int | None = None
    min_ready: int | None = None
    max_builds: int | None = None
    max_outdated: int | None = None
    idle_timeout: str | float | dt.timedelta | None = None
    max_lifetime: str | float | dt.timedelta | None = None
    check_interval: str | float | dt.timedelta | None = None
    default_ttl: str | float | dt.timedelta | None = None
    max_ttl: str | float | dt.timedelta | None = None
    note: str | None = None
    clear: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class KindInfo:
    """An implementation that blueprints may select, with the JSON Schemas of what it understands."""

    name: str
    type: str
    description: str
    capabilities: tuple[str, ...]
    interfaces: tuple[str, ...]
    config: Mapping[str, Any]
    requirements: Mapping[str, Any]
    attributes: Mapping[str, Any]
    registration: Mapping[str, Any] | None = None
