"""The answers that a step may return. This module depends on no database, queue or provider."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from blueprints.amounts import Amounts
from blueprints.identities import Identity
from blueprints.parts import Part
from blueprints.records.erasures import Erasure
from blueprints.records.evidence import Evidence
from blueprints.records.sensors import SensorReport

Json: TypeAlias = dict[str, Any]


class Scope(StrEnum):
    """The extent of a failure, which decides what is tried next."""

    STEP = "step"
    """Only this attempt. The same step is repeated with backoff, a limited number of times."""
    OFFER = "offer"
    """This offer (an instance type in a zone): it is remembered as failing, and the next offer is tried."""
    ZONE = "zone"
    """All offers of this zone."""
    LOCATION = "location"
    """All offers of a location or, if `Failed.key` is set, only those that count against the same quotas."""
    BLUEPRINT = "blueprint"
    """Everything that this blueprint could build: the next blueprint is tried."""
    OPERATOR = "operator"
    """A person must fix something (a credential, a configuration) before this blueprint can work."""


HealthState: TypeAlias = Literal["ok", "degraded", "failed"]


@dataclass(frozen=True, kw_only=True)
class Health:
    """The health of a resource, also of one that is switched off.

    A `degraded` resource works, but serves new leases only as a last resort: if no healthy resource has room and none
    can be built now. A `failed` resource is treated like one that fails its check, and serves no new leases meanwhile.
    """

    state: HealthState = "ok"
    reason: str = ""
    """A sentence for people that says what is wrong."""


@dataclass(frozen=True, kw_only=True)
class Ready:
    """The step is done.

    `facts` are stored with the resource (or lease) and are visible to its owner. `secrets` are stored encrypted, and
    only later steps and interfaces get them.
    """

    facts: Json = field(default_factory=dict)
    secrets: Json = field(default_factory=dict)
    resource_facts: Json = field(default_factory=dict)
    """Facts that are stored with the resource, also by a phase of a lease, whose `facts` are stored with the lease."""
    resource_secrets: Json = field(default_factory=dict)
    """Secrets that are stored with the resource, in the same way. They stay until they are overwritten."""
    own_credential: Json = field(default_factory=dict)
    """Fields of the resource's own credential (`Kind.OwnCredential`) that the step chose, such as a new password.

    They are stored encrypted before the next step is called, and replace those that an operator has set.
    """
    host: str | None = None
    """Name or serial number of the host that the resource is part of. It is part of none if this is empty, or if none
    or several hosts have it. None leaves it where it is."""
    log: str = ""
    attributes: Json = field(default_factory=dict)
    """Attributes of the resource that the step found. They override those of its draft."""
    traits: frozenset[str] | None = None
    """The resource's traits, if they differ from its draft."""
    capacity: Amounts | None = None
    """The resource's capacity, if it differs from its draft."""
    parts: tuple[Part, ...] | None = None
    """Parts that the step found, with their states; None if the step does not report parts.

    List all parts of each part class that you report: any other part of the class counts as missing. An empty tuple
    means that the resource has no parts any more.
    """
    identities: tuple[Identity, ...] = ()
    """Identities of the resource that the step found (see `blueprints.identities.real`), added to known ones.

    If another resource already has one of them, this resource is quarantined.
    """
    dies_at: dt.datetime | None = None
    """The time at which the provider will end the resource by itself."""
    health: Health | None = None
    """The health of the resource, or None if the step says nothing about it. A build or a check that answers `failed`
    has failed."""
    power: Literal["", "on", "off"] = ""
    """The power to which the step has switched the resource; empty if it has not switched it.

    An earlier request for another power (`ResourceView.power_wanted`) then ends, so that Drydock does not switch the
    resource back. Checks report the power that they find as the fact `power` instead.
    """
    rediscover: bool = False
    """Whether the step changed what a discovery finds. The place of the resource is then searched again at once."""
    gone: tuple[str, ...] = ()
    """Identities of discovered parts of the resource that the step removed.

    They are handed back at once, instead of counting as lost later. Set `rediscover` too.
    """
    erasures: tuple[Erasure, ...] = ()
    """Disks that the step has erased, or failed to erase. They are recorded together with the answer."""
    sensors: SensorReport | None = None
    """The readings of the resource's sensors, or None if the step has not read them."""
    evidence: tuple[Evidence, ...] = ()
    """Attestation evidence that the step has collected. It is kept with the lease that the step is for."""
    gives_back: tuple[str, ...] = ()
    """Names of leases for life that the resource does not need any more. They are released with the answer."""
    carrier_health: Health | None = None
    """The health of the resource's carrier (`contract.Carried`), or None if the step says nothing about it."""
    ends_phase: bool = False
    """Whether the steps that follow have nothing to do, so that the phase is done.

    For checks of many resources, of which most need only the first step: each step costs a claim and a commit.
    """


