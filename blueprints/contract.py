"""The contract of a kind: how resources of one type are built, used, watched, updated, cleaned and destroyed.

A kind uses neither the database nor the queue. It takes frozen values (`blueprints.specs`) and returns frozen values
(`blueprints.answers`). The capabilities of a kind follow from the classes that it implements (`capabilities`).
"""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict

from blueprints.answers import Answer, Json, NeededLease
from blueprints.matching import Match
from blueprints.offers import Account, Allowance, Offer, Place, Sought
from blueprints.reports import Report
from blueprints.specs import (
    Asked,
    BlueprintView,
    Control,
    Draft,
    LeaseView,
    Owned,
    Problem,
    ResourceView,
    Spec,
    UnitHost,
)
from blueprints.watches import Ending, WatchNews, WatchPlace
from drydock.core.errors import DrydockError, NotSupported
from interfaces.contract import Interface
from interfaces.transport import Transport


class Fields(BaseModel):
    """Base of a kind's Config, Requirements, Attributes and Registration.

    Instances are frozen; unknown fields are rejected. Errors do not quote the input, because it can be a secret.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


Act: TypeAlias = Callable[[Spec, Json], Answer]


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of a plan: a call that takes at most a few seconds.

    `act(spec, memo)` carries the step out. If the answer is lost, the engine calls `find(spec, memo)`, if defined,
    before it repeats `act`. `find` returns Ready or Wait (the call had its effect), Absent (it had none) or Unknown
    (ask again later). Without `find`, `act` must be idempotent, because the engine repeats it. If `act` or `find`
    returns a Wait, the engine calls `act` next, with the memo of the Wait. An exception counts as Unknown if the step
    has a `find`, otherwise as Failed with scope STEP, so that an outage is never mistaken for an absence.
    """

    name: str
    act: Act
    find: Act | None = None
    interruptible: bool = True
    """Whether the step may be cancelled while it waits. If False, a cancellation takes effect only after the step."""
    deadline: float = 600.0
    """Seconds after the step's first call at which it fails."""
    exclusive: bool = False
    """Whether it must not be called while another exclusive step of the same resource, or of a lease on it, is called.

    For steps that call a controller which serves one caller at a time, such as the BMC of a machine.
    """
    applies: Callable[[Any], bool] | None = None
    """Returns whether the step is carried out with a config; otherwise it is skipped. None if it always is."""


Plan: TypeAlias = tuple[Step, ...]


@dataclass(frozen=True, kw_only=True)
class DeclaredAct:
    """An action on a resource that a kind declares, such as programming an FPGA.

    The REST API, client, command line, console and documentation offer the act according to this declaration. The act
    runs as a phase of its own: its steps get the parsed `Arguments` in `spec.arguments` and the act's name in
    `spec.act`. Arguments are recorded in events, so they must not be secrets; steps read secrets from credentials.
    """

    name: str
    """At most 31 lower-case letters, digits and hyphens, beginning with a letter."""
    summary: str
    """One sentence that begins with a verb and says what the act does."""
    plan: Callable[[], Plan]
    Arguments: type[Fields] = Fields
    by: Literal["operator", "holder"] = "operator"
    """Who may start it besides operators: with `holder`, the owner of an active lease on the whole resource."""
    holders: Literal["keep", "refuse", "wait"] = "refuse"
    """Leases on the resource, on its parts, or on a whole that it is part of, except the lease that starts the act.

    `keep`: the act runs beside them. `refuse`: it is refused while there are any. `wait`: it waits until they have
    ended. With `refuse` and `wait`, the resource gets no new leases until the act has ended.
    """
    power: Literal["any", "on", "off"] = "any"
    """The power that the resource must have when the act is started, as far as it is known."""
    dangerous: bool = False
    """Whether people must confirm it, because it loses data or can make the resource unusable."""
    quarantines: bool = False
    """Whether the resource is quarantined if the act fails or is cancelled after its first step has begun."""


Opener: TypeAlias = Callable[[LeaseView, Callable[[], None]], Interface]
"""Opens an interface on a lease. The callable is the engine's still_mine() check."""


