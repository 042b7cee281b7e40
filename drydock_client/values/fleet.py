"""The fleet as operators see it, its orphans, and instances: leases on whole cloud machines in a cloud's own words."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field

from drydock_client.values.resources import FailureInfo


@dataclass(frozen=True, kw_only=True)
class OrphanInfo:
    """A thing at a provider without a row (`side` is `object`), or a row without its thing (`row`).

    `id` is what `destroy` and `adopt` take; a row has none, and is looked at as `resource`.
    """

    id: int | None
    side: str
    key: str
    """Its name at the provider."""
    what: str
    things: tuple[str, ...]
    """All that stands there under that name, as the provider's own tools call it."""
    blueprint: str
    kind: str
    location: str
    zone: str
    type: str
    price: float | None
    """US dollars an hour, where that is known."""
    proof: str
    """`proven`; `unnamed`: its name is only a tag; `suspect`: never touched; `row`."""
    resource: int | None
    """The number of the resource that it was made for, or that the row is."""
    made_at: dt.datetime | None
    first_seen_at: dt.datetime | None
    seen_at: dt.datetime | None
    sightings: int
    wanted: str
    """What an operator has asked for: `destroy`, `adopt` or nothing."""
    wanted_by: str
    not_before: dt.datetime | None
    """Nothing is done to it before it is seen again after this."""
    message: str
    """What becomes of it."""


@dataclass(frozen=True, kw_only=True)
class BackendInfo:
    """One blueprint as a backend of the fleet: where and what it can serve, what stands there, and what that costs.

    Regions, technologies and sizes are those of the offers that it allows, as last read; of kinds without offers,
    those of the machines that are there.
    """

    name: str
    kind: str
    type: str
    account: str
    """The credential; empty where its kind has none."""
    order: int
    enabled: bool
    drained: bool
    max_resources: int | None
    regions: tuple[str, ...]
    confidential: tuple[str, ...]
    gpus: tuple[str, ...]
    offers: int
    largest_cpu_millicores: int
    largest_ram_mib: int
    cheapest: float | None
    """US dollars an hour, of what it could build."""
    can: tuple[str, ...]
    """What its kind can do."""
    capabilities: tuple[str, ...] | None
    """What its cloud can do; None where that was not asked for, or it is no cloud."""
    machines: Mapping[str, int] = field(default_factory=dict)
    """By state, of those that are not gone."""
    drift: Mapping[str, int] = field(default_factory=dict)
    """How many are not as they should be: `missing`, `stopped`, `power`, `outdated`, `quarantined`, `failing`."""
    price: float = 0.0
    """US dollars an hour, of all machines whose price is known."""
    unpriced: int = 0
    """Machines whose price is not known."""
    orphans: int = 0
    orphans_price: float = 0.0
    ages: Mapping[str, dt.timedelta | None] = field(default_factory=dict)
    """How old the oldest reading of each sort is; None: one was never made."""
    failing: tuple[str, ...] = ()
    """Readings that fail, and why."""
    errors: tuple[str, ...] = ()
    """What is remembered of builds that failed."""


@dataclass(frozen=True, kw_only=True)
class InstanceInfo:
    """A lease on a whole cloud machine.

    `state`: pending, running, stopping, stopped, terminating (the machine is still there), released (the lease is over,
    and the machine is kept for the next one), terminated (the machine is gone), reassigned (another lease has taken the
    machine) or failed.
    """

    id: int
    """The lease's."""
    name: str
    owner: str
    state: str
    message: str
    kind: str
    """The cloud; empty until it is decided."""
    blueprint: str
    location: str
    zone: str
    instance_type: str
    market: str
    price: float | None
    """US dollars an hour."""
    image: str
    provider_id: str
    public_address: str
    private_address: str
    ssh_user: str
    ssh_host: str
    ssh_port: int | None
    ssh_host_keys: tuple[str, ...]
    tags: Mapping[str, str]
    created_at: dt.datetime
    active_at: dt.datetime | None
    ended_at: dt.datetime | None
    until: dt.datetime | None
    resource: int | None
    replaced_by: int | None
    hourly_cost: float | None = None
    """What it costs now, in US dollars an hour: its price until the machine is gone, also after the end of the lease;
    0 when it is over; None where the price is not known."""
    kept_until: dt.datetime | None = None
    """Of a released one: when its machine is destroyed unless somebody takes it; None: nothing ends it."""
    failure: FailureInfo | None = None
    """The act on its machine that failed last: a destruction that is repeated, a stop, a start, a change."""
