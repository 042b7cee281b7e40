"""The frozen values that a kind is given and gives back."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from blueprints.amounts import Amounts
from blueprints.answers import Json
from blueprints.parts import Part as Part

if TYPE_CHECKING:
    from interfaces.contract import Interface
    from interfaces.transport import Transport


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A resource that could be built, or that was found or registered, before it is a row.

    `offer`, `zone` and `counted` name what a failure of that scope would rule out. `identity` is stable and unique per
    blueprint (a serial number, host and port, UUID); empty for what is built.
    """

    name: str = ""
    attributes: Json = field(default_factory=dict)
    capacity: Amounts = field(default_factory=Amounts)
    traits: frozenset[str] = frozenset()
    parts: tuple[Part, ...] = ()
    identity: str = ""
    part_of: str = ""
    """Identity of the resource this one is part of."""
    facts: Json = field(default_factory=dict)
    offer: str = ""
    zone: str = ""
    counted: str = ""
    """What its provider's quotas count it by (`Offer.counted`), where it is of an offer."""
    price: float | None = None
    """Per hour, in US dollars; candidates of one blueprint are tried in the order they are given."""
    boot_seconds: float | None = None
    """Until it could be used, where that is known."""
    lives: float | None = None
    """Seconds after which it ends by itself: no lease may last longer."""
    refused: str = ""
    """Why the provider would refuse it now, where that is known beforehand; it is not tried then."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a lease asks for, as a kind sees it: `requirements` is an instance of the kind's Requirements."""

    type: str
    requirements: Any
    amounts: Amounts
    exclusive: bool = False
    traits: frozenset[str] = frozenset()
    forbidden_traits: frozenset[str] = frozenset()
    preferred_traits: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class BlueprintView:
    """A blueprint's stored row, its config read into the kind's Config."""

    id: int
    name: str
    kind: str
    generation: int
    config: Any
    credentials: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    """The secrets of the credentials that the config names, by credential name."""


@dataclass(frozen=True, kw_only=True)
class ResourceView:
    """A resource. `key` is its name outside: deterministic, unique to this installation, safe in DNS."""

    id: int
    key: str
    name: str
    type: str
    origin: str
    blueprint: BlueprintView
    attributes: Json
    capacity: Amounts
    traits: frozenset[str] = frozenset()
    identity: str = ""
    facts: Json = field(default_factory=dict)
    secrets: Json = field(default_factory=dict, repr=False)
    registration: Json = field(default_factory=dict)
    """What was given when it was registered."""
    offer: str = ""
    power: str = ""
    power_wanted: str = ""
    """on or off, where we switched it so; empty: nobody did."""
    dies_at: dt.datetime | None = None
    parts: tuple[Part, ...] = ()
    """Its named parts, whatever their state."""
    parents: Mapping[str, LeaseView] = field(default_factory=dict)
    """The leases that this resource holds on others, by the name under which it asked for them."""
    locks: Mapping[str, str] = field(default_factory=dict)
    """The slot locks it holds."""


@dataclass(frozen=True, kw_only=True)
class Control:
    """The way to a host past the account that a lease has there, and which account that is.

    `transport` leads to root, or to a control account that may use sudo without a password; the lease cannot change
    anything on the way. `kept` maps paths below `home` to the content of the files that let the lease's interfaces in;
    whoever empties the home puts exactly these back.

    `renumber` (a script and its arguments, for root) gives the account another uid once nothing of a lease is left, and
    `numbers` prints the uid and gid that it has now. Programs that a lease has made setuid and kept out of reach, in
    the home or in a descriptor of another lease, then lead to nobody. Both are empty where processes gain no rights.
    """

    transport: Transport
    uid: int
    gid: int
    home: str
    kept: Mapping[str, str] = field(default_factory=dict, repr=False)
    renumber: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LeaseView:
    """A lease on `resource`. `public_keys` are the owner's own; the lease's generated pair is in `secrets`."""

    id: int
    key: str
    owner: str
    asked: Asked
    resource: ResourceView
    facts: Json = field(default_factory=dict)
    secrets: Json = field(default_factory=dict, repr=False)
    public_keys: tuple[str, ...] = ()
    parents: Mapping[str, LeaseView] = field(default_factory=dict)
    """The leases that this lease's activation asked for."""
    locks: Mapping[str, str] = field(default_factory=dict)
    """The slot locks this lease holds."""
    until: dt.datetime | None = None
    others: Callable[[], Sequence[Asked]] = field(default=lambda: (), repr=False, compare=False)
    """What the other leases ask that have the resource now, read anew by each call; not those whose right has
    ended."""
    opener: Callable[[LeaseView, str], Interface] | None = field(default=None, repr=False, compare=False)
    controlled: Callable[[LeaseView], Control | None] = field(default=lambda _: None, repr=False, compare=False)

    def interface(self, name: str) -> Interface:
        """The typed interface `name` on this lease. Raises NotSupported where its kind has none of that name."""
        if self.opener is None:
            raise RuntimeError("this LeaseView was made without an opener")
        return self.opener(self, name)

    def control(self) -> Control | None:
        """Return the way to its host past its account; None where there is none (see `contract.Controls`)."""
        return self.controlled(self)


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What a step works on. `key` names the resource or lease outside, deterministically; `token` is an idempotency
    token, the same for every repetition of this step and new for the next time the phase is run; `tags` mark as
    ours whatever is created; `deadline` is the seconds this call may take."""

    phase: str
    key: str
    token: str = ""
    resource: ResourceView
    lease: LeaseView | None = None
    asked: Asked | None = None
    """On build: what the lease that caused it asks for; None when built to keep a minimum ready."""
    tags: Mapping[str, str] = field(default_factory=dict)
    parents: Mapping[str, LeaseView] = field(default_factory=dict)
    """All leases this phase may use by the name they were asked under."""
    deadline: float = 30.0
    locks: Mapping[str, str] = field(default_factory=dict)
    """The slot locks held, by the name they were asked under: what was chosen of the candidates."""
    granted: frozenset[str] = frozenset()
    """The maintenance that was granted for this phase, as `relation:action`."""
    wanted: Json = field(default_factory=dict)
    """Arguments of the phase: `{"power": "off"}` for power."""

    @property
    def config(self) -> Any:
        return self.resource.blueprint.config


@dataclass(frozen=True, kw_only=True)
class Owned:
    """A thing at a provider that bears an installation's tags. `key` is the one under which it was made, from where
    a copy of the thing would not have it (its name, its client token); with it and `facts` alone it can be
    destroyed."""

    key: str
    tags: Mapping[str, str]
    facts: Json = field(default_factory=dict)
    state: str = ""
    """What the provider says of it, where that is known: pending, running, stopped, ..."""
    power: str = ""
    """on or off, where that is known."""
    lost: str = ""
    """Why it will never serve again (preempted, terminated by somebody), or empty."""
    what: str = ""
    """What it is: `machine`, `volume`, `firewall rule`; empty: a resource as its kind makes it."""
    since: dt.datetime | None = None
    """When it was made, as the provider says."""
    named: bool = True
    """False: its key stands in a tag alone, which a copy of it would bear too."""
    absent: bool = False
    """The provider was asked for this very thing and says that it does not exist; `lost` has its words."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Something `check_blueprint` found. `fatal` ones refuse enabling; the others are warnings."""

    message: str
    field: str = ""
    fatal: bool = True