class Kind(ABC):
    """Base class of every kind. A kind is stateless: one instance of the class serves all blueprints of the kind."""

    name: ClassVar[str]
    resource_type: ClassVar[str]
    Config: ClassVar[type[Fields]] = Fields
    Requirements: ClassVar[type[Fields]] = Fields
    Attributes: ClassVar[type[Fields]] = Fields
    OwnCredential: ClassVar[type[Fields] | None] = None
    """The secrets that one resource may have of its own, such as those of its BMC. None if it has none.

    Operators set them at registration or later, and steps read them in `spec.resource.credential`.
    """
    matches: ClassVar[tuple[Match, ...]] = ()
    needs: ClassVar[tuple[str, ...]] = ()
    """Resource types that the kind's steps may lease (`Need`). Cyclic dependencies among blueprints are refused."""
    gone_with_needs: ClassVar[bool] = False
    """Whether the kind's resources exist only inside leases that they hold for life, like a folder on a leased host.

    If True, a resource counts as gone once all of those leases are gone with everything on them. If False, the
    `destroy` plan is always carried out until it confirms that the resource is absent.
    """
    most_resources: ClassVar[int | None] = None
    """Maximum number of resources of a blueprint, and the default of the blueprint's limit. None means no limit."""
    idle_timeout: ClassVar[dt.timedelta | None] = None
    """Default idle timeout of a new blueprint; None keeps idle resources. Set it for resources that cost money."""
    check_interval: ClassVar[dt.timedelta | None] = None
    """Default interval of health checks of a new blueprint; None means no checks."""
    unreachable: ClassVar[frozenset[str]] = frozenset()
    """Failure codes which mean that the resource did not answer, such as a refused connection.

    If activate, deactivate, clean, check or update fails with one of them, the resource serves no new lease until a
    check succeeds, and a lease that was being activated there is tried elsewhere at once. The step must return such a
    code within 15 seconds, whatever the resource does.
    """
    operator_facts: ClassVar[frozenset[str]] = frozenset()
    """Facts of resources that only operators see, such as the address of a management controller."""
    reusable: ClassVar[bool] = True
    """Whether a resource can be cleaned for another lease. If False, it is destroyed when its lease ends."""

    @abstractmethod
    def destroy(self) -> Plan:
        """Return the plan that destroys a resource that was built, or cleans and hands back any other resource.

        Every step is idempotent, and succeeds if nothing is left to do. The last step confirms that the resource is
        absent.
        """

    def interfaces(self) -> Mapping[str, Opener]:
        """Return the functions that open the kind's interfaces on a lease, by interface name."""
        return {}

    def check_blueprint(self, blueprint: BlueprintView) -> Sequence[Problem]:
        """Return the problems with a blueprint. Creates nothing, but may call the provider."""
        return ()

    def needed_types(self, config: Any) -> frozenset[str]:
        """Return the resource types of which a blueprint with this config may need leases.

        Override this method if these resource types depend on the config.
        """
        return frozenset(self.needs)

    def reusable_after(self, lease: LeaseView) -> bool:
        """Return whether the resource, once it is cleaned, may be leased to another owner after this lease."""
        return self.reusable

    def lacking(self, config: Any) -> frozenset[type]:
        """Return the capability classes that the kind implements, but the backend of this config does not support.

        For a cloud, these are the capabilities that the cloud's client does not implement. Makes no external call.
        """
        return frozenset()


class Builds(ABC):
    """The kind can build a resource on demand."""

    @abstractmethod
    def drafts(self, config: Any, asked: Asked | None) -> Sequence[Draft]:
        """Return drafts of the resources that could be built for the request `asked`, best first.

        If `asked` is None, return drafts for the blueprint's minimum of idle resources. Makes no external call. Raises
        CatalogueStale if the catalogue has not been read yet.
        """

    @abstractmethod
    def build(self) -> Plan:
        """Return the plan that builds the draft in `spec.resource`, or that checks a registered resource."""


class Carried(ABC):
    """The kind builds each resource on another one, its carrier, which the resource leases alone and for life.

    A DPU is carried by its card. The resource is part of its carrier from the first step of its build that is ready
    while it has the lease. Whatever closes the carrier, or what that is part of, then closes the resource too. A group
    with `same: whole` chooses the carrier in the host of the group, and leases it before the build begins.
    """

    @abstractmethod
    def carrier(self, config: Any, asked: Asked | None) -> NeededLease | None:
        """Return the lease of the carrier that a build for the request `asked` needs; None if the config needs none.

        It must be exclusive and for life, and a step of the build must request it too, under the same name. A pure
        function.
        """


