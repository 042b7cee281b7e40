"""The provider contract: one account at one cloud, as the classes that its client implements.

What a client can do is read off these classes (`capabilities`), never declared a second time. Every method is one
short call (or one call per page), has a deadline, raises `faults.CloudError` and nothing else, and keeps to the
provider's rate. None of them waits until something has happened: the frame asks again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar

from blueprints.cloud.values import (
    Image,
    Instance,
    InstanceType,
    Lifecycle,
    Location,
    Order,
    Quota,
    Remnant,
    Rule,
    Underway,
)
from blueprints.specs import Problem


def ignore(what: str) -> None:
    """Report nothing."""


class Api(StrEnum):
    """How a provider's inventory is read."""

    GLOBAL = "global"
    """One call tells of all locations."""
    LOCATIONAL = "locational"
    """One call (or one per page) for each location."""


class Client(ABC):
    """Base of every cloud's client: create, find, list, terminate, and what there is to be had.

    Objects that an instance needs (disk, network card, address, firewall) are made by `prepare` and `create` under
    names made of the order's key, bear its tags, and go with `terminate` and `sweep`.
    """

    provider: ClassVar[str]
    """The kind's name: `ec2`."""
    api: ClassVar[Api] = Api.LOCATIONAL
    types_every: ClassVar[float] = 60.0
    """Seconds between two readings of the inventory. The kind says the same, without loading the client."""
    status_every: ClassVar[float] = 5.0
    """Seconds between two listings of the instances."""

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Nobody calls it any more: connections that it holds may go."""

    @abstractmethod
    def identity(self) -> str:
        """Who we are there (account, project, subscription): the cheapest call that proves the credential."""

    @abstractmethod
    def locations(self) -> Sequence[Location]:
        """The regions that this account may use, as far as the config allows them."""

    @abstractmethod
    def types(self, location: str) -> Sequence[InstanceType]:
        """Everything to be had in a location, with prices where they are known; "" means all, where `api` is global."""

    @abstractmethod
    def instances(self, location: str, tags: Mapping[str, str]) -> Sequence[Instance]:
        """Every instance there that bears these tags, one call per page; the terminated ones may be left out."""

    @abstractmethod
    def prepare(self, order: Order) -> Mapping[str, str] | Underway:
        """Make what the instance stands on (firewall, network card, address): idempotent; what it made, by name.
        Underway: call it again."""

    @abstractmethod
    def create(self, order: Order, prepared: Mapping[str, str]) -> Instance | Underway:
        """Ask for the instance once, under the order's token. An Underway is gone on with by `created`."""

    def created(self, order: Order, handle: Mapping[str, str]) -> Instance | Underway:
        """What has become of a create that answered Underway. The default looks for the instance."""
        return self.find(order) or Underway(handle=handle)

    @abstractmethod
    def find(self, order: Order) -> Instance | None:
        """The instance that this order has made, by its token or name; None where the provider has none. Right after
        a create that is no proof: reads may lag behind (`find_after`)."""

    find_after: ClassVar[float] = 30.0
    """Seconds after a lost answer until `find` proves an absence."""
    unseen_for: ClassVar[float] = 0.0
    """Seconds after an answered create for which reads may not know the instance yet: until then that `instance` finds
    none proves nothing, and a create under the same token is what tells of it."""

    @abstractmethod
    def instance(self, location: str, zone: str, key: str, instance_id: str) -> Instance | None:
        """Read one anew; None where it is provably gone: the provider itself says that there is none. An answer that is
        not about it raises UNAVAILABLE. Without an id (its create was never answered) by its key."""

    def ended(self, instance: Instance) -> Instance:
        """What the provider still tells of an instance that it no longer has: TERMINATED, why, and whether it was taken
        back."""
        reason = f"{self.provider} says that there is no {instance.id or instance.key}."
        return replace(instance, state=Lifecycle.TERMINATED, reason=reason)

    stops_spot: ClassVar[str] = ""
    """The sentence for a spot instance that is stopped though nobody here asked for it, where the provider takes spot
    instances back by stopping them and says no more than that. Empty: `Instance.preempted` tells."""

    @abstractmethod
    def terminate(self, instance: Instance) -> None:
        """Ask for its end; already gone is success."""

    @abstractmethod
    def sweep(
        self, location: str, zone: str, key: str, tags: Mapping[str, str], *, known: Sequence[str] = (),
        report: Callable[[str], object] = ignore,
    ) -> Sequence[str]:  # fmt: skip
        """Delete what is left of what was made under a key besides the instance, in the right order, as far as it can
        go now; further instances of lost attempts too. The names of what is still there; empty, read after the
        deletion: nothing is left.

        Things are found by the tags of their owner (`values.OWNER`); `known` are ids of what was made, as `prepare`
        and the instance told them, by which it is found where somebody has removed its tags: `report` is told so.
        """

    @abstractmethod
    def image(self, location: str, wanted: Mapping[str, str], arch: str) -> Image:
        """The newest image that the config's words choose. Raises CloudError NOT_FOUND with what was looked for."""


class IdempotentCreate:
    """A create repeated under the same token makes no second instance."""


class UserData:
    """The order's user data reach the guest."""


class Spot:
    """Orders of the market `spot`."""


class ConfidentialGuests:
    """Orders with a confidential technology."""


class Expires:
    """`ends_after` is carried out by the provider itself."""


