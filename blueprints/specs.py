"""The frozen values that a kind receives and returns."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from blueprints.amounts import Amounts
from blueprints.answers import Health as Health
from blueprints.answers import Json, Resolution
from blueprints.identities import Identity as Identity
from blueprints.localities import Locality
from blueprints.parts import Part as Part
from blueprints.records.logins import Logins, LoginsInMemory
from drydock.core.errors import NotSupported
from interfaces.slot_locks import SlotLocks, SlotLocksInMemory

if TYPE_CHECKING:
    from interfaces.contract import Interface
    from interfaces.transport import Transport


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A resource before it has a row: one that could be built, or one that was found or registered.

    If a build fails, the drafts with the same `offer`, `zone` or location (in `counted`) are excluded, depending on the
    scope of the failure. `identity` is stable and unique per blueprint (a serial number, host and port, UUID), and
    empty for built resources.
    """

    name: str = ""
    attributes: Json = field(default_factory=dict)
    capacity: Amounts = field(default_factory=Amounts)
    traits: frozenset[str] = frozenset()
    parts: tuple[Part, ...] = ()
    identity: str = ""
    identities: tuple[Identity, ...] = ()
    """Names by which other blueprints may discover the same thing (see `blueprints.identities.real`)."""
    part_of: str = ""
    """Identity of the resource that this one is part of."""
    locality: Locality = ()
    """The position of the resource within its topmost parent, as names from the widest place to the narrowest.

    It is used to choose resources that are near each other for a group (see `blueprints.localities`). Empty if unknown.
    """
    host: int | None = None
    """Id of the host, a resource of any blueprint, that contains this resource. It is part of the host itself if
    `part_of` is empty or not known yet."""
    facts: Json = field(default_factory=dict)
    offer: str = ""
    zone: str = ""
    counted: str = ""
    """The quota keys of the draft's offer (`Offer.counted`); empty without an offer."""
    price: float | None = None
    """Price in US dollars per hour. Drafts of one blueprint are tried in the given order, whatever their prices."""
    boot_seconds: float | None = None
    """Expected seconds until the resource is usable, if known."""
    lives: float | None = None
    """Seconds after which the resource ends by itself. No lease on it may last longer."""
    refused: str = ""
    """The reason why the provider would refuse the draft now, if known in advance. Such a draft is not tried.

    For something that was found, the reason why it cannot be used now. It does not become a resource. If it already is
    one, it is quarantined until a report says otherwise.
    """
    health: Health | None = None
    """What the report says about the health of the resource; None if nothing. A `failed` resource is quarantined until
    a report says otherwise; its leases are notified."""
    outdated: str = ""
    """For something that was found, how it differs from what the config of the blueprint declares.

    It serves no lease until it was updated (`Updates`) to the config, unless the update disturbs none. Only for kinds
    that update.
    """


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The request of a lease, as kinds receive it. `requirements` is an instance of the kind's Requirements."""

    type: str
    requirements: Any
    amounts: Amounts
    exclusive: bool = False
    traits: frozenset[str] = frozenset()
    forbidden_traits: frozenset[str] = frozenset()
    preferred_traits: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class HostView:
    """A host, as it is passed to kinds whose resources are parts of hosts. The host can belong to any blueprint."""

    id: int
    name: str
    blueprint: str
    """Name of the host's blueprint."""
    attributes: Json = field(default_factory=dict)
    traits: frozenset[str] = frozenset()
    connect: Callable[[], Transport | None] = field(default=lambda: None, repr=False, compare=False)
    """Returns a transport to the host's control account, or None if the kind of the host provides none.

    Raises DrydockError if the account cannot be used."""


@dataclass(frozen=True, kw_only=True)
class BlueprintView:
    """A blueprint, with its config parsed into the kind's Config."""

    id: int
    name: str
    kind: str
    generation: int
    config: Any
    credentials: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    """The secrets of the credentials that the config names, by name of the credential."""
    hosts: Callable[[int | None], Sequence[HostView]] = field(default=lambda _: (), repr=False, compare=False)
    """Returns all active hosts in the order of their ids, or the one with an id. Only discoveries have it."""


@dataclass(frozen=True, kw_only=True)
class Whole:
    """A resource above another one: its parent, the parent's parent, and so on."""

    id: int
    """For `NeededLease.on_resources`."""
    name: str
    type: str
    kind: str
    identity: str = ""
    state: str = ""
    power: str = ""