@dataclass(frozen=True, kw_only=True)
class Stops:
    """How to handle a resource that was switched off outside Drydock."""

    grace: float = 0.0
    """Seconds for which the resource is kept, so that it can be started again."""
    restart: bool = False
    """Whether to start the resource again at once."""


class Offers(ABC):
    """The kind builds resources from its provider's offers.

    One worker at a time polls the offers and the status of each account. The polls fill the catalogue and record the
    observed status of resources.
    """

    Credential: ClassVar[type[Fields]]
    """The fields of an account's credential."""
    inventory_every: ClassVar[float] = 60.0
    """Seconds between two polls of the inventory."""
    status_every: ClassVar[float] = 5.0
    """Seconds between two polls of the status of our resources."""
    unauthenticated: ClassVar[frozenset[str]] = frozenset()
    """Failure codes that affect every call, such as expired credentials.

    Once a listing succeeds again, every phase that failed with one of these codes is retried.
    """

    @abstractmethod
    def places(self, account: Account) -> Sequence[Place]:
        """Return the account's locations, each of which is polled separately.

        Return one place named "" if a single call covers all locations.
        """

    @abstractmethod
    def inventory(self, account: Account, place: str) -> Sequence[Offer]:
        """Return all offers in a place. Raises if the offers cannot be read now."""

    @abstractmethod
    def observe(self, account: Account, place: str, installation: str) -> Sequence[Owned]:
        """Return every object in `place` with the tag `drydock-installation=<installation>`, with the object's status.

        May omit objects that are permanently gone. Makes one call per page, and raises if any page cannot be read. The
        engine never acts on this list alone: it calls `read` for an object that the list omits or shows as stopped.
        """

    @abstractmethod
    def read(self, account: Account, resource: ResourceView) -> Owned:
        """Read one resource by its own id, without using the list of `observe`.

        The result is `absent` only if the provider itself says that the resource does not exist; a machine counts as
        lost only on this evidence. Raises if the resource cannot be read now, or if the answer is about another object.
        """

    def mark(self, account: Account, resource: ResourceView, tags: Mapping[str, str]) -> None:
        """Restore the tags of a resource after somebody removed them. Raises if the tags cannot be restored."""
        raise NotSupported(f"{type(self).__name__} cannot restore tags.")

    def stops(self, config: Any) -> Stops:
        """Return how to handle a resource that was switched off outside Drydock."""
        return Stops()

    @abstractmethod
    def located(self, config: Any) -> Sequence[str]:
        """Return the places in which a blueprint with this config builds. An empty list means all places."""

    @abstractmethod
    def sought(self, config: Any, asked: Asked | None) -> Sought:
        """Return the catalogue query for the request `asked` or, without one, for everything that the config allows."""

    @abstractmethod
    def draft(self, config: Any, asked: Asked | None, offer: Offer) -> Draft:
        """Return the draft of the resource to build from an offer."""

    @abstractmethod
    def build(self) -> Plan:
        """Return the plan that builds the draft in `spec.resource`."""


class Allows(ABC):
    """The account's provider quotas and usage can be read. Offers that would exceed a provider quota are not tried.

    Requires `Offers`.
    """

    allowances_every: ClassVar[float] = 60.0
    """Seconds between two polls of the quotas."""

    @abstractmethod
    def allowances(self, account: Account, place: str) -> Sequence[Allowance]:
        """Return the provider quotas of a place, and those that cover all places. For "", return those of all places.

        Omits provider quotas without a limit. Raises if the provider quotas cannot be read now.
        """


class Registers(ABC):
    """Resources of this kind are registered by people or programs, with the fields of Registration.

    A registered resource whose build fails is kept and listed with its problem. The build is repeated, with growing
    delays, until it succeeds or the registration is corrected or removed, so the build must be repeatable from its
    first step.
    """

    Registration: ClassVar[type[Fields]]
    fixed: ClassVar[frozenset[str]] = frozenset()
    """Fields of the registration that cannot be corrected once the resource is active. It is then registered anew."""

    @abstractmethod
    def register(self, config: Any, registration: Any) -> Draft:
        """Return the draft for a registered resource, which must have an `identity`."""

    @abstractmethod
    def build(self) -> Plan:
        """Return the plan that checks a registered resource and makes it ready."""