class StopsStarts(ABC):
    """Instances can be stopped, and started again."""

    @abstractmethod
    def stop(self, instance: Instance) -> None:
        """Ask for the stop; stopped already is success."""

    @abstractmethod
    def start(self, instance: Instance) -> None:
        """Ask for the start; running already is success."""


class Reboots(ABC):
    """Instances can be rebooted."""

    @abstractmethod
    def reboot(self, instance: Instance) -> None:
        """Ask for it."""


class ResizesVolume(ABC):
    """The boot disk can grow."""

    @abstractmethod
    def resize_volume(self, instance: Instance, disk_gib: int) -> Underway | None:
        """Ask for a larger disk; as large already is success. Underway: call it again."""


class ChangesType(ABC):
    """A stopped instance can become another type."""

    @abstractmethod
    def change_type(self, instance: Instance, type_name: str) -> None:
        """Ask for it; of that type already is success."""


class Tags(ABC):
    """Tags can be set on what is there."""

    @abstractmethod
    def set_tags(self, instance: Instance, tags: Mapping[str, str]) -> None:
        """Set these; others stay."""


class Firewall(ABC):
    """Ports can be opened and closed again while an instance runs."""

    @abstractmethod
    def open_ports(self, instance: Instance, rules: Sequence[Rule]) -> None:
        """Let these in; open already is success. Raises CloudError CONFLICT while the provider is still at it."""

    @abstractmethod
    def close_ports(self, instance: Instance, rules: Sequence[Rule]) -> None:
        """No longer; closed already is success. Raises CloudError CONFLICT while one is still being opened."""


class Console(ABC):
    """What a guest writes on its console can be read."""

    @abstractmethod
    def console(self, instance: Instance) -> str:
        """The newest part of it, at most 64 KiB; empty where there is none yet."""


class TellsHostKeys(ABC):
    """The host keys that a guest has made itself can be read by a way of the provider's own."""

    key_source: ClassVar[str]
    """What the config calls that way: `guest_attributes` or `run_command`."""

    @abstractmethod
    def host_keys(self, instance: Instance, handle: Mapping[str, str]) -> Sequence[str] | Underway:
        """Their public lines; empty where the guest has not told them yet. An Underway is gone on with by its
        handle."""


class Quotas(ABC):
    """The account's limits, and how much of them is used by whomever, can be read."""

    @abstractmethod
    def quotas(self, location: str) -> Sequence[Quota]:
        """Those of one location, or of all with ""."""


class MachineImage(ABC):
    """Images can be looked through."""

    @abstractmethod
    def images(self, location: str, name: str) -> Sequence[Image]:
        """Those whose name fits the pattern, newest first."""


class ListsRemains(ABC):
    """What was made beside the instances can be listed by its tags, so that it is found without its instance."""

    @abstractmethod
    def remains(self, location: str, tags: Mapping[str, str]) -> Sequence[Remnant]:
        """Everything in a location, or in all with "", that bears these tags and is no instance; what an instance
        uses at present may be left out. One call for each sort and page."""


@dataclass(frozen=True, kw_only=True)
class Permission:
    """One of the least permissions that a kind's page lists, and whether the account has it."""

    name: str
    """As the provider calls it."""
    held: bool | None
    """None: it cannot be told."""
    unclear: str = ""
    """Why it cannot be told, as the end of a sentence."""
    without: str = ""
    """What does not work without it, as a sentence's part; empty: machines cannot be made, reached or ended."""
    host_key: str = ""
    """The config's `host_key` that cannot do without it."""


class Permissions(ABC):
    """What the account may do can be asked without doing it."""

    @abstractmethod
    def permissions(self, order: Order) -> Sequence[Permission]:
        """Those that an order like this one, and its end, would need. Makes, changes and spends nothing. Several
        calls."""


class Networks(ABC):
    """What machines would stand in can be looked at before there is one."""

    @abstractmethod
    def network_problems(self, order: Order, zones: Sequence[str]) -> Sequence[Problem]:
        """Why machines like the order's could not stand in the network that it names (its default where it names
        none), with what is there instead; `zones`: those that are allowed, empty for all. Empty: they could. A few
        calls, which make nothing."""


@dataclass(frozen=True, kw_only=True)
class Capability:
    """One thing that a cloud can do, and the class that says so."""

    name: str
    base: type


CAPABILITIES = (
    Capability(name="create", base=Client),
    Capability(name="idempotent-create", base=IdempotentCreate),
    Capability(name="terminate", base=Client),
    Capability(name="stop-start", base=StopsStarts),
    Capability(name="reboot", base=Reboots),
    Capability(name="resize-volume", base=ResizesVolume),
    Capability(name="change-type", base=ChangesType),
    Capability(name="tags", base=Tags),
    Capability(name="user-data", base=UserData),
    Capability(name="machine-image", base=MachineImage),
    Capability(name="firewall", base=Firewall),
    Capability(name="spot", base=Spot),
    Capability(name="confidential", base=ConfidentialGuests),
    Capability(name="console-output", base=Console),
    Capability(name="quota", base=Quotas),
    Capability(name="server-side-expiry", base=Expires),
    Capability(name="list-remains", base=ListsRemains),
    Capability(name="permission-check", base=Permissions),
    Capability(name="network-check", base=Networks),
)
"""The names are those of Brev's Cloud SDK (v1/capabilities.go) where it has one."""


def capabilities(client: type[Client]) -> frozenset[str]:
    """What a cloud can do, read off the classes of its client."""
    return frozenset(one.name for one in CAPABILITIES if issubclass(client, one.base))
