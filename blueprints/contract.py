"""The contract of a kind: how one sort of resource is made, used, watched, updated, cleaned and destroyed.

A kind knows no database and no queue. It is given frozen values (`blueprints.specs`) and answers with frozen
values (`blueprints.answers`). What it can do is read off the classes that it implements (`capabilities`).
"""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from pydantic import BaseModel, ConfigDict

from blueprints.answers import Answer, Json
from blueprints.matching import Match
from blueprints.offers import Account, Allowance, Offer, Place, Sought
from blueprints.specs import Asked, BlueprintView, Control, Draft, LeaseView, Owned, Problem, ResourceView, Spec
from drydock.core.errors import NotSupported
from interfaces.contract import Interface


class Fields(BaseModel):
    """Base of a kind's Config, Requirements, Attributes and Registration: frozen, no unknown names."""

    model_config = ConfigDict(frozen=True, extra="forbid")


Act: TypeAlias = Callable[[Spec, Json], Answer]


@dataclass(frozen=True, kw_only=True)
class Step:
    """One short call (seconds) of a plan.

    `act(spec, memo)` does it. When `find` is given, an act whose answer was lost is never repeated before
    `find(spec, memo)` has looked: it answers Ready or Wait (it happened), Absent (it did not) or Unknown (look
    again later). Without `find` the act must be idempotent: the engine repeats it. After a Wait, from either,
    `act` is called with its memo. What `act` or `find` raises counts as Unknown where there is a `find`, else as
    Failed with scope STEP; so an outage is never taken for an absence.
    """

    name: str
    act: Act
    find: Act | None = None
    interruptible: bool = True
    """False: a cancel is honoured only after this step."""
    deadline: float = 600.0
    """Seconds from the step's first call after which it has failed."""


Plan: TypeAlias = tuple[Step, ...]
Opener: TypeAlias = Callable[[LeaseView, Callable[[], None]], Interface]
"""Makes an interface on a lease; the callable is the engine's still_mine() check."""


class Kind(ABC):
    """Base of every kind. A kind is stateless; one instance serves all blueprints of that kind."""

    name: ClassVar[str]
    resource_type: ClassVar[str]
    Config: ClassVar[type[Fields]] = Fields
    Requirements: ClassVar[type[Fields]] = Fields
    Attributes: ClassVar[type[Fields]] = Fields
    matches: ClassVar[tuple[Match, ...]] = ()
    needs: ClassVar[tuple[str, ...]] = ()
    """Types of resource that its steps may lease (`Need`). Blueprints that need one another are refused."""
    gone_with_needs: ClassVar[bool] = False
    """True: what it builds exists only inside what it leases for life, as a folder on a host does, and is gone when
    nothing of that is left. False: it is destroyed all the same, until its absence is confirmed."""
    most_resources: ClassVar[int | None] = None
    """So many resources a blueprint may have at most, and has where it does not say (None: any number)."""
    idle_timeout: ClassVar[dt.timedelta | None] = None
    """After how long an idle resource is given up where a new blueprint does not say; None: never. Kinds whose
    resources cost something while they stand idle set it."""
    check_interval: ClassVar[dt.timedelta | None] = None
    """How often the health of a resource is checked where a new blueprint does not say; None: never."""
    unreachable: ClassVar[frozenset[str]] = frozenset()
    """Codes of failures that mean that the resource did not answer, such as a refused connection. A resource that fails
    with one of them in activate, deactivate, clean, check or update is given to nobody until a check finds it well, and
    a lease that was being activated there is tried elsewhere at once. The step must answer so within 15 seconds,
    whatever the resource does."""
    reusable: ClassVar[bool] = True
    """False: a resource is destroyed when its lease ends, because what used it cannot be cleaned away."""

    @abstractmethod
    def destroy(self) -> Plan:
        """Destroy what was built, or clean and hand back what was registered or discovered. Every step is
        idempotent and succeeds when there is nothing (any more); the last one confirms the absence."""

    def interfaces(self) -> Mapping[str, Opener]:
        """Interface name -> how to open it on a lease."""
        return {}

    def check_blueprint(self, blueprint: BlueprintView) -> Sequence[Problem]:
        """Look, without creating anything, whether the blueprint could work. May call its provider."""
        return ()

    def needed_types(self, config: Any) -> frozenset[str]:
        """Types of resource that a blueprint with this config may lease. Override it where the config decides."""
        return frozenset(self.needs)

    def reusable_after(self, lease: LeaseView) -> bool:
        """True when the cleaned resource may go to another owner after this lease."""
        return self.reusable

    def lacking(self, config: Any) -> frozenset[type]:
        """Classes of this module that it implements, and that what stands behind a blueprint with this config cannot
        do: of a cloud, what its client's class does not implement. Without any call outside."""
        return frozenset()