@dataclass(frozen=True, kw_only=True)
class ResourceView:
    """A resource, as it is passed to its kind.

    `key` is the resource's name at the provider: deterministic, unique to this installation, and a valid DNS label.
    """

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
    credential: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The secrets of the resource's own credential (`Kind.OwnCredential`); empty if it has none."""
    registration: Json = field(default_factory=dict)
    """The fields with which the resource was registered; empty if it was not registered."""
    offer: str = ""
    power: str = ""
    power_wanted: str = ""
    """`on` or `off`, as Drydock last switched the resource; empty if Drydock never did."""
    dies_at: dt.datetime | None = None
    parts: tuple[Part, ...] = ()
    """The named parts of the resource, in any state."""
    part_of: tuple[Whole, ...] = ()
    """The resources that this one is part of: first its parent, and last the topmost, such as the host."""
    locality: Locality = ()
    """The position of the resource within its topmost parent; see `Draft.locality`."""
    parents: Mapping[str, LeaseView] = field(default_factory=dict)
    """The leases that this resource holds on other resources, by the name under which it requested them."""
    locks: Mapping[str, str] = field(default_factory=dict)
    """The slot locks that the resource holds."""
    media_url: str = field(default="", repr=False)
    """The address below which the machine's controller can fetch the media of `contract.ServesMedia`. Empty if the
    setting DRYDOCK_BOOT_URL is not set."""
    lease_facts: Callable[[], Sequence[Json]] = field(default=lambda: (), repr=False, compare=False)
    """Returns the facts of the active leases on the resource. Each call reads them again."""
    holders: Callable[[], Sequence[str]] = field(default=lambda: (), repr=False, compare=False)
    """Returns the keys of the leases that hold the resource, also while they begin or end. Each call reads them."""
    fresh: Callable[[], bool] = field(default=lambda: False, repr=False, compare=False)
    """Returns whether the resource was built for the only lease that ever had it, which is being activated for the
    first time, so that no lease can have left anything on it. Each call reads it again."""
    host: Callable[[], HostView | None] = field(default=lambda: None, repr=False, compare=False)
    """Returns the host that the resource is part of, directly or not; None if there is none."""

    logins: Logins = field(default_factory=LoginsInMemory, repr=False, compare=False)
    """The record of refused logins at places that lock accounts, such as BMCs, shared by all workers."""

    def medium_url(self, name: str, token: str) -> str:
        """Return the address of the medium that `ServesMedia.media` offers under this name and token.

        Raises NotSupported if no address is known below which media are served.
        """
        if not self.media_url:
            raise NotSupported(
                "Drydock serves no boot media, because DRYDOCK_BOOT_URL is not set.",
                hint="Set it to an address of the web process that the controllers of machines can reach, such as "
                "http://10.0.0.1:8000.",
            )
        return f"{self.media_url}/{token}/{name}"

    def credential_or(self, name: str) -> Mapping[str, str]:
        """Return the blueprint's credential `name`, updated with the fields of the resource's own credential.

        If `name` is empty, returns the resource's own credential.
        """
        return {**self.blueprint.credentials.get(name, {}), **self.credential}


@dataclass(frozen=True, kw_only=True)
class Control:
    """Access to a host without using the account of a lease on that host, and information about that account.

    `transport` leads to root, or to a control account that may use sudo without a password; the lease cannot change
    anything on the way. `kept` maps paths below the account's `home` to the content of the files that give the lease's
    interfaces access; code that empties the home must restore exactly these files.

    `renumber` is a script with its arguments, to be run as root. It gives the account another uid after a lease has
    been removed completely; `numbers` prints the account's present uid and gid. With another uid, setuid programs that
    the lease hid in the home or in a descriptor of another lease no longer give access to the account. Both are empty
    if processes on the host cannot gain privileges.
    """

    transport: Transport
    uid: int
    gid: int
    home: str
    kept: Mapping[str, str] = field(default_factory=dict, repr=False)
    renumber: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class UnitHost:
    """The host of a lease, as far as it can run the workload of the lease as a systemd unit.

    `transport` leads to the control account, as in `Control`. `account` names the lease on the host. The container's
    root is mapped to `uid` and `gid`; None if the lease has the whole host and its root.
    """

    transport: Transport
    account: str
    uid: int | None = None
    gid: int | None = None