class Scans(ABC):
    """The host keys of a host can be read before the host is registered.

    An operator compares these keys with the keys shown on the host's own console, and registers the host with these
    keys.
    """

    @abstractmethod
    def scan(self, blueprint: BlueprintView, address: str, port: int) -> Sequence[str]:
        """Return the lines of the public keys that the host presents. Takes a few seconds, and does not sign in.

        Raises InterfaceError.
        """


class Discovers(ABC):
    """The kind finds all existing resources in one call.

    A kind that reads several places or pages, or that receives reports, implements `Reports` instead.
    """

    discovery_interval: ClassVar[dt.timedelta | None] = None
    """Default interval between discoveries or expected reports; None means the default of the installation."""

    @abstractmethod
    def discover(self, blueprint: BlueprintView) -> Sequence[Draft]:
        """Return all resources that exist now, each with a stable `identity`.

        A resource that two calls in a row do not return counts as lost. Raises if the resources cannot be listed, so
        that an outage is not mistaken for an absence.
        """


class Reports(Discovers):
    """The kind finds existing resources in reports. There is one report for each place, with one or more pages.

    The engine reads the reports of the places that `reported_places` returns, each in a task of its own, so that a
    place that does not respond does not delay the others. Reports about any other place are sent in by programs that
    run there.

    A kind that finds resources inside hosts names each place after a host (`str(host.id)`, from `blueprint.hosts`), and
    sets `Draft.host`. The resources that it finds then become parts of that host, whatever the host's blueprint is.
    """

    report_deadline: ClassVar[float] = 300.0
    """Time limit in seconds for reading the pages of a report. A report that takes longer is incomplete."""
    places_are_resources: ClassVar[bool] = False
    """Whether a place is named by the id of the resource that is the host there."""
    reports_hardware: ClassVar[bool] = False
    """Whether a report has one page whose content is the JSON form of `drydock_agent.Hardware`. The engine then keeps
    the last one of each place, so that people can see the devices that are not ready, and why."""

    @abstractmethod
    def drafts_from(self, config: Any, report: Report) -> Sequence[Draft]:
        """Return drafts of the resources on a report's page, each with a stable `identity`, unique in the blueprint.

        A pure function: the same page always results in the same drafts. Raises if the page is invalid; nothing is
        stored then.
        """

    def reported_places(self, blueprint: BlueprintView) -> Sequence[str]:
        """Return the places whose reports the engine reads. May call the provider once. Raises if the call fails.

        Resources in a place that is no longer returned count as missing.
        """
        return ("",)

    def required_agents(self, config: Any) -> Sequence[str]:
        """Return the places in which an agent must run. If no agent reports from such a place, operators are told."""
        return ()

    def accepts_agent(self, config: Any, place: str) -> bool:
        """Return whether an agent may report about a place."""
        return True

    def read_report(self, blueprint: BlueprintView, place: str, page: str) -> Report:
        """Read one page of a place's report; `page` is empty for the first page. Raises if the page cannot be read.

        Takes at most a few seconds. Override this method unless all reports are sent in by programs.
        """
        raise NotSupported(f"{type(self).__name__} cannot read reports: programs send them in.")

    def discover(self, blueprint: BlueprintView) -> Sequence[Draft]:
        """Read the reports of all places in turn, and return their resources. Raises if a report is incomplete."""
        found: list[Draft] = []
        for place in self.reported_places(blueprint):
            page: str | None = ""
            while page is not None:
                report = self.read_report(blueprint, place, page)
                if report.incomplete:
                    raise DrydockError(f"The report of {place or blueprint.name} is incomplete: {report.incomplete}")
                found += self.drafts_from(blueprint.config, report)
                page = report.next_page or None
        return found


class Lists(ABC):
    """The kind can list the objects that it created at its provider, even if their resources have no row any more.

    Used to find orphans.
    """

    @abstractmethod
    def owned(self, blueprint: BlueprintView, installation: str) -> Sequence[Owned]:
        """Return every object with the tag `drydock-installation=<installation>`, with all tags of the object.

        May omit objects that are being deleted. Raises if the objects cannot be listed now. `destroy` must be able to
        destroy each object with only its `key` and `facts`.
        """


