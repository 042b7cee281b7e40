"""Blueprints, and the kinds that blueprints select."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drydock_client.values.resources import DeclaredActInfo


@dataclass(frozen=True, kw_only=True)
class BlueprintInfo:
    """A blueprint with the number of its resources and its remembered errors."""

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
    """The problems that a check found; filled only in the result of a check."""
    default_ttl: dt.timedelta | None = None
    """Duration of a lease whose request does not specify one."""
    max_ttl: dt.timedelta | None = None
    """Maximum duration of a lease."""
    discovery_interval: dt.timedelta | None = None
    """Interval between discoveries; None means the default of the kind."""


@dataclass(frozen=True, kw_only=True)
class BlueprintChange:
    """Changes to a blueprint. None leaves a value unchanged; `clear` lists the columns to set to null."""

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
    discovery_interval: str | float | dt.timedelta | None = None
    default_ttl: str | float | dt.timedelta | None = None
    max_ttl: str | float | dt.timedelta | None = None
    note: str | None = None
    clear: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class KindInfo:
    """A kind that blueprints may select, with the JSON Schemas of its fields."""

    name: str
    type: str
    description: str
    capabilities: tuple[str, ...]
    interfaces: tuple[str, ...]
    config: Mapping[str, Any]
    requirements: Mapping[str, Any]
    attributes: Mapping[str, Any]
    registration: Mapping[str, Any] | None = None
    acts: tuple[DeclaredActInfo, ...] = ()
    """The actions on its resources that the kind declares."""
