"""The provider contract: the classes that the client for one account at a cloud implements.

The capabilities of a client follow from the classes that it implements (`capabilities`), and are not declared in any
other way. Every method is one short call (or one call per page), has a deadline, raises only `faults.CloudError`, and
keeps to the provider's rate limits. No method waits for a result: the engine calls the method again.
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
    """Do nothing. The default for the `report` of `Client.sweep`."""


class Api(StrEnum):
    """The extent of one call for instance types: one location, or all locations at once."""

    GLOBAL = "global"
    """A call lists all locations at once."""
    LOCATIONAL = "locational"
    """One call (or one per page) for each location."""


class Client(ABC):
    """Base of every cloud's client: create, find, list and terminate instances, and read what the cloud offers.

    `prepare` and `create` make the objects that an instance needs (disk, network card, address, firewall). The names of
    these objects are derived from the order's key, and the objects get the order's tags; `terminate` and `sweep` delete
    the objects.
    """

    provider: ClassVar[str]
    """The name of the kind, such as `ec2`."""
    api: ClassVar[Api] = Api.LOCATIONAL
    types_every: ClassVar[float] = 60.0
    """Seconds between two polls of the inventory. The kind repeats the value, so that it need not load the client."""
    status_every: ClassVar[float] = 5.0
    """Seconds between two listings of the instances."""

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Close the connections. The client cannot be used afterwards."""

    @abstractmethod
    def identity(self) -> str:
        """Return the account (project, subscription) to which the credential belongs.

        This is the cheapest call that proves that the credential is valid.
        """

    def account(self) -> str:
        """Return the same as `identity`, but make no call to the provider if the config names the account."""
        return self.identity()

    @abstractmethod
    def locations(self) -> Sequence[Location]:
        """Return the regions that the account may use and the config allows."""

    @abstractmethod
    def types(self, location: str) -> Sequence[InstanceType]:
        """Return the instance types that have a known price in a location.

        If `api` is global, `location` may be "" for all locations.
        """

    @abstractmethod
    def instances(self, location: str, tags: Mapping[str, str]) -> Sequence[Instance]:
        """Return every instance in a location that has these tags.

        May omit instances that are terminated. Makes one call per page.
        """

    @abstractmethod
    def prepare(self, order: Order) -> Mapping[str, str] | Underway:
        """Create the objects that the instance needs (firewall, network card, address). Repeating the call is safe.

        Returns the ids of the objects by name. If the result is an Underway, call this method again.
        """

    @abstractmethod
    def create(self, order: Order, prepared: Mapping[str, str]) -> Instance | Underway:
        """Request the instance once, under the order's token. If this returns an Underway, continue with `created`."""

    def created(self, order: Order, handle: Mapping[str, str]) -> Instance | Underway:
        """Return the result of a `create` that returned an Underway. By default, looks for the instance."""
        return self.find(order) or Underway(handle=handle)

    @abstractmethod
    def find(self, order: Order) -> Instance | None:
        """Return the instance of this order, found by the order's token or name, or None if there is none.

        Right after `create`, None proves nothing, because the provider may list new instances late (`find_after`).
        """

    find_after: ClassVar[float] = 30.0
    """Seconds after a lost answer until None from `find` proves that there is no instance."""
    unseen_for: ClassVar[float] = 0.0
    """Seconds after a create was answered during which reads may not find the instance yet.

    Until then, None from `instance` proves nothing; a create under the same token tells whether the instance exists.
    """

    @abstractmethod
    def instance(self, location: str, zone: str, key: str, instance_id: str) -> Instance | None:
        """Read one instance. Return None only if the provider itself says that the instance does not exist.

        Raises UNAVAILABLE if the answer is about another object. If the id is unknown because `create` was never
        answered, the instance is read by its key.
        """

    def ended(self, instance: Instance) -> Instance:
        """Return the information that the provider still has about an instance that no longer exists.

        The state of the returned instance is TERMINATED, with the reason and whether the provider reclaimed it.
        """
        reason = f"{self.provider} reports that {instance.id or instance.key} does not exist."
        return replace(instance, state=Lifecycle.TERMINATED, reason=reason)

    stops_spot: ClassVar[str] = ""
    """The reason to record for a spot instance that stopped although Drydock did not stop it.

    Set only for providers that reclaim a spot instance by stopping it, and do not report that they reclaimed it. Empty
    for other providers, for which `Instance.preempted` is set.
    """

    @abstractmethod
    def terminate(self, instance: Instance) -> None:
        """Request termination. An instance that no longer exists is not an error."""

    @abstractmethod
    def sweep(
        self, location: str, zone: str, key: str, tags: Mapping[str, str], *, known: Sequence[str] = (),
        report: Callable[[str], object] = ignore,
    ) -> Sequence[str]:  # fmt: skip
        """Delete the objects of an order, except its instance, as far as possible now.

        Also deletes other instances, left by attempts whose answer was lost. Returns the names of the objects that
        still exist. An empty result, read after the deletion, means that nothing is left.

        Objects are found by the tags of their owner (`values.OWNER`). `known` contains the ids of the created objects,
        from `prepare` and from the instance. With these ids, the sweep finds objects whose tags were removed, and calls
        `report` with a sentence about each such object.
        """

    @abstractmethod
    def image(self, location: str, wanted: Mapping[str, str], arch: str) -> Image:
        """Return the newest image that the config selects. Raises CloudError NOT_FOUND with the search terms."""