class Watches(ABC):
    """The kind can watch its provider, so that steps that wait for a change of an object are called soon after it.

    Drydock runs one watch for each kind, credential and place. A step whose `Wait` has `watched` is polled less often
    while the watches work. Without a watch, or if it misses a change, the step is still called when it is due.
    """

    @abstractmethod
    def watched(self, config: Any) -> Sequence[WatchPlace]:
        """Return the places to watch for resources of a blueprint with this config. Calls no provider."""

    @abstractmethod
    def watch(
        self, blueprint: BlueprintView, place: str, installation: str, bookmark: str, ending: Ending
    ) -> Iterator[WatchNews]:
        """Yield what happens in a place to objects with the tag `drydock-installation=<installation>`.

        `blueprint` is one of the blueprints that use the place, with its credentials. Each object has all its tags of
        ours; other objects of which a resource is to be told are yielded with the tags of that resource. The watch
        begins at the bookmark, or with a listing if it is empty or cannot be used any more; changes may then have been
        `missed`. It lists at least every ten minutes, because a restored provider may report nothing, and yields
        something at least as often. `ending` ends a call that waits longer than a moment.
        """

    def watches_health(self, config: Any) -> bool:
        """Return whether a health check finds nothing that the watches do not report first.

        If so, a healthy resource is checked after each reported change and once a day while the watches work, so that
        the number of requests does not depend on the number of resources.
        """
        return False


@dataclass(frozen=True, kw_only=True)
class ServedMedium:
    """An image that the controller of a machine may fetch, as a virtual medium, for a limited time."""

    name: str
    """The last part of its address, such as `boot.iso`: at most 31 lower-case letters, digits, hyphens and dots."""
    token: str = field(repr=False)
    """At least 128 random bits as text of letters, digits, `-` and `_`. Whoever knows it can fetch the image."""
    expires_at: dt.datetime
    content: Callable[[], bytes] = field(repr=False)
    """Returns the image, of at most a few MiB: the same bytes at each call, as controllers fetch it in pieces."""


class ServesMedia(ABC):
    """Drydock serves images that the controllers of the kind's machines fetch, such as a medium with boot settings.

    They are fetched without signing in. Their addresses (`ResourceView.medium_url`) have a random token, which a step
    makes for each use and keeps in the secrets of the resource.
    """

    @abstractmethod
    def media(self, resource: ResourceView) -> Sequence[ServedMedium]:
        """Return the media that may be fetched now. Makes no external call."""


class Activates(ABC):
    """A lease must be set up on the resource before use: for example a user and key, a directory, a port, or power."""

    @abstractmethod
    def activate(self) -> Plan:
        """Return the plan that makes `spec.lease` usable. The facts and secrets of Ready are stored with the lease."""

    @abstractmethod
    def deactivate(self) -> Plan:
        """Return the plan that undoes an activation, even a partial one.

        The plan is idempotent. It ends all processes of the lease, and all access through the lease.
        """


class HandsOver(ABC):
    """An active lease can be transferred to another owner, with its files."""

    def transferable(self, lease: LeaseView) -> bool:
        """Return whether the former owner keeps no access to what the lease is on, once it is handed over.

        The engine also requires `Kind.reusable_after`.
        """
        return True

    @abstractmethod
    def hand_over(self) -> Plan:
        """Return the plan that ends the former owner's access and processes and then gives the new owner access.

        Files stay. `spec.lease` has no private key when the plan begins, and gets a key that the former owner never
        had.
        """


class Controls(ABC):
    """Hosts of this kind can be reached as root or through a control account, not only through accounts of leases.

    Resources that are built on such a host can therefore be cleaned without relying on anything that a lease's user
    could have changed.
    """

    @abstractmethod
    def control(self, lease: LeaseView) -> Control | None:
        """Return a control connection to the host of an active lease.

        Return None if the lease has no account of its own on the host, but uses the control account or the account of
        this program.
        """

    def reach(self, resource: ResourceView) -> Transport | None:
        """Return a transport to the control account of a host, or None if the account can be used only during a lease.

        Used by kinds whose resources are parts of the host (`HostView.connect`). Raises DrydockError.
        """
        return None

    def unit_host(self, lease: LeaseView) -> UnitHost | None:
        """Return the host of a lease for a systemd unit with the container of its workload.

        Return None if the host cannot run units: the container is then a job of the lease's account. A kind that
        returns a host ends the unit when the lease is deactivated (`blueprints.units.removed`). Calls no host.
        """
        return None


