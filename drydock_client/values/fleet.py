"""The fleet, its orphans, and instances, which are leases of whole cloud machines."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field

from drydock_client.values.resources import FailureInfo


@dataclass(frozen=True, kw_only=True)
class OrphanInfo:
    """A provider object without a resource (`side` is `object`), or a resource without its provider object (`row`).

    The operations `destroy` and `adopt` take the `id` of an object. If `side` is `row`, `id` is None and `resource` is
    the id of the resource.
    """

    id: int | None
    side: str
    key: str
    """The object's name at the provider."""
    what: str
    things: tuple[str, ...]
    """All objects under that name, each by the id that the provider's own tools show."""
    blueprint: str
    kind: str
    location: str
    zone: str
    type: str
    price: float | None
    """Price of the object in US dollars per hour; None if unknown."""
    proof: str
    """`proven`, `unnamed` (its name is only a tag), `suspect` (never touched) or `row`."""
    resource: int | None
    """The id of the resource for which the object was created, or of the row itself."""
    made_at: dt.datetime | None
    first_seen_at: dt.datetime | None
    seen_at: dt.datetime | None
    sightings: int
    wanted: str
    """The action that an operator has requested: `destroy`, `adopt`, or empty."""
    wanted_by: str
    not_before: dt.datetime | None
    """Nothing is done to the object until it is seen again after this time."""
    message: str
    """A sentence that says what will be done about the orphan."""


@dataclass(frozen=True, kw_only=True)
class BackendInfo:
    """A blueprint as a backend of the fleet, with its offers, its machines and their cost.

    Regions, technologies and sizes are those of the blueprint's last polled offers or, for kinds without offers, those
    of its machines.
    """

    name: str
    kind: str
    type: str
    account: str
    """The name of the blueprint's credential; empty if its kind uses none."""
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
    """Price of the cheapest offer that the blueprint could build, in US dollars per hour."""
    can: tuple[str, ...]
    """The capabilities of the blueprint's kind."""
    capabilities: tuple[str, ...] | None
    """The capabilities of the blueprint's cloud. None if they were not requested, or if its kind is not a cloud."""
    machines: Mapping[str, int] = field(default_factory=dict)
    """Number of existing machines by state."""
    drift: Mapping[str, int] = field(default_factory=dict)
    """Number of machines by problem: `missing`, `stopped`, `power`, `outdated`, `quarantined`, `failing`, `cleaning`,
    `cleaning owed`."""
    price: float = 0.0
    """Total price of the machines whose price is known, in US dollars per hour."""
    unpriced: int = 0
    """Number of machines without a known price."""
    orphans: int = 0
    orphans_price: float = 0.0
    ages: Mapping[str, dt.timedelta | None] = field(default_factory=dict)
    """The age of the least recent poll of each type; None if one of these polls was never made."""
    failing: tuple[str, ...] = ()
    """The failing polls, and why they fail."""
    errors: tuple[str, ...] = ()
    """Remembered build errors."""


@dataclass(frozen=True, kw_only=True)
class InstanceInfo:
    """A lease of a whole cloud machine.

    `state` is pending, running, stopping, stopped, terminating (the machine still exists), released (the lease has
    ended, and the machine is kept for the next lease), terminated (the machine no longer exists), reassigned (another
    lease has taken the machine) or failed.
    """

    id: int
    """The id of the lease."""
    name: str
    owner: str
    state: str
    message: str
    kind: str
    """The cloud; empty until one has been chosen."""
    blueprint: str
    location: str
    zone: str
    instance_type: str
    market: str
    price: float | None
    """Price of the machine in US dollars per hour; None if unknown."""
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
    """Current cost in US dollars per hour; None if the price is unknown.

    It is the machine's price until the machine is gone, even after the lease, and then 0.
    """
    kept_until: dt.datetime | None = None
    """The time at which the idle machine of a released instance will be destroyed; None if it is kept."""
    failure: FailureInfo | None = None
    """The last failed action on the instance's machine: a destruction that is retried, a stop, a start or a change."""


@dataclass(frozen=True, kw_only=True)
class Workers:
    """Whether any worker is alive. `names` (host:process) is empty unless the caller is an operator."""

    alive: bool
    names: tuple[str, ...] = ()
