"""Resources."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from drydock_client.values.leases import Progress


@dataclass(frozen=True, kw_only=True)
class Usage:
    """How much of one class of capacity a resource has and has given away."""

    total: int
    used: int


@dataclass(frozen=True, kw_only=True)
class FailureInfo:
    """An act on a machine that did not work, until one does."""

    act: str
    """destroy, stop, start, power-cycle, reboot, resize, change-type or tag."""
    code: str
    """The provider's own word for it."""
    message: str
    """The provider's own sentence."""
    attempts: int
    """Failed attempts of this act since `since`, one after another."""
    since: dt.datetime
    at: dt.datetime
    """When the last attempt failed."""


@dataclass(frozen=True, kw_only=True)
class ResourceInfo:
    """A resource. `capacity` is by class: slots, cpu_millicores, ram_mib, disk_mib and further ones."""

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
    """What the whole of it costs, in US dollars an hour, until it is gone."""
    problems: tuple[str, ...] = ()
    """Why it is drained, in quarantine or outdated, and what its last check said, in sentences."""
    suspect_since: dt.datetime | None = None
    """Since when it does not answer, or fails its first check: nobody is given it until it answers."""
    failure: FailureInfo | None = None
    """The act on it that failed last."""
