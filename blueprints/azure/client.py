"""The provider contract's client for one Azure subscription, and one resource group in it.

The objects under a key are the machine KEY, its network card KEY-nic, address KEY-ip, firewall KEY-nsg and disk
KEY-disk. A PUT creates or changes an object, so a repeated PUT creates nothing twice. The machine's PUT is also
conditional (If-None-Match), so that it never changes an existing machine. No call waits for an operation to finish.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from blueprints.azure import api, instances, network, permissions
from blueprints.azure.account import Account
from blueprints.azure.api import Connection, Parts
from blueprints.azure.config import Credential
from blueprints.azure.errors import translated
from blueprints.azure.instances import Instances, console_end, host_keys, view
from blueprints.azure.network import Network
from blueprints.cloud import client as cloud
from blueprints.cloud.faults import CloudError, Meaning
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

GROUP_VERSION = "2022-12-01"


class Azure(
    cloud.Client,
    cloud.IdempotentCreate,
    cloud.UserData,
    cloud.Spot,
    cloud.ConfidentialGuests,
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
    """One resource group of a subscription.

    `api` is global: the resource group's machines, the statuses of the subscription's machines and the Resource SKUs
    are each listed for all locations at once. For a single location, the results are filtered here; only the listing of
    sizes is itself limited to the location.
    """

    provider: ClassVar[str] = "azure"
    api: ClassVar[cloud.Api] = cloud.Api.GLOBAL
    key_source: ClassVar[str] = "run_command"
    types_every: ClassVar[float] = 300.0
    """A long interval, because the listing of Resource SKUs has many megabytes and does not depend on free capacity."""
    status_every: ClassVar[float] = 10.0
    """A short interval, because each poll makes only four calls, and Azure allows 25 reads per second."""

    def __init__(self, credential: Credential, *, deadline: float = 20.0) -> None:
        self._connection = Connection(credential, deadline)
        self._parts = Parts(self._connection)
        self._network = Network(self._connection, self._parts)
        self._account = Account(self._connection, credential.prices)
        self._instances = Instances(self._connection, self._parts, self._account)

    def close(self) -> None:
        """Close the connections that are kept open between calls."""
        self._connection.close()

    def identity(self) -> str:
        """Return the subscription and resource group. The call proves that both exist and can be read."""
        path = f"/subscriptions/{self._connection.subscription}/resourcegroups/{self._connection.group}"
        answer, _ = self._connection.ask("GET", path, version=GROUP_VERSION, doing="read the resource group")
        return f"{self._connection.subscription}/{answer.get('name') or self._connection.group}"

    def account(self) -> str:
        """Return the subscription and resource group as configured.

        Makes no call: a machine must count as gone even if its resource group has been deleted and cannot be read.
        """
        return f"{self._connection.subscription}/{self._connection.group}"

    def locations(self) -> Sequence[Location]:
        return self._account.locations()

    def types(self, location: str) -> Sequence[InstanceType]:
        return [size.type for size in self._account.sizes(location)]

    def quotas(self, location: str) -> Sequence[Quota]:
        """Return the quotas, with one call for each location."""
        wanted = [location] if location else [one.name for one in self.locations()]
        return [quota for one in wanted for quota in self._account.quotas(one)]

    def image(self, location: str, wanted: Mapping[str, str], arch: str) -> Image:
        return self._account.image(location, wanted, arch)

    def images(self, location: str, name: str) -> Sequence[Image]:
        """Return images by name.

        `PUBLISHER:OFFER:SKU` searches the marketplace, which needs a location; any other pattern searches the resource
        group's own images.
        """
        return self._account.images(location, name)

    def instances(self, location: str, tags: Mapping[str, str]) -> Sequence[Instance]:
        """Return the machines, from two listings.

        The listing with statuses (statusOnly) lacks all other fields, and the other listing lacks the power state.
        Network cards and addresses without a machine are not included.
        """
        group, compute, network = self._connection.group, self._connection.compute, self._connection.network
        with translated("list the machines"):
            listed = _listed(compute.virtual_machines.list(group))
            wanted = [
                one
                for one in listed
                if api.bears(one, tags) and location in ("", str(one.get("location") or "").lower())
            ]
            if not wanted:
                return []
            statuses = _by_id(_listed(compute.virtual_machines.list_all(status_only="true")))
            cards = _by_id(_listed(network.network_interfaces.list(group)))
            addresses = _by_id(_listed(network.public_ip_addresses.list(group)))
        return [instances.instance(one, view(statuses.get(str(one["id"]).lower())), cards, addresses) for one in wanted]

    def prepare(self, order: Order) -> Mapping[str, str] | Underway:
        """Create the firewall, address and network card.

        Without order.network (a subnet's resource id) the network card is in the subnet `hosts` of `drydock-LOCATION`,
        which is created once per location, shared, and never deleted by a sweep.
        """
        api.check_order(order)
        size, _ = self._instances.suiting(order)
        return self._network.prepare(order, accelerated=size.accelerated_network)

    def create(self, order: Order, prepared: Mapping[str, str]) -> Instance | Underway:
        """Create the machine with a PUT.

        If this attempt has already created the machine, continue with it. Raises CONFLICT for a machine of another
        attempt (terminate and sweep it first), and INVALID for a machine with other tags, which is not ours.
        """
        return self._instances.create(order, prepared["nic"])

    def created(self, order: Order, handle: Mapping[str, str]) -> Instance | Underway:
        """Poll the operation. Raises CloudError with its code if it failed; the machine may exist all the same."""
        return self._instances.created(order, handle.get("operation", ""))

    def find(self, order: Order) -> Instance | None:
        """Return the machine under the key if this attempt (the order's token) created it."""
        there = self._instances.machine(order.key)
        if there is None or not api.has_owner(there, order.tags):
            return None
        return self._instances.instance(there) if api.bears(there, {api.ATTEMPT: order.token}) else None

    def instance(self, location: str, zone: str, key: str, instance_id: str) -> Instance | None:
        there = self._instances.machine(key)
        if there is None:
            return None
        if str(there.get("name")) != key or not (there.get("properties") or {}).get("vmId"):
            raise CloudError(Meaning.UNAVAILABLE, f"Azure's answer to a request for {key} is about another machine.")
        if instance_id and there["properties"]["vmId"] != instance_id:
            return None
        return self._instances.instance(there)

    stops_spot = "Azure deallocates a spot machine when it reclaims it."

    def ended(self, instance: Instance) -> Instance:
        said = f"Azure reports that machine {instance.key} does not exist (ResourceNotFound)."
        return replace(instance, state=Lifecycle.TERMINATED, reason=said)

    def terminate(self, instance: Instance) -> None:
        self._parts.delete("machine", instance.key)

    def sweep(
        self, location: str, zone: str, key: str, tags: Mapping[str, str], *, known: Sequence[str] = (),
        report: Callable[[str], object] = cloud.ignore,
    ) -> Sequence[str]:  # fmt: skip
        """Delete everything under a key, including the machine, but not the network that a location shares.

        An object without any owner's tags also counts as ours if it has the id of an object that was created for the
        machine (`known`).
        """
        ids, ours, foreign = {one.lower() for one in known}, {}, False
        for part in api.SUFFIXES:
            there = self._parts.get(part, key)
            if there is None:
                continue
            untagged = api.lost_tags(there) and str(there["id"]).lower() in ids
            if untagged:
                report(f"{there['name']} is deleted by its id, because somebody removed its tags.")
            # Azure makes the disk itself and gives it no tags until we do.
            made = part == "disk" and api.lost_tags(there) and not foreign
            if untagged or made or api.has_owner(there, tags):
                ours[part] = there
            elif part == "machine":
                foreign = True
        return self._parts.sweep(key, ours)

    def remains(self, location: str, tags: Mapping[str, str]) -> Sequence[Remnant]:
        """Return network cards, addresses, firewalls and disks, from four listings.

        A disk that was never tagged is not included; `sweep` finds it by its name.
        """
        return [one for one in self._parts.remains(tags) if location in ("", one.location)]

    def stop(self, instance: Instance) -> None:
        """Deallocate the machine: a machine that is only switched off is still billed."""
        with translated(f"stop {instance.key}", write=True):
            self._connection.compute.virtual_machines.begin_deallocate(
                self._connection.group, instance.key, polling=False
            )

    def start(self, instance: Instance) -> None:
        with translated(f"start {instance.key}", write=True):
            self._connection.compute.virtual_machines.begin_start(self._connection.group, instance.key, polling=False)

    def reboot(self, instance: Instance) -> None:
        with translated(f"restart {instance.key}", write=True):
            self._connection.compute.virtual_machines.begin_restart(self._connection.group, instance.key, polling=False)

    def resize_volume(self, instance: Instance, disk_gib: int) -> None:
        """Grow the disk.

        Raises CONFLICT for disks that grow only while the machine is stopped, and INVALID for a smaller size.
        """
        disk = self._parts.get("disk", instance.key)
        if disk is None:
            raise CloudError(Meaning.NOT_FOUND, f"{instance.key} has no disk that Drydock may resize.")
        size = int(disk["properties"].get("diskSizeGB") or 0)
        if disk_gib < size:
            raise CloudError(Meaning.INVALID, f"The disk has {size} GiB and cannot shrink to {disk_gib}.")
        if disk_gib > size:
            grown = {"properties": {"diskSizeGB": disk_gib}}
            self._parts.patch("disk", instance.key, grown, f"grow the disk of {instance.key}")

    def change_type(self, instance: Instance, type_name: str) -> None:
        if type_name != instance.type:
            body = {"properties": {"hardwareProfile": {"vmSize": type_name}}}
            self._parts.patch("machine", instance.key, body, f"change {instance.key} to type {type_name}")

    def set_tags(self, instance: Instance, tags: Mapping[str, str]) -> None:
        """Set tags on the machine and on the objects under its key."""
        api.check_tags(tags)
        for part in api.SUFFIXES:
            there = self._parts.get(part, instance.key)
            if there is not None:
                self._parts.merge_tags(there["id"], tags)
            elif part == "machine":
                raise CloudError(Meaning.NOT_FOUND, f"Machine {instance.key} does not exist.")

    def open_ports(self, instance: Instance, rules: Sequence[Rule]) -> None:
        self._network.open(instance.key, rules)

    def close_ports(self, instance: Instance, rules: Sequence[Rule]) -> None:
        self._network.close(instance.key, rules)

    def host_keys(self, instance: Instance, handle: Mapping[str, str]) -> Sequence[str] | Underway:
        """Read the host keys through the agent in the guest, which carries out one command at a time."""
        return host_keys(self._connection, instance.key, handle.get("command", ""))

    def console(self, instance: Instance) -> str:
        with translated(f"read the console of {instance.key}"):
            data = self._connection.compute.virtual_machines.retrieve_boot_diagnostics_data(
                self._connection.group, instance.key, sas_uri_expiration_time_in_minutes=5
            ).as_dict()
        url = data.get("serialConsoleLogBlobUri") or ""
        if not url:
            return ""
        return console_end(url, deadline=self._connection.deadline, ca_bundle=self._connection.ca_bundle)

    def permissions(self, order: Order) -> Sequence[cloud.Permission]:
        """Check permissions with one call each for the resource group, the subscription, and the named subnet."""
        return permissions.permissions(self._connection, order)

    def network_problems(self, order: Order, zones: Sequence[str]) -> Sequence[Problem]:
        """Check the subnet. Subnets are the same in all zones."""
        return network.problems(self._connection, order)


def _listed(pages: Any) -> list[Mapping[str, Any]]:
    return [one.as_dict() for one in pages]


def _by_id(found: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {str(one["id"]).lower(): one for one in found}
