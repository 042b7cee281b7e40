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
    """The last failed action on a machine, shown until a later action succeeds."""

    act: str
    """destroy, stop, start, power-cycle, reboot, resize, change-type or tag, or an act of the kind."""
    code: str
    """The provider's error code."""
    message: str
    """The provider's message."""
    attempts: int
    """Consecutive failed attempts since `since`."""
    since: dt.datetime
    at: dt.datetime
    """The time at which the last attempt failed."""


@dataclass(frozen=True, kw_only=True)
class CleaningInfo:
    """The cleaning that a resource needs before it is leased again."""

    state: str
    """`cleaning` while it is done, `cleaning owed` while it waits for its next attempt or for other work."""
    since: dt.datetime
    """The end of the first of `leases`."""
    leases: tuple[int, ...] = ()
    """The ended leases after which the resource must be cleaned."""
    percent: int | None = None
    sentence: str = ""
    """The present step of the cleaning, or the reason why it waits."""
    failures: int = 0
    """Failed attempts."""
    failure: str = ""
    """The step that failed last, and what it said."""
    next_at: dt.datetime | None = None
    """The time of the next attempt; None while it is being cleaned."""


@dataclass(frozen=True, kw_only=True)
class UpdateInfo:
    """The update that an outdated resource needs, because the config of its blueprint was changed."""

    state: str
    """`waiting` for leases to end, `due`, or `running`, also while its first step waits until it may begin."""
    sentence: str
    """The update as a sentence: its progress, or the leases that it waits for and until when."""
    disruption: str = ""
    """How the update disturbs leases; empty if it disturbs none."""
    leases: tuple[int, ...] = ()
    """The leases that would be disturbed, for which the update waits."""
    until: dt.datetime | None = None
    """The end of the last of these leases; None if one of them has no end, or if the update waits for none."""


@dataclass(frozen=True, kw_only=True)
class DeclaredActInfo:
    """An act: an action on a resource that the resource's kind declares."""

    name: str
    summary: str
    by: str
    """Who may start it: `operator`, or also the `holder` of the whole resource."""
    holders: str
    """What happens to other leases on the resource: `keep`, `refuse` or `wait`."""
    power: str
    """The power that the resource must have: `any`, `on` or `off`."""
    dangerous: bool
    """Whether it loses data, or can make the resource unusable."""
    arguments: Mapping[str, Any]
    """The JSON Schema of its arguments."""


@dataclass(frozen=True, kw_only=True)
class ActInfo(DeclaredActInfo):
    """An act on one resource, with its progress while it runs, and the outcome of its last run."""

    resource: int
    refused: str = ""
    """Why the caller cannot start it now; empty if nothing is in the way."""
    progress: Progress | None = None
    outcome: str = ""
    """`asked` or `cancelling` while it runs, then `done`, `failed` or `cancelled`; empty if it was never requested."""
    message: str = ""
    at: dt.datetime | None = None


@dataclass(frozen=True, kw_only=True)
class ResourceInfo:
    """A resource. `capacity` maps each class, such as slots and cpu_millicores, to its total and used amount."""

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
    """Sentences that say why the resource is drained, quarantined or outdated, and why its last check failed."""
    suspect_since: dt.datetime | None = None
    """The time since which the resource serves no new leases, because it does not respond or failed its first check."""
    failure: FailureInfo | None = None
    """The last failed action on the resource."""
    cleaning: CleaningInfo | None = None
    """The cleaning that the resource still needs; None if it needs none."""
    update: UpdateInfo | None = None
    """The update that the resource needs; None if it is up to date, or is replaced instead."""
    locality: tuple[str, ...] = ()
    """The position of the resource within its topmost parent, as names from the widest place to the narrowest."""
    health: str = "ok"
    """`ok`, `degraded` (new leases only as a last resort) or `failed`."""
    health_reason: str = ""
    """A sentence that says what is wrong with the health of the resource."""
    no_reboots: str = ""
    """Why maintenance must not reboot the resource now; empty if it may."""
    credential_fields: tuple[str, ...] = ()
    """The names of the secrets in the resource's own credential; empty if it has none."""
    identities: tuple[str, ...] = ()
    """Serial numbers, UUIDs and hardware addresses, each in the form `NAMESPACE VALUE`."""
    status: str = ""
    """The state in words for operators: enrolling, available, deploying, in use, rescue, cleaning, cleaning owed,
    quarantined, drained, maintenance, unreachable, broken, removing or removed."""


@dataclass(frozen=True, kw_only=True)
class RegistrationInfo:
    """What a registration would make: the name, identity and attributes of the resource. Nothing is stored."""

    blueprint: str
    name: str
    identity: str
    identities: tuple[str, ...]
    attributes: Mapping[str, Any]
    traits: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ErasureInfo:
    """The record of the erasure of one disk, or of a failed attempt at it. A record is never changed.

    It is kept longer than its resource and its lease, so their ids may no longer exist.
    """

    id: int
    recorded_at: dt.datetime
    """By the clock of the server; the other times are those of the machine."""
    resource: int
    resource_name: str
    blueprint: str
    kind: str
    identities: tuple[str, ...]
    """Identities of the machine at that time, such as its serial number."""
    lease: int | None
    """The lease after which the disk was erased; None if it was erased for no lease."""
    lease_name: str
    owner: str
    """The owner of that lease."""
    disk: str
    """Name of the disk in the machine."""
    serial: str
    wwn: str
    model: str
    size_bytes: int
    method: str
    bytes: int
    """Bytes that were erased, or overwritten."""
    started_at: dt.datetime
    ended_at: dt.datetime
    verified: bool
    """Whether the disk was read afterwards and nothing was left on it."""
    problem: str
    """Why the disk is not erased, or not proven to be."""
    phase: str
    """The work of which the erasure was a part, such as `clean` or `act`."""
    act: str
    step: str
    requested_by: str
    """The user who ended the lease or requested the act; `drydock` if no user did."""


@dataclass(frozen=True, kw_only=True)
class SensorReadingInfo:
    """What one sensor of a resource measured."""

    name: str
    value: float | None
    """None if the sensor had no value."""
    unit: str
    """Cel (degrees Celsius), RPM, W, V, A, % or what the machine calls it."""
    state: str
    """`ok`, `warning`, `critical` or `unknown`."""


@dataclass(frozen=True, kw_only=True)
class SensorReportInfo:
    """What the sensors of a resource measured at one time."""

    id: int
    at: dt.datetime
    power_watts: float | None
    """The power that the whole resource drew; None if it is not measured."""
    readings: tuple[SensorReadingInfo, ...]