class Cleans(ABC):
    """The resource is cleaned between two leases. Until it is clean, no other lease gets it."""

    @abstractmethod
    def clean(self) -> Plan:
        """Return the plan that removes what `spec.lease` left behind, and proves that it is gone.

        The plan is idempotent: after a failure it is repeated from its first step.
        """

    def cleans_apart(self, config: Any) -> bool:
        """Return whether resources with this config are cleaned apart from the lease.

        If False, the lease keeps its share until the resource is clean, which suits cleaning that takes seconds. If
        True, the lease ends after its deactivation, and with it its quota, budget and usage. The resource stays in
        maintenance until `clean` succeeds, with a view of the ended lease in `spec.lease`: its facts, secrets and slot
        locks as they were at its end. It has no leases any more that its activation requested, and its interfaces must
        not be used. Facts and secrets that steps return are in the view of later steps. If `clean` fails, a resource
        that Drydock built is destroyed, and any other is cleaned again later. It is handed back only once it is clean.
        """
        return False


class Checks(ABC):
    """The health of the resource can be checked."""

    @abstractmethod
    def check(self) -> Plan:
        """Return the plan of a health check. Ready means healthy; Failed, with any scope, means unhealthy.

        `Ready.health` may say that the resource is degraded, or that its hardware reports a failure.

        The facts of Ready are observed values: `power` is on or off, if known. `leaving` is the provider's announcement
        that it will reclaim the resource; holders of leases are told once. `aside` lists files of former leases that
        were moved aside and still exist.
        """


@dataclass(frozen=True, kw_only=True)
class BulkChecked:
    """The result of checking several idle resources at once."""

    sound: Collection[int] = ()
    """The ids of the resources that were found as they should be. All others get a check of their own at once."""
    facts: Mapping[int, Json] = field(default_factory=dict)
    """Facts to store, by the id of the resource."""


class BulkChecks(Checks):
    """Idle resources can be checked together, at a fraction of the cost of a check of each.

    A bulk check can only find that a resource is as it should be. Any doubt is left to the plan of `check`.
    """

    @abstractmethod
    def checks_in_bulk(self, config: Any) -> bool:
        """Return whether idle resources of a blueprint with this config can be checked in bulk."""

    @abstractmethod
    def check_in_bulk(self, resources: Sequence[ResourceView], *, deadline: float) -> BulkChecked:
        """Check idle resources of one blueprint within `deadline` seconds.

        The resources have no leases, and no step runs on them meanwhile. Their views have no parts, parents, slot locks
        and wholes. If this raises an exception, all of them get a check of their own.
        """


class Powers(ABC):
    """The resource can be switched on and off."""

    @abstractmethod
    def power(self) -> Plan:
        """Return the plan that brings the resource's power to `spec.wanted["power"]`: on, off or cycle."""


class Reboots(ABC):
    """The resource can be rebooted."""

    @abstractmethod
    def reboot(self) -> Plan:
        """Return the plan that reboots the resource and waits until the resource works again."""


class Resizes(ABC):
    """The disk of the resource can grow."""

    @abstractmethod
    def resize(self) -> Plan:
        """Return the plan that grows the resource's disk to `spec.wanted["disk_gib"]` GiB.

        The plan succeeds if the disk is already that large, and never shrinks a disk.
        """


class Retypes(ABC):
    """The resource can change to another instance type that its provider offers. Requires `Offers`."""

    @abstractmethod
    def retype(self) -> Plan:
        """Return the plan that changes the resource to instance type `spec.wanted["type"]`, stopping it if it runs.

        Afterwards the resource is on or off according to `spec.wanted["power"]`. If the resource cannot start with the
        new instance type, the plan changes it back to `spec.wanted["from"]` and fails.
        """


class Tags(ABC):
    """Tags can be set on the resource."""

    @abstractmethod
    def tag(self) -> Plan:
        """Return the plan that sets `spec.wanted["tags"]`, a mapping from name to value. Other tags are not changed."""

    def refused_tags(self, config: Any, tags: Mapping[str, str]) -> str:
        """Return why the provider would refuse these tags, or an empty string if it would accept them."""
        return ""


class Consoles(ABC):
    """The console output of the resource can be read."""

    @abstractmethod
    def console(self, resource: ResourceView) -> str:
        """Return the last part of the console output, in one external call, or an empty string if there is none yet.

        Raises DrydockError.
        """