class IdempotentCreate:
    """Capability: repeating `create` with the same token does not create a second instance."""


class UserData:
    """Capability: the order's user data are passed to the instance."""


class Spot:
    """Capability: orders for the market `spot`."""


class ConfidentialGuests:
    """Capability: the client can order instances that use a confidential computing technology."""


class Expires:
    """Capability: the provider itself ends an instance at the order's `ends_after`."""


class StopsStarts(ABC):
    """Capability: instances can be stopped and started again."""

    @abstractmethod
    def stop(self, instance: Instance) -> None:
        """Request a stop. An instance that is already stopped is not an error."""

    @abstractmethod
    def start(self, instance: Instance) -> None:
        """Request a start. An instance that is already running is not an error."""


class Reboots(ABC):
    """Capability: instances can be rebooted."""

    @abstractmethod
    def reboot(self, instance: Instance) -> None:
        """Request a reboot."""


class ResizesVolume(ABC):
    """Capability: the boot disk can grow."""

    @abstractmethod
    def resize_volume(self, instance: Instance, disk_gib: int) -> Underway | None:
        """Request a larger disk, unless the disk is already large enough.

        If this returns an Underway, call this method again.
        """


class ChangesType(ABC):
    """Capability: a stopped instance can change to another instance type."""

    @abstractmethod
    def change_type(self, instance: Instance, type_name: str) -> None:
        """Request a change of instance type. An instance that already has that type is not an error."""


class Tags(ABC):
    """Capability: tags can be set on existing objects."""

    @abstractmethod
    def set_tags(self, instance: Instance, tags: Mapping[str, str]) -> None:
        """Set these tags on an object. Other tags are not changed."""


class Firewall(ABC):
    """Capability: ports can be opened and closed while an instance runs."""

    @abstractmethod
    def open_ports(self, instance: Instance, rules: Sequence[Rule]) -> None:
        """Open these ports, if they are closed. Raises CloudError CONFLICT while a port is still being changed."""

    @abstractmethod
    def close_ports(self, instance: Instance, rules: Sequence[Rule]) -> None:
        """Close these ports, if they are open. Raises CloudError CONFLICT while a port is still being opened."""


class Console(ABC):
    """Capability: the console output of an instance can be read."""

    @abstractmethod
    def console(self, instance: Instance) -> str:
        """Return the last part of the console output, at most 64 KiB, or an empty string if there is no output yet."""


class TellsHostKeys(ABC):
    """Capability: the host keys that an instance generated at its first boot can be read through the provider."""

    key_source: ClassVar[str]
    """The config's name for this source of keys: `guest_attributes` or `run_command`."""

    @abstractmethod
    def host_keys(self, instance: Instance, handle: Mapping[str, str]) -> Sequence[str] | Underway:
        """Return the instance's public host keys, one per line, or an empty string if they are not published yet.

        If this returns an Underway, call this method again with the Underway's handle.
        """


class Quotas(ABC):
    """Capability: the account's provider quotas and their total usage can be read."""

    @abstractmethod
    def quotas(self, location: str) -> Sequence[Quota]:
        """Return the provider quotas of one location, or those of all locations for ""."""


class MachineImage(ABC):
    """Capability: images can be listed."""

    @abstractmethod
    def images(self, location: str, name: str) -> Sequence[Image]:
        """Return the images whose name matches the pattern, newest first."""


class ListsRemains(ABC):
    """Capability: objects other than instances can be listed by tags, even if their instance no longer exists."""

    @abstractmethod
    def remains(self, location: str, tags: Mapping[str, str]) -> Sequence[Remnant]:
        """Return every object in a location that has these tags and is not an instance. For "", looks in all locations.

        Objects that an instance is using may be omitted. Makes one call for each type of object and each page.
        """


@dataclass(frozen=True, kw_only=True)
class Permission:
    """A permission listed on a kind's documentation page, and whether the account has it."""

    name: str
    """The provider's name for the permission."""
    held: bool | None
    """Whether the account has the permission; None if that cannot be determined."""
    unclear: str = ""
    """The reason why `held` cannot be determined, as the end of a sentence."""
    without: str = ""
    """The feature that fails without the permission, as a clause. Empty if no machine works without the permission."""
    host_key: str = ""
    """The config's `host_key` value for which the permission is required; empty if it is required for every value."""


class Permissions(ABC):
    """Capability: the account's permissions can be checked without using them."""

    @abstractmethod
    def permissions(self, order: Order) -> Sequence[Permission]:
        """Return the permissions that are needed to create the instance of an order, and to delete the order's objects.

        Creates and changes nothing and costs nothing. Makes several calls.
        """


class Networks(ABC):
    """Capability: the network for future machines can be checked."""

    @abstractmethod
    def network_problems(self, order: Order, zones: Sequence[str]) -> Sequence[Problem]:
        """Return why machines could not be created in the order's network, and which networks are available.

        The network is the one that the order names, or the default network. `zones` are the allowed zones; empty means
        all. The result is empty if there is no problem. Makes a few calls, which create nothing.
        """


@dataclass(frozen=True, kw_only=True)
class Capability:
    """A capability of a cloud, and the class that declares it."""

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
"""All capabilities. Their names are those of Brev's Cloud SDK (v1/capabilities.go), as far as it has the capability."""


def capabilities(client: type[Client]) -> frozenset[str]:
    """Return the capabilities of a cloud, which follow from the classes that its client implements."""
    return frozenset(one.name for one in CAPABILITIES if issubclass(client, one.base))