class Builds(ABC):
    """The kind can build a resource when one is asked for."""

    @abstractmethod
    def drafts(self, config: Any, asked: Asked | None) -> Sequence[Draft]:
        """What could be built for `asked` (None: to keep a minimum ready), best first, without any call outside.
        Raises CatalogueStale when it cannot know yet."""

    @abstractmethod
    def build(self) -> Plan:
        """Make what `spec.resource` drafts. Also checks a registered resource before it becomes active."""


@dataclass(frozen=True, kw_only=True)
class Stops:
    """What becomes of a resource that somebody else switched off."""

    grace: float = 0.0
    """Seconds for which it is kept, so that it can be started again."""
    restart: bool = False
    """Start it again at once."""


class Offers(ABC):
    """The kind builds what its provider offers. Inventory and status are read for each account from time to time, by
    one worker at a time, into the catalogue and into what is observed of the resources."""

    Credential: ClassVar[type[Fields]]
    """What an account's credential must hold."""
    inventory_every: ClassVar[float] = 60.0
    """Seconds between two readings of what there is to be had."""
    status_every: ClassVar[float] = 5.0
    """Seconds between two listings of what there is of ours."""
    unauthenticated: ClassVar[frozenset[str]] = frozenset()
    """Codes of failures that every call meets, such as those of expired credentials: once a listing works again, what
    failed so is tried again."""

    @abstractmethod
    def places(self, account: Account) -> Sequence[Place]:
        """The locations of the account; each is read for itself. One place named "" stands for all of them, where one
        call tells of all."""

    @abstractmethod
    def inventory(self, account: Account, place: str) -> Sequence[Offer]:
        """Everything that is offered in a place. Raise when it cannot be seen now."""

    @abstractmethod
    def observe(self, account: Account, place: str, installation: str) -> Sequence[Owned]:
        """Everything there whose tag `drydock-installation` is `installation`, with its status; what is gone for good
        may be left out. One call a page; raise when any of it cannot be seen now. What a listing says, or leaves out,
        is only a reason to `read`."""

    @abstractmethod
    def read(self, account: Account, resource: ResourceView) -> Owned:
        """Ask for one resource by its own id, whatever a listing says of it. The answer is `absent` only where the
        provider itself says that there is no such thing. Raise when it cannot be seen now, and when the answer is not
        about it: on this alone a machine counts as lost."""

    def mark(self, account: Account, resource: ResourceView, tags: Mapping[str, str]) -> None:
        """Put tags back that somebody removed. Raise where that is not possible."""
        raise NotSupported(f"{type(self).__name__} cannot put tags back.")

    def stops(self, config: Any) -> Stops:
        """What becomes of a resource that somebody else switched off."""
        return Stops()

    @abstractmethod
    def located(self, config: Any) -> Sequence[str]:
        """The places in which a blueprint with this config builds; none: in all."""

    @abstractmethod
    def sought(self, config: Any, asked: Asked | None) -> Sought:
        """What to look for in the catalogue for `asked` (None: to keep a minimum ready)."""

    @abstractmethod
    def draft(self, config: Any, asked: Asked | None, offer: Offer) -> Draft:
        """The resource that would be built of an offer."""

    @abstractmethod
    def build(self) -> Plan:
        """Make what `spec.resource` drafts."""


class Allows(ABC):
    """What an account may have at once, and how much of that anybody has, can be read: an offer without room is not
    tried. With `Offers` only."""

    allowances_every: ClassVar[float] = 60.0
    """Seconds between two readings."""

    @abstractmethod
    def allowances(self, account: Account, place: str) -> Sequence[Allowance]:
        """Those that hold in a place, the ones of all places among them; all there are with "". What has no limit is
        left out. Raise when they cannot be seen now."""


class Registers(ABC):
    """Resources of this kind are registered by hand (or by a program) with the fields of Registration. A registered
    resource whose build fails stays, with its problem, and is built again with a growing delay until it is ready,
    corrected or removed; so building must be repeatable from its first step."""

    Registration: ClassVar[type[Fields]]

    @abstractmethod
    def register(self, config: Any, registration: Any) -> Draft:
        """The draft of a registered resource; `identity` must be set."""

    @abstractmethod
    def build(self) -> Plan:
        """Check the registered resource and make it ready."""


class Scans(ABC):
    """A host shows its keys before it is registered: an operator compares them with what its own console says, and
    registers it with those."""

    @abstractmethod
    def scan(self, blueprint: BlueprintView, address: str, port: int) -> Sequence[str]:
        """The public key lines that the host shows, within a few seconds and without signing in. Raises
        InterfaceError."""


class Discovers(ABC):
    """The kind finds resources by looking."""

    @abstractmethod
    def discover(self, blueprint: BlueprintView) -> Sequence[Draft]:
        """Everything there is now, each with a stable `identity`. Missing twice means lost; raise when it cannot
        be seen now, so that an outage is not taken for an absence."""


class Lists(ABC):
    """The kind can tell what was made at its provider, whether or not there is a row: so orphans are found."""

    @abstractmethod
    def owned(self, blueprint: BlueprintView, installation: str) -> Sequence[Owned]:
        """Everything there whose tag `drydock-installation` is `installation`, with all its tags; what is being
        deleted may be left out. Raise when it cannot be seen now. `destroy` must work on each with no more than its
        key and these facts."""


