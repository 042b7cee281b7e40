"""The provider contract's client for one project at Google Compute Engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from blueprints.cloud import client as cloud
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import (
    Image,
    Instance,
    InstanceType,
    Location,
    Order,
    Quota,
    Remnant,
    Rule,
    Underway,
    same_owner,
)
from blueprints.gce import instances, network, permissions
from blueprints.gce.account import Account
from blueprints.gce.api import Calls, Operation, found, refused
from blueprints.gce.config import Credential
from blueprints.gce.instances import TAKEN, Instances, split_type
from blueprints.gce.market import table
from blueprints.gce.network import FirewallRules
from blueprints.specs import Problem

CONSOLE = 64 * 1024
"""Number of bytes that are read from the end of the console output."""


class Gce(
    cloud.Client,
    cloud.IdempotentCreate,
    cloud.UserData,
    cloud.Spot,
    cloud.ConfidentialGuests,
    cloud.Expires,
    cloud.StopsStarts,
    cloud.Reboots,
    cloud.ResizesVolume,
    cloud.ChangesType,
    cloud.Tags,
    cloud.Firewall,
    cloud.Console,
    cloud.TellsHostKeys,
    cloud.Quotas,
    cloud.MachineImage,
    cloud.ListsRemains,
    cloud.Permissions,
    cloud.Networks,
):
    """One project at Google Compute Engine. Locations are regions.

    The API is read globally: `instances.aggregatedList` returns all zones in one call per 500 instances, while reading
    zone by zone needs one call for each of some 130 zones; `machineTypes.aggregatedList` needs about half as many calls
    as there are zones. Given a location, types are read zone by zone (three or four calls), and instances are read
    globally and filtered here. There are many types, which rarely change, so types are read every half hour. If Google
    could not read a zone, the call fails, because machines in that zone must not count as gone.
    """

    provider = "gce"
    api = cloud.Api.GLOBAL
    key_source = "guest_attributes"
    types_every = 1800.0
    status_every = 5.0

    def __init__(self, credential: Credential, *, deadline: float = 20.0) -> None:
        """Connect to a project.

        `deadline` is the maximum number of seconds for one call. Raises InvalidRequest if the operator's price table
        cannot be read.
        """
        self._calls = Calls(credential, deadline)
        self._account = Account(self._calls, table(credential.prices))
        self._instances = Instances(self._calls)
        self._rules = FirewallRules(self._calls)
        self._permissions = permissions.Permissions(credential, deadline)

    def identity(self) -> str:
        return f"projects/{self._account.project().name}"

    def locations(self) -> Sequence[Location]:
        return self._account.locations()

    def types(self, location: str) -> Sequence[InstanceType]:
        return self._account.types(location)

    def quotas(self, location: str) -> Sequence[Quota]:
        return self._account.quotas(location)

    def image(self, location: str, wanted: Mapping[str, str], arch: str) -> Image:
        return self._account.image(wanted, arch)

    def images(self, location: str, name: str) -> Sequence[Image]:
        """Return images by name: a pattern in our own project, or PROJECT/PATTERN."""
        return self._account.images(name)

    def instances(self, location: str, tags: Mapping[str, str]) -> Sequence[Instance]:
        return [it for it in self._instances.listed(tags) if not location or it.location == location]

    def prepare(self, order: Order) -> Mapping[str, str] | Underway:
        """Create the firewall rule for SSH, named like the instance.

        Without an IPv4 network in `ssh_from` no rule is created, and the machine cannot be reached.
        """
        if not network.ipv4(order.ssh_from):
            return {}
        link = self._rules.network(order)
        if self._rules.ensure(network.ssh_rule(order, link)):
            return {"firewall": order.key, "network": link}
        return Underway(handle={"firewall": order.key}, sentence="The firewall rule is being created.")

    def create(self, order: Order, prepared: Mapping[str, str]) -> Instance | Underway:
        try:
            operation = self._instances.insert(order)
        except CloudError as error:
            if error.provider_code not in TAKEN:
                raise
            return self._standing(order)
        return self._outcome(order, operation)

    def created(self, order: Order, handle: Mapping[str, str]) -> Instance | Underway:
        """Poll the operation. Raises the error with which it failed."""
        name, zone = handle["operation"], handle.get("zone", order.zone)
        operation = found(lambda: self._calls.zone_operation(zone, name))
        # Google forgets operations after some time.
        return self._standing(order) if operation is None else self._outcome(order, operation)

    def _outcome(self, order: Order, operation: Operation) -> Instance | Underway:
        if self._calls.done(operation):
            return self._standing(order)
        return Underway(
            handle={"operation": operation.name, "zone": order.zone},
            percent=operation.progress or None,
            sentence="Compute Engine is creating the instance.",
        )

    def _standing(self, order: Order) -> Instance:
        it = self._instances.ours(order)
        if it is None:
            text = f"The instance {order.key!r} was created, but no longer exists."
            raise CloudError(Meaning.NOT_FOUND, text, provider_code="notFound")
        return it

    def find(self, order: Order) -> Instance | None:
        """Find the instance by name and tags. Raises INVALID if an instance that is not ours has the name."""
        return self._instances.ours(order)

    find_after = 30.0

    def instance(self, location: str, zone: str, key: str, instance_id: str) -> Instance | None:
        it = self._instances.raw(zone, instance_id or key)
        return None if it is None else self._instances.taken_back(instances.instance(it))

    def ended(self, instance: Instance) -> Instance:
        return self._instances.ended(instance)

    def terminate(self, instance: Instance) -> None:
        self._instances.delete(instance)

    def sweep(
        self, location: str, zone: str, key: str, tags: Mapping[str, str], *, known: Sequence[str] = (),
        report: Callable[[str], object] = cloud.ignore,
    ) -> Sequence[str]:  # fmt: skip
        """Delete boot disks that outlived their instance, then firewall rules.

        There are no reserved addresses to delete. A rule without any owner's tags also counts as ours if it has the
        name of the rule that was created for the instance (`known`).
        """
        for where in self._left_disks(zone, key, tags):
            _as_far_as_it_goes(self._instances.delete_disk, where, key)
        untagged = self._rules.untagged([name for name in known if name == key])
        for rule in untagged:
            report(f"firewall rule {rule} is deleted by its name, because its description with the tags was changed.")
        for rule in (*self._rules.of(key, tags), *untagged):
            _as_far_as_it_goes(self._rules.close, rule)
        disks = [f"disk {key} in {where}" for where in self._left_disks(zone, key, tags)]
        rules = [*self._rules.of(key, tags), *self._rules.untagged(untagged)]
        return [*disks, *(f"firewall rule {rule}" for rule in rules)]

    def _left_disks(self, zone: str, key: str, tags: Mapping[str, str]) -> list[str]:
        return [where for where, disk in self._instances.disks(zone, key) if same_owner(dict(disk.labels), tags)]

    def remains(self, location: str, tags: Mapping[str, str]) -> Sequence[Remnant]:
        """Return unused disks and firewall rules.

        Firewall rules have no location, and are returned for every location.
        """
        disks = [one for one in self._instances.lone_disks(tags) if not location or one.location == location]
        return [*disks, *self._rules.listed(tags)]

    def stop(self, instance: Instance) -> None:
        self._instances.ask(instance, "stop")

    def start(self, instance: Instance) -> None:
        self._instances.ask(instance, "start")

    def reboot(self, instance: Instance) -> None:
        self._instances.ask(instance, "reset")

    def resize_volume(self, instance: Instance, disk_gib: int) -> Underway | None:
        grown = self._instances.grow(instance, disk_gib)
        return None if grown else Underway(handle={}, sentence="The disk is being enlarged.")

    def change_type(self, instance: Instance, type_name: str) -> None:
        """Change the type. Raises INVALID if the attached GPUs would change too."""
        if type_name == instance.type:
            return
        machine, accelerator, count = split_type(type_name)
        if (accelerator, count) != split_type(instance.type)[1:]:
            raise refused("A change of type cannot change the GPUs of an instance.")
        self._instances.change_type(instance, machine)

    def set_tags(self, instance: Instance, tags: Mapping[str, str]) -> None:
        self._instances.set_tags(instance, tags)

    def open_ports(self, instance: Instance, rules: Sequence[Rule]) -> None:
        it = self._instances.raw(instance.zone, instance.id or instance.key)
        if it is None:
            raise CloudError(Meaning.NOT_FOUND, f"Instance {instance.key!r} does not exist.", provider_code="notFound")
        link = it.network_interfaces[0].network
        link = link[link.find("projects/") :]
        wanted = [network.port_rule(instance.key, link, rule, instance.tags) for rule in rules]
        if not all([self._rules.ensure(rule) for rule in wanted]):
            raise CloudError(Meaning.CONFLICT, f"The firewall rules of {instance.key!r} are still being created.")

    def close_ports(self, instance: Instance, rules: Sequence[Rule]) -> None:
        for rule in rules:
            self._rules.close(network.rule_name(instance.key, rule))

    def host_keys(self, instance: Instance, handle: Mapping[str, str]) -> Sequence[str]:
        """Return the keys published by cloud-init or the guest agent. Images without either publish none."""
        return self._instances.host_keys(instance)

    def console(self, instance: Instance) -> str:
        return self._instances.console(instance, CONSOLE)

    def permissions(self, order: Order) -> Sequence[cloud.Permission]:
        """Check permissions with one call to Cloud Resource Manager, and another for a subnet in another project."""
        return self._permissions.found(order)

    def network_problems(self, order: Order, zones: Sequence[str]) -> Sequence[Problem]:
        """Check the network. Networks and subnets are the same in all zones."""
        return network.problems(self._calls, order)


def _as_far_as_it_goes(act: Callable[..., None], *what: str) -> None:
    """Delete an object, unless it is still in use.

    An object in use is deleted by a later sweep.
    """
    try:
        act(*what)
    except CloudError as error:
        if error.meaning is not Meaning.CONFLICT:
            raise
