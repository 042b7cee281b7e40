"""Resources."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from drydock_client.values.leases import Progress


@dataclass(frozen=True, kw_only=True)
class Usage:
    """The total and used amount of one class of a resource's capacity."""

    total: int
    used: int


@dataclass(frozen=True, kw_only=True)
class FailureInfo:
    """A failed action on a machine, kept until an action succeeds."""

    act: str
    """destroy, stop, start, power-cycle, reboot, resize, change-type or tag."""
    code: str
    """The provider's error code."""
    message: str
    """The provider's message."""
    attempts: int
    """Consecutive failed attempts since `since`."""
    since: dt.datetime
    at: dt.datetime
    """When the last attempt failed."""


@dataclass(frozen=True, kw_only=True)
class ResourceInfo:
    """A resource. `capacity` maps each class to its amounts: slots, cpu_millicores, ram_mib, disk_mib and others."""

    id: int
    name: str
    type: str
    blueprint: str
    kind: str
    origin: str
    identity: str
    part_of: int | None
    state: str
    reason: str
    message: str
    since: dt.datetime
    created_at: dt.datetime
    dies_at: dt.datetime | None
    gone_at: dt.datetime | None
    idle_since: dt.datetime | None
    drained: bool
    quarantined: bool
    in_maintenance: bool
    outdated: bool
    note: str
    observed: str
    power: str
    attributes: Mapping[str, Any]
    traits: tuple[str, ...]
    capacity: Mapping[str, Usage]
    facts: Mapping[str, Any]
    reserved_for: int | None
    leases: tuple[int, ...] = ()
    parts: tuple[Mapping[str, Any], ...] = ()
    progress: Progress | None = None
    price: float | None = None
    """Hourly cost of the whole resource in US dollars, until it is gone."""
    problems: tuple[str, ...] = ()
    """Why it is drained, quarantined or outdated, and the result of its last check, in sentences."""
    suspect_since: dt.datetime | None = None
    """When the resource stopped answering or failed its first check. It serves no new leases until it answers."""
    failure: FailureInfo | None = None
    """The last failed action on the resource."""
    identities: tuple[str, ...] = ()
    """Serial numbers, UUIDs and hardware addresses, each with its namespace."""