@dataclass(frozen=True, kw_only=True)
class Wait:
    """The step is not done yet. It is called again after `after` seconds with `memo`, which is committed first."""

    after: float = 1.0
    watched: float | None = None
    """Seconds to wait instead while watches of the kind work. Set it only if every change that matters is watched."""
    memo: Json = field(default_factory=dict)
    percent: int | None = None
    sentence: str = ""
    log: str = ""


@dataclass(frozen=True, kw_only=True)
class Failed:
    """The step failed and is not continued. `code` is the error code of the provider."""

    scope: Scope
    message: str
    code: str = ""
    key: str = ""
    """Quota keys to exclude, in the form of `Offer.counted`; only for `Scope.LOCATION`. An empty part matches any."""
    blames_request: bool = False
    """Whether the provider rejected the request as invalid.

    If it rejects one type, that type may be the cause. If it rejects several types, an operator must correct the
    config.
    """
    remember: float | None = None
    """Seconds for which the offer, zone or blueprint is not tried again; None for the engine's default."""
    log: str = ""
    facts: Json = field(default_factory=dict)
    """Facts kept with the resource (or lease) if the phase ends with this failure, for the plan that undoes it."""
    erasures: tuple[Erasure, ...] = ()
    """Disks that the step has erased, or failed to erase, before it failed. They are recorded as those of `Ready`."""
    evidence: tuple[Evidence, ...] = ()
    """Attestation evidence that the step has collected, kept as that of `Ready`."""
    quarantines: bool = False
    """Whether the resource cannot be trusted any more, so that it serves no new leases until an operator has acted."""
    quarantines_carrier: bool = False
    """The same about the resource's carrier (`contract.Carried`), such as the card that a DPU is installed on."""


@dataclass(frozen=True, kw_only=True)
class Unknown:
    """The answer was lost, so it is unknown whether the call had its effect.

    The engine calls `find` next, and never `act`.
    """

    message: str
    memo: Json | None = None


@dataclass(frozen=True, kw_only=True)
class Absent:
    """The object that the step creates provably does not exist, so `act` may be called. Only `find` returns this."""


@dataclass(frozen=True, kw_only=True)
class Hold:
    """A person must do or decide something first. The step is called again once an operator has resolved the hold.

    `spec.resolution` then contains the operator's answer, until the step is done or returns another Hold.
    """

    who: str
    what: str
    """The task or question, which an operator resolves with yes or no."""
    memo: Json | None = None
    """Stored and passed to the next call. If None, the step keeps its memo."""


@dataclass(frozen=True, kw_only=True)
class Resolution:
    """An operator's answer to a Hold."""

    yes: bool
    """Whether the task has been done, or the answer to the question is yes."""
    text: str = ""
    actor: str = ""
    """Name of the operator."""