@dataclass(frozen=True, kw_only=True)
class LeaseView:
    """A lease on `resource`. `public_keys` are the owner's own; a key pair generated for the lease is in `secrets`."""

    id: int
    key: str
    owner: str
    asked: Asked
    resource: ResourceView
    facts: Json = field(default_factory=dict)
    secrets: Json = field(default_factory=dict, repr=False)
    public_keys: tuple[str, ...] = ()
    parents: Mapping[str, LeaseView] = field(default_factory=dict)
    """The leases that this lease's activation requested."""
    locks: Mapping[str, str] = field(default_factory=dict)
    """The slot locks that this lease holds."""
    slot_locks: SlotLocks = field(default_factory=SlotLocksInMemory, repr=False, compare=False)
    """The slot locks that interfaces take for this lease while it is active. They end with it."""
    until: dt.datetime | None = None
    active: bool = True
    """False until the lease has been activated."""
    members: Callable[[], Sequence[LeaseView]] = field(default=lambda: (), repr=False, compare=False)
    """Returns the other leases of its group that hold a resource, reading them anew at each call.

    A lease that uses another one of its group, such as a GPU that uses the group's host, puts the id of that lease into
    the fact `stands_on`. It then ends when that lease ends.
    """
    others: Callable[[], Sequence[Asked]] = field(default=lambda: (), repr=False, compare=False)
    """Returns the requests of the other leases that hold the resource now. Each call reads them again.

    Leases that have been released are left out.
    """
    opener: Callable[[LeaseView, str], Interface] | None = field(default=None, repr=False, compare=False)
    controlled: Callable[[LeaseView], Control | None] = field(default=lambda _: None, repr=False, compare=False)

    def interface(self, name: str) -> Interface:
        """Return the typed interface `name` on this lease. Raises NotSupported if the kind does not provide it."""
        if self.opener is None:
            raise RuntimeError("this LeaseView was created without an opener")
        return self.opener(self, name)

    def control(self) -> Control | None:
        """Return a control connection to the host of the lease, or None (see `contract.Controls`)."""
        return self.controlled(self)


@dataclass(frozen=True, kw_only=True)
class Spec:
    """The input of a step.

    `key` is the deterministic name of the resource or lease at the provider. `token` is an idempotency token: it is the
    same for every repetition of this step, and changes when the phase is run again. `tags` mark every created object as
    belonging to this installation. `deadline` is the time in seconds that this call may take.
    """

    phase: str
    key: str
    token: str = ""
    resource: ResourceView
    lease: LeaseView | None = None
    asked: Asked | None = None
    """The request of the lease for which a resource is built; None in other phases, or if no lease requested it."""
    tags: Mapping[str, str] = field(default_factory=dict)
    parents: Mapping[str, LeaseView] = field(default_factory=dict)
    """All leases that this phase may use, by the name under which they were requested."""
    deadline: float = 30.0
    locks: Mapping[str, str] = field(default_factory=dict)
    """The slot locks held, by the name under which they were requested; the value is the chosen candidate."""
    granted: frozenset[str] = frozenset()
    """The maintenance granted for this phase, as `relation:action`, and `relation:action:2` for a second reboot."""
    wanted: Json = field(default_factory=dict)
    """Arguments of the phase, such as `{"power": "off"}` for power. For those of an update, see `disruptive`."""
    resolution: Resolution | None = None
    """An operator's answer to the last Hold of this step, or None if none of its holds has been resolved."""
    act: str = ""
    """In the phase `act`, the name of the declared act. Otherwise empty."""
    arguments: Any = None
    """In the phase `act`, an instance of the act's Arguments."""
    progress: Json | None = None
    """`Owned.progress` from the watch that woke the step; None if the step must read."""

    @property
    def config(self) -> Any:
        """The config of the blueprint, parsed into the kind's Config."""
        return self.resource.blueprint.config

    @property
    def disruptive(self) -> bool:
        """Whether the steps of an update may disturb leases on the resource, as `Updates.disruption` said."""
        return bool(self.wanted.get("disruptive", True))


@dataclass(frozen=True, kw_only=True)
class Owned:
    """An object at a provider that has an installation's tags.

    `key` is the external name under which the object was created. It is read from a property that a copy of the object
    would not have, such as the name or client token. `key` and `facts` suffice to destroy the object.
    """

    key: str
    tags: Mapping[str, str]
    facts: Json = field(default_factory=dict)
    state: str = ""
    """The state that the provider reports for the object, if known: pending, running, stopped, ..."""
    power: str = ""
    """`on`, `off`, or empty if unknown."""
    lost: str = ""
    """The reason why the object is permanently lost, such as a preemption or termination; empty if it is not."""
    what: str = ""
    """The type of the object: `machine`, `volume` or `firewall rule`; empty for a resource as its kind builds it."""
    since: dt.datetime | None = None
    """The time at which the object was created, according to the provider."""
    named: bool = True
    """False if the key was taken from a tag, which a copy of the object would also have."""
    absent: bool = False
    """True if a read of this very object showed that it does not exist. `lost` then quotes the provider."""
    progress: Json | None = None
    """The progress of the object, reported by a watch for a step that has nothing else to do than to display it.

    A flat dict of texts and numbers, of at most 4 KiB as JSON. None, or anything else: the step must read."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A problem that `check_blueprint` found: a fatal one, which prevents enabling the blueprint, or a warning."""

    message: str
    field: str = ""
    fatal: bool = True
