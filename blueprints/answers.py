"""What a step may answer. Nothing here knows a database, a queue or a provider."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from blueprints.amounts import Amounts
from blueprints.parts import Part

Json: TypeAlias = dict[str, Any]


class Scope(StrEnum):
    """How far a failure reaches, and so what is tried next."""

    STEP = "step"
    """Only this try: the same step is repeated with backoff, a bounded number of times."""
    OFFER = "offer"
    """This offer (an instance type in a zone): the next offer is tried; this one is remembered as failing."""
    ZONE = "zone"
    """Every offer of this zone."""
    LOCATION = "location"
    """Every offer of a location, or those of them that are counted alike: `Failed.key` says which."""
    BLUEPRINT = "blueprint"
    """Everything this blueprint could build: the next blueprint is tried."""
    OPERATOR = "operator"
    """A person must mend something (a credential, a configuration) before this blueprint can work."""


@dataclass(frozen=True, kw_only=True)
class Ready:
    """The step is done. `facts` are kept with the resource (or lease) and are visible to its owner;
    `secrets` are kept encrypted and reach only later steps and interfaces."""

    facts: Json = field(default_factory=dict)
    secrets: Json = field(default_factory=dict)
    log: str = ""
    attributes: Json = field(default_factory=dict)
    """Attributes of the resource that are known only now; laid over those of its draft."""
    traits: frozenset[str] | None = None
    """The resource's traits where they are others than drafted."""
    capacity: Amounts | None = None
    """The resource's capacity where it turned out to be another than drafted."""
    parts: tuple[Part, ...] = ()
    """Parts that are known only now, such as GPU UUIDs, or whose state is: all of each class that is named, since
    those left out count as missing."""
    dies_at: dt.datetime | None = None
    """When the provider will end the resource by itself."""


@dataclass(frozen=True, kw_only=True)
class Wait:
    """Not yet: call the step again after `after` seconds, with `memo`, which is committed before that call."""

    after: float = 1.0
    memo: Json = field(default_factory=dict)
    percent: int | None = None
    sentence: str = ""
    log: str = ""


@dataclass(frozen=True, kw_only=True)
class Failed:
    """The step did not work, and nothing more is happening. `code` is the provider's own word for it."""

    scope: Scope
    message: str
    code: str = ""
    key: str = ""
    """What it rules out, as `Offer.counted` is written; only with `Scope.LOCATION`. An empty part stands for any."""
    blames_request: bool = False
    """The provider says that the request is wrong. With one type it may be the type's fault, with several it is not:
    then it is an operator's matter."""
    remember: float | None = None
    """Seconds for which the offer, zone or blueprint is not tried again; None is the engine's default."""
    log: str = ""
    facts: Json = field(default_factory=dict)
    """Kept with the resource (or lease) when the phase ends with this failure, for what undoes it."""


@dataclass(frozen=True, kw_only=True)
class Unknown:
    """The answer was lost: it may have happened or not. The engine calls the step's `find` next, never `act`."""

    message: str
    memo: Json | None = None


@dataclass(frozen=True, kw_only=True)
class Absent:
    """Only from `find`: what the step makes is provably not there, so `act` may run (again)."""


@dataclass(frozen=True, kw_only=True)
class Hold:
    """A person must do something first; the step is called again when an operator says it is done."""

    who: str
    what: str


@dataclass(frozen=True, kw_only=True)
class NeededLease:
    """A lease that a step asks for. `lifetime` "life" lasts as long as the resource (or lease) of the step,
    "phase" only until this phase ends."""

    name: str
    type: str
    requirements: Mapping[str, Any] = field(default_factory=dict)
    amounts: Amounts = field(default_factory=Amounts)
    exclusive: bool = False
    lifetime: Literal["life", "phase"] = "life"
    on_resources: tuple[int, ...] = ()
    """Ids of the resources it must be on one of (`spec.parents[...].resource.id`); empty: any."""


@dataclass(frozen=True, kw_only=True)
class NeededLock:
    """A slot lock that a step asks for: the first of `candidates` that nobody else holds in `scope` (a port of a
    host, one GPU). Held as long as the resource (or lease) of the step; the choice is in `spec.locks[name]`.

    With `part_class` it is a part of that class of the step's resource that is well, by its identity: any, or one of
    the candidates.
    """

    name: str
    scope: str = ""
    candidates: tuple[str, ...] = ()
    part_class: str = ""

    def __post_init__(self) -> None:
        if bool(self.scope) == bool(self.part_class):
            raise ValueError("a lock is in a scope or on a part, and on one of them")


@dataclass(frozen=True, kw_only=True)
class Maintenance:
    """Maintenance of a related resource, done by the engine. `drain`: no new claims; `alone`: drained and held by
    nobody else while this phase runs; `power_cycle`: drained, and cycled once for all who asked by then.

    `holders` says what becomes of others that hold it: they are told in any case; `tell` goes ahead meanwhile,
    `wait` waits until they are gone, `refuse` fails the step while there are any.
    """

    relation: str
    """`parent` for what the resource is part of, or the name of a needed lease."""
    action: Literal["drain", "alone", "power_cycle"]
    holders: Literal["tell", "wait", "refuse"] = "wait"
    sentence: str = ""

    def __post_init__(self) -> None:
        if self.action == "alone" and self.holders == "tell":
            raise ValueError("who wants it alone waits for its holders, or refuses")


@dataclass(frozen=True, kw_only=True)
class Need:
    """The step cannot go on without these; it is called again, with them in its spec, when all are there:
    `spec.parents`, `spec.locks`, and `spec.granted` for maintenance."""

    leases: tuple[NeededLease, ...] = ()
    locks: tuple[NeededLock, ...] = ()
    maintenance: Maintenance | None = None


Answer: TypeAlias = Ready | Wait | Failed | Unknown | Absent | Hold | Need