@dataclass(frozen=True, kw_only=True)
class NeededLease:
    """A lease that a step requests.

    If `lifetime` is "life", the lease is held as long as the step's resource (or lease) exists. If it is "phase", the
    lease is held until the present phase ends.
    """

    name: str
    type: str
    requirements: Mapping[str, Any] = field(default_factory=dict)
    amounts: Amounts = field(default_factory=Amounts)
    exclusive: bool = False
    lifetime: Literal["life", "phase"] = "life"
    on_resources: tuple[int, ...] = ()
    """Ids of resources (`spec.parents[...].resource.id`); the lease must be on one of them. Empty means any."""


@dataclass(frozen=True, kw_only=True)
class NeededLock:
    """A slot lock that a step requests: the first of `candidates` in `scope` that is not taken.

    Examples are a port on a host, or one GPU. The lock is held as long as the step's resource (or lease) exists, and
    the chosen candidate is in `spec.locks[name]`.

    If `part_class` is given, the lock is on a healthy part of that class in the step's resource, and the part's
    identity is the chosen candidate. If there are `candidates`, the part is one of them.
    """

    name: str
    scope: str = ""
    candidates: tuple[str, ...] = ()
    part_class: str = ""

    def __post_init__(self) -> None:
        if bool(self.scope) == bool(self.part_class):
            raise ValueError("a lock needs either a scope or a part class, not both")


@dataclass(frozen=True, kw_only=True)
class Maintenance:
    """Maintenance of a related resource, carried out by the engine.

    The `action` `drain` stops new claims. `alone` drains the resource, and waits until no other lease holds the
    resource; no lease can claim it until this phase ends. `vacate` does the same, but steps that ask for it share it:
    several cards of one host are installed at the same time, and nobody else is on the host. A step that holds `vacate`
    must not ask for `alone`. `reboot` and `power_cycle` drain the resource, and then reboot it or cycle its power. The
    resource is switched once for all runs that wait for this, with a power cycle if one of them needs it. If the
    resource's kind can neither reboot nor cycle the power, an operator is asked to do it.

    A step may request maintenance several times. Maintenance that was granted earlier in a phase stays granted until
    the phase ends; a step that needs a second reboot in the same phase asks for it with `times=2`.

    `holders` determines what happens to other leases on the resource and on resources above or below it. Their owners
    are notified in any case. `tell` does not wait for these leases, `wait` waits until all of them have ended, and
    `refuse` fails the step if there are any. Leases that belong to the step itself, or whose step holds `vacate` or
    waits for maintenance of the same resource, do not count. For a step that vacates the resource, leases that only
    keep an idle resource do not count either.
    """

    relation: str
    """The name of a needed lease, `parent` for the resource that this one is part of, or `host` for the topmost one.

    A needed lease of that name goes first. `NAME.parent` and `NAME.host` lead from the resource of a needed lease to
    what that is part of.
    """
    action: Literal["drain", "alone", "vacate", "reboot", "power_cycle"]
    holders: Literal["tell", "wait", "refuse"] = "wait"
    sentence: str = ""
    times: int = 1
    """How often this phase needs the action. More than 1 only for `reboot` and `power_cycle`."""

    def __post_init__(self) -> None:
        if self.action in ("alone", "vacate") and self.holders == "tell":
            raise ValueError(f"with `{self.action}`, holders must be `wait` or `refuse`")
        if self.times != 1 and (self.times < 1 or self.action not in ("reboot", "power_cycle")):
            raise ValueError("times is 1, or more for `reboot` and `power_cycle`")

    @property
    def name(self) -> str:
        """The name under which it is in `spec.granted`: `relation:action`, or `relation:action:times`."""
        return f"{self.relation}:{self.action}" + (f":{self.times}" if self.times > 1 else "")


@dataclass(frozen=True, kw_only=True)
class Need:
    """The step needs these leases, locks or maintenance to continue. It is called again once everything is granted.

    In that call, `spec.parents` contains the leases, `spec.locks` the locks, and `spec.granted` the maintenance.
    """

    leases: tuple[NeededLease, ...] = ()
    locks: tuple[NeededLock, ...] = ()
    maintenance: Maintenance | None = None


Answer: TypeAlias = Ready | Wait | Failed | Unknown | Absent | Hold | Need