class Activates(ABC):
    """A lease needs work of its own on the resource: a user and key, a directory, a port, powering on."""

    @abstractmethod
    def activate(self) -> Plan:
        """Make `spec.lease` usable. Ready's facts and secrets are kept with the lease."""

    @abstractmethod
    def deactivate(self) -> Plan:
        """Undo activation, also a half-done one: idempotent, ends every process and access of the lease."""


class Controls(ABC):
    """The hosts of this kind can be reached past the accounts of their leases, as root or as the control account. So
    what stands on a lease is cleaned without anything that whoever used it could have changed."""

    @abstractmethod
    def control(self, lease: LeaseView) -> Control | None:
        """Return the way to the host of an active lease. None where the lease has no account of its own there, but
        works as the control account or as the account of this program."""


class Cleans(ABC):
    """The resource is cleaned between two leases, while the share is still held."""

    @abstractmethod
    def clean(self) -> Plan:
        """Remove what `spec.lease` left behind."""


class Checks(ABC):
    """The resource's health can be looked at."""

    @abstractmethod
    def check(self) -> Plan:
        """Ready: healthy (its facts are observed values; `power`, on or off, where it is known; `leaving`, how its
        provider has announced that it takes it back, which its holders are told once; `aside`, a list of what
        former leases left, was put aside and is still there); Failed, of any scope: not healthy."""


class Powers(ABC):
    """The resource can be switched on and off."""

    @abstractmethod
    def power(self) -> Plan:
        """Bring the power to `spec.wanted["power"]`: on, off or cycle."""


class Reboots(ABC):
    """The resource can be rebooted."""

    @abstractmethod
    def reboot(self) -> Plan:
        """Reboot it, and wait until it works again."""


class Resizes(ABC):
    """The disk of the resource can grow."""

    @abstractmethod
    def resize(self) -> Plan:
        """Let the disk have `spec.wanted["disk_gib"]` GiB; as large already is success, and none ever shrinks."""


class Retypes(ABC):
    """The resource can become another type of those that its provider offers: its kind implements Offers too."""

    @abstractmethod
    def retype(self) -> Plan:
        """Make it `spec.wanted["type"]`, which it can become only while it is off; afterwards it is as
        `spec.wanted["power"]` says, on or off. Where it cannot be on as the new type it becomes `spec.wanted["from"]`
        again, and the plan fails."""


class Tags(ABC):
    """Tags can be set on the resource."""

    @abstractmethod
    def tag(self) -> Plan:
        """Set `spec.wanted["tags"]`, name -> value; others stay."""

    def refused_tags(self, config: Any, tags: Mapping[str, str]) -> str:
        """Why the provider would not take these, in a sentence; empty: it would."""
        return ""


class Consoles(ABC):
    """What the resource writes on its console can be read."""

    @abstractmethod
    def console(self, resource: ResourceView) -> str:
        """The newest part of it, by one call outside; empty where there is none yet. Raises DrydockError."""


class Updates(ABC):
    """An outdated resource can be brought to the blueprint's present generation in place, and a registered one to its
    changed registration. It is idle meanwhile."""

    at_once: ClassVar[bool] = False
    """True: an update takes seconds, so all idle resources are updated at once, and nobody is given an outdated one.
    False: outdated ones serve on, and so many as the blueprint says are updated at a time."""

    @abstractmethod
    def update(self) -> Plan:
        """Bring `spec.resource` to the blueprint as it is now."""


class CatalogueStale(Exception):
    """The kind cannot know now what it could build; the lease waits."""


@dataclass(frozen=True, kw_only=True)
class Capability:
    """One thing a kind can do, and the class that says so."""

    name: str
    base: type


CAPABILITIES = tuple(
    Capability(name=base.__name__.lower(), base=base)
    for base in (
        Builds, Offers, Allows, Registers, Scans, Discovers, Lists, Activates, Cleans, Checks, Controls, Powers,
        Reboots, Resizes, Retypes, Tags, Consoles, Updates,
    )
)  # fmt: skip


def capabilities(kind: Kind) -> frozenset[str]:
    """What the kind can do, read off the classes it implements."""
    return frozenset(c.name for c in CAPABILITIES if isinstance(kind, c.base))


__all__ = [
    "CAPABILITIES",
    "Act",
    "Activates",
    "Allows",
    "Builds",
    "CatalogueStale",
    "Checks",
    "Cleans",
    "Consoles",
    "Control",
    "Controls",
    "Discovers",
    "Fields",
    "Kind",
    "Lists",
    "Match",
    "Offers",
    "Opener",
    "Plan",
    "Powers",
    "Reboots",
    "Registers",
    "Resizes",
    "ResourceView",
    "Retypes",
    "Scans",
    "Step",
    "Stops",
    "Tags",
    "Updates",
    "capabilities",
]