class Acts(ABC):
    """The kind declares acts: actions on its resources beyond those of the other capabilities."""

    @abstractmethod
    def acts(self) -> Sequence[DeclaredAct]:
        """Return the acts that the kind declares. Returns the same acts at every call, whatever the config."""

    def offered(self, config: Any) -> Sequence[DeclaredAct]:
        """Return those of the acts that resources with this config offer."""
        return self.acts()


class Updates(ABC):
    """An outdated resource can be updated in place to its blueprint's current generation.

    A registered resource is updated to match its current registration. A change that disturbs no lease is made while
    the resource is leased. Any other waits until it is idle, or until an operator forces it.
    """

    at_once: ClassVar[bool] = False
    """Whether an update takes only seconds.

    If True, all idle resources are updated at once, and outdated ones serve no new lease. If False, outdated ones stay
    in service, and only a limited number is updated at a time.
    """
    replaces: ClassVar[bool] = False
    """Whether a resource is replaced, once it is idle, if its update would disturb leases.

    `update` then only makes changes that disturb none.
    """
    forcible: ClassVar[bool] = False
    """Whether an operator may force an update that disturbs leases while leases hold the resource.

    No step of these leases is called meanwhile. Afterwards they are activated again if the kind implements `Activates`.
    A kind that also `replaces` updates a resource in place if an operator forces that, as far as `unforcible` allows.
    """

    @abstractmethod
    def update(self) -> Plan:
        """Return the plan that brings `spec.resource` to its blueprint's current config.

        If `spec.disruptive` is False, leases may hold the resource and use it meanwhile, and no step may disturb them.
        """

    def disruption(self, before: Any, after: Any) -> str:
        """Return how a change of the config disturbs the leases on a resource, or an empty string if it does not.

        A sentence that says what changes, for people. `before` is the config to which the resource was last brought;
        None if that is unknown or if the resource was found to differ from it. A pure function.
        """
        return "An update of this kind of resource disturbs its leases."

    def unforcible(self, before: Any, after: Any) -> str:
        """Return why a change that disturbs leases cannot be forced, as a sentence, or an empty string if it can.

        Only for kinds that are `forcible`. The arguments are those of `disruption`. A pure function.
        """
        return ""


class CatalogueStale(Exception):
    """The catalogue has not been read yet, so it is unknown what could be built. The lease waits."""


@dataclass(frozen=True, kw_only=True)
class Capability:
    """A capability of a kind, and the class that declares it."""

    name: str
    base: type


CAPABILITIES = tuple(
    Capability(name=base.__name__.lower(), base=base)
    for base in (
        Builds, Carried, Offers, Allows, Registers, Scans, Discovers, Reports, Lists, Activates, HandsOver, Cleans,
        Checks, Controls, Powers, Reboots, Resizes, Retypes, Tags, Consoles, Acts, Updates, ServesMedia,
    )
)  # fmt: skip


def acts_of(kind: Kind) -> Mapping[str, DeclaredAct]:
    """Return the acts that a kind declares, by name."""
    return {act.name: act for act in kind.acts()} if isinstance(kind, Acts) else {}


def offered_acts(kind: Kind, config: Any) -> Mapping[str, DeclaredAct]:
    """Return the acts that resources of a kind with this config offer, by name."""
    return {act.name: act for act in kind.offered(config)} if isinstance(kind, Acts) else {}


def capabilities(kind: Kind) -> frozenset[str]:
    """Return the capabilities of a kind, which follow from the classes that the kind implements."""
    return frozenset(c.name for c in CAPABILITIES if isinstance(kind, c.base))


__all__ = [
    "CAPABILITIES",
    "Act",
    "Activates",
    "Acts",
    "Allows",
    "Builds",
    "Carried",
    "CatalogueStale",
    "Checks",
    "Cleans",
    "Consoles",
    "Control",
    "Controls",
    "DeclaredAct",
    "Discovers",
    "Fields",
    "HandsOver",
    "Kind",
    "Lists",
    "Match",
    "Offers",
    "Opener",
    "Plan",
    "Powers",
    "Reboots",
    "Registers",
    "Report",
    "Reports",
    "Resizes",
    "ResourceView",
    "Retypes",
    "Scans",
    "ServedMedium",
    "ServesMedia",
    "Step",
    "Stops",
    "Tags",
    "Updates",
    "acts_of",
    "capabilities",
    "offered_acts",
]
