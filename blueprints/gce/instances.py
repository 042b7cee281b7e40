"""Instances and their boot disks: create, read, change and delete them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from google.cloud import compute_v1

from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Confidential, Instance, Lifecycle, Market, Order, Remnant
from blueprints.gce import api, network
from blueprints.gce.api import NAME, Calls, Operation, found
from blueprints.gce.market import boots_from_hyperdisk, is_metal, migrates, series_of, split

STATES = {
    "PROVISIONING": Lifecycle.PENDING,
    "STAGING": Lifecycle.PENDING,
    "PENDING": Lifecycle.PENDING,
    "REPAIRING": Lifecycle.PENDING,
    "RUNNING": Lifecycle.RUNNING,
    "PENDING_STOP": Lifecycle.STOPPING,
    "STOPPING": Lifecycle.STOPPING,
    "STOPPED": Lifecycle.STOPPED,
    "TERMINATED": Lifecycle.STOPPED,
    "SUSPENDING": Lifecycle.SUSPENDING,
    "SUSPENDED": Lifecycle.SUSPENDED,
    "DEPROVISIONING": Lifecycle.TERMINATING,
}
"""Google's instance states. A stopped instance is TERMINATED, and a deleted one no longer exists. STOPPING means that
an instance is being stopped or deleted. Source: docs.cloud.google.com/compute/docs/instances/instance-lifecycle."""
LEAVING = "Compute Engine is stopping the machine, as it does up to 30 seconds before it reclaims a spot machine."


def instance(it: Any) -> Instance:
    """Convert a `compute_v1.Instance` to the contract's form."""
    zone = api.last(it.zone)
    card = next(iter(it.network_interfaces), None)
    outside = next(iter(card.access_configs), None) if card else None
    return Instance(
        id=str(it.id),
        key=it.name,
        state=STATES.get(it.status, Lifecycle.PENDING),
        location=api.region_of(zone),
        zone=zone,
        type=type_name(it),
        market=Market.SPOT if it.scheduling.provisioning_model == "SPOT" else Market.ON_DEMAND,
        public_address=outside.nat_i_p if outside else "",
        private_address=card.network_i_p if card else "",
        tags=tags_of(it),
        created_at=api.when(it.creation_timestamp),
        reason=it.status_message,
        leaving=LEAVING if it.scheduling.provisioning_model == "SPOT" and it.status == "STOPPING" else "",
    )


def lone_disk(it: Any) -> Remnant:
    """Convert a `compute_v1.Disk`, which has its instance's name, to the contract's form.

    Only the tags that are labels are included.
    """
    zone = api.last(it.zone)
    return Remnant(
        what="volume", id=it.name, key=it.name, location=api.region_of(zone), zone=zone, tags=dict(it.labels),
        created_at=api.when(it.creation_timestamp),
    )  # fmt: skip


def type_name(it: Any) -> str:
    """Return the machine type of an instance, in the form that `Gce.types` uses.

    For an N1 or a custom type, it includes the attached accelerators.
    """
    machine = api.last(it.machine_type)
    cards = next(iter(it.guest_accelerators), None) if machine.startswith(("n1-", "custom-")) else None
    return f"{machine}+{api.last(cards.accelerator_type)}:{cards.accelerator_count}" if cards else machine


def tags_of(it: Any) -> dict[str, str]:
    """Return the tags of an instance: its labels, and the tags in its metadata."""
    rest = next((item.value for item in it.metadata.items if item.key == api.TAGS_ITEM), "")
    return api.joined_tags(dict(it.labels), rest)


SHORTEST, LONGEST = 30, 120 * 86_400
"""Minimum and maximum of maxRunDuration, in seconds. Source: cloud.google.com/compute/docs/instances/limit-vm-runtime,
"Restrictions"."""


def instance_body(order: Order, project: str) -> dict[str, Any]:
    """Return the request body of an instance. Raises CloudError INVALID for an invalid order."""
    if not NAME.fullmatch(order.key):
        raise api.refused(
            f"{order.key!r} is not a valid instance name: use 1 to 63 of a-z, 0-9 and -, beginning with a letter."
        )
    if not (order.zone and order.type and order.image):
        raise api.refused("An instance needs a zone, a type and an image.")
    machine, accelerator, count = split_type(order.type)
    zonal = f"projects/{project}/zones/{order.zone}"
    made: dict[str, Any] = {
        "name": order.key,
        "machine_type": f"{zonal}/machineTypes/{machine}",
        "labels": api.labels_of(order.tags),
        "tags": {"items": [order.key]},
        "metadata": {"items": _metadata(order)},
        "disks": [_disk(order, machine, zonal)],
        "network_interfaces": [_card(order, machine, project)],
        "scheduling": _scheduling(order, machine, gpus=bool(accelerator)),
    }
    if not is_metal(machine):
        shield = {"enable_secure_boot": False, "enable_vtpm": True, "enable_integrity_monitoring": True}
        made["shielded_instance_config"] = shield
    if accelerator:
        link = f"{zonal}/acceleratorTypes/{accelerator}"
        made["guest_accelerators"] = [{"accelerator_type": link, "accelerator_count": count}]
    if order.confidential:
        made["confidential_instance_config"] = _confidential(order.confidential)
    return made


def split_type(type_name: str) -> tuple[str, str, int]:
    """Return machine type, accelerator and count, like `market.split`. Raises CloudError INVALID."""
    try:
        return split(type_name)
    except ValueError as error:
        raise api.refused(str(error)) from None


def _metadata(order: Order) -> list[dict[str, str]]:
    items = {
        "enable-guest-attributes": "TRUE",
        "block-project-ssh-keys": "TRUE",
        "user-data": order.user_data,
        "ssh-keys": f"{order.user}:{order.public_key}" if order.user and order.public_key else "",
        api.TAGS_ITEM: api.other_tags(order.tags),
    }
    return [{"key": key, "value": value} for key, value in items.items() if value]


def _disk(order: Order, machine: str, zonal: str) -> dict[str, Any]:
    """Return the boot disk's part of the body.

    Raises CloudError NOT_OFFERED if the machine type does not support the blueprint's disk type.
    """
    hyperdisk = boots_from_hyperdisk(machine)
    if hyperdisk and order.disk_type.startswith("pd-"):
        text = f"{machine} boots only from Hyperdisk, but the blueprint's disk_type is {order.disk_type}."
        raise CloudError(Meaning.NOT_OFFERED, text, provider_code="diskType")
    default = "hyperdisk-balanced" if hyperdisk else "pd-balanced"
    made: dict[str, Any] = {
        "source_image": order.image,
        "disk_name": order.key,
        "disk_type": f"{zonal}/diskTypes/{order.disk_type or default}",
        "labels": api.labels_of(order.tags),
    }
    if order.disk_gib:
        made["disk_size_gb"] = order.disk_gib
    return {"boot": True, "auto_delete": True, "initialize_params": made}


def _card(order: Order, machine: str, project: str) -> dict[str, Any]:
    where = "subnetwork" if network.is_subnet(order.network) else "network"
    card: dict[str, Any] = {where: network.network_link(order.network, project)}
    if order.confidential in (Confidential.SEV_SNP, Confidential.TDX):
        card["nic_type"] = "GVNIC"
    elif is_metal(machine):
        card["nic_type"] = "IDPF"
    if order.public_address:
        card["access_configs"] = [{"name": "external", "type_": "ONE_TO_ONE_NAT"}]
    return card


def _scheduling(order: Order, machine: str, *, gpus: bool) -> dict[str, Any]:
    """Return the scheduling part of the body.

    For a Z3 machine that can migrate, the behaviour on host maintenance is left to Google.
    """
    spot = order.market is Market.SPOT
    stays = migrates(machine) and not (spot or gpus or order.confidential)
    left = stays and series_of(machine) == "z3"
    made: dict[str, Any] = {
        **({} if left else {"on_host_maintenance": "MIGRATE" if stays else "TERMINATE"}),
        "automatic_restart": not spot,
        "provisioning_model": "SPOT" if spot else "STANDARD",
    }
    if order.ends_after is not None:
        made["max_run_duration"] = {"seconds": _duration(order.ends_after)}
    if spot or order.ends_after is not None:
        made["instance_termination_action"] = "DELETE"
    return made


def _duration(seconds: float) -> int:
    if not SHORTEST <= seconds <= LONGEST:
        text = f"Compute Engine can end an instance after 30 seconds to 120 days, but not after {seconds:.0f} seconds."
        raise api.refused(text + " See cloud.google.com/compute/docs/instances/limit-vm-runtime.")
    return int(seconds)


def _confidential(technology: Confidential) -> dict[str, Any]:
    return {"enable_confidential_compute": True, "confidential_instance_type": technology.value.upper()}


TAKEN = frozenset({"alreadyExists", "RESOURCE_ALREADY_EXISTS"})


class Instances:
    """The instances of one project."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    @property
    def _client(self) -> compute_v1.InstancesClient:
        return self._calls.of(compute_v1.InstancesClient)

    @property
    def _disks(self) -> compute_v1.DisksClient:
        return self._calls.of(compute_v1.DisksClient)

    def insert(self, order: Order) -> Operation:
        """Request an instance.

        The same token gives the same requestId, for which Google returns the first operation again.
        """
        body = instance_body(order, self._calls.project)
        request = compute_v1.InsertInstanceRequest(
            project=self._calls.project,
            zone=order.zone,
            request_id=api.request_id(order.token),
            instance_resource=body,
        )
        return self._calls.write(self._client.insert_unary, request)

    def raw(self, zone: str, name: str) -> compute_v1.Instance | None:
        """Return an instance by name or id, or None if it does not exist."""
        request = compute_v1.GetInstanceRequest(project=self._calls.project, zone=zone, instance=name)
        try:
            it = self._calls.read(self._client.get, request)
        except CloudError as error:
            if error.meaning is Meaning.NOT_FOUND and "/instances/" in error.message:
                return None
            raise
        if name not in (it.name, str(it.id)):
            raise CloudError(Meaning.UNAVAILABLE, f"Google's answer to a request for {name} is about another instance.")
        return it

    def ours(self, order: Order) -> Instance | None:
        """Return the instance with the order's name and tags.

        Raises INVALID if an instance with other tags has the name.
        """
        if not order.zone:
            return next((one for one in self.listed({}, order.key) if api.bears(one.tags, order.tags)), None)
        it = self.raw(order.zone, order.key)
        if it is None:
            return None
        if not api.bears(tags_of(it), order.tags):
            text = (
                f"{order.zone} already has an instance {order.key!r} that does not belong to this Drydock installation."
            )
            raise CloudError(Meaning.INVALID, text, provider_code="alreadyExists")
        return instance(it)

    def listed(self, tags: Mapping[str, str], name: str = "") -> Iterator[Instance]:
        """Return the instances of all zones, with one call per page."""
        words = [api.filter_by(tags), f'name="{name}"' if name else ""]
        request = compute_v1.AggregatedListInstancesRequest(
            project=self._calls.project, filter=" AND ".join(filter(None, words)) or None, max_results=500
        )
        for page in self._calls.pages(self._client.aggregated_list, request):
            for scope in page.items.values():
                every = (instance(it) for it in scope.instances)
                yield from (one for one in every if api.bears(one.tags, tags))

    def ended(self, it: Instance) -> Instance:
        """Return the information that Google still has about a deleted instance."""
        done = self._preempted(it) if it.market is Market.SPOT else None
        words = f"Google reports that instance {it.key} does not exist (notFound)."
        return replace(
            it, state=Lifecycle.TERMINATED, preempted=done is not None,
            reason=words if done is None else done.status_message,
        )  # fmt: skip

    def taken_back(self, it: Instance) -> Instance:
        """Return the instance, with `preempted` set if Google stopped it as a spot instance.

        Makes a call only if the instance is not running.
        """
        if it.market is not Market.SPOT or it.state not in (Lifecycle.STOPPING, Lifecycle.STOPPED):
            return it
        done = self._preempted(it)
        return replace(it, preempted=True, reason=done.status_message or it.reason) if done is not None else it

    def _preempted(self, it: Instance) -> Operation | None:
        """Return the operation by which Google reclaimed the machine.

        It is listed for two weeks, even if the machine was deleted.
        """
        request = compute_v1.ListZoneOperationsRequest(
            project=self._calls.project,
            zone=it.zone,
            filter=f'operationType="compute.instances.preempted" AND targetId={it.id}',
        )
        pages = self._calls.pages(self._calls.of(compute_v1.ZoneOperationsClient).list, request)
        return next((operation for page in pages for operation in page.items), None)

    def delete(self, it: Instance) -> None:
        """Delete an instance by its id, so that a later instance with the same name is not affected.

        Uses a new requestId each time: for a used id, Google returns the earlier operation, even if that failed.
        """
        request = compute_v1.DeleteInstanceRequest(
            project=self._calls.project, zone=it.zone, instance=it.id or it.key, request_id=str(uuid.uuid4())
        )
        found(lambda: self._calls.write(self._client.delete_unary, request))

    def ask(self, it: Instance, act: str) -> None:
        """Request a `stop`, `start` or `reset`."""
        asks: dict[str, tuple[Callable[..., Operation], Callable[..., Any]]] = {
            "stop": (self._client.stop_unary, compute_v1.StopInstanceRequest),
            "start": (self._client.start_unary, compute_v1.StartInstanceRequest),
            "reset": (self._client.reset_unary, compute_v1.ResetInstanceRequest),
        }
        method, request = asks[act]
        self._calls.done(self._calls.write(method, request(**self._where(it))))

    def _where(self, it: Instance) -> dict[str, str]:
        return {"project": self._calls.project, "zone": it.zone, "instance": it.id or it.key}

    def change_type(self, it: Instance, machine: str) -> None:
        """Change the type of a stopped instance."""
        body = {"machine_type": f"zones/{it.zone}/machineTypes/{machine}"}
        request = compute_v1.SetMachineTypeInstanceRequest(
            **self._where(it), instances_set_machine_type_request_resource=body
        )
        self._calls.done(self._calls.write(self._client.set_machine_type_unary, request))

    def set_tags(self, it: Instance, tags: Mapping[str, str]) -> None:
        """Set labels, and the other tags in the metadata. Retries once if they were changed at the same time."""
        try:
            self._set_tags(it, tags)
        except CloudError as error:
            if error.provider_code != "conditionNotMet":
                raise
            self._set_tags(it, tags)

    def _set_tags(self, it: Instance, tags: Mapping[str, str]) -> None:
        there = self.raw(it.zone, it.id or it.key)
        if there is None:
            raise CloudError(Meaning.NOT_FOUND, f"Instance {it.key!r} does not exist.", provider_code="notFound")
        wanted = {**tags_of(there), **tags}
        if api.labels_of(wanted) != dict(there.labels):
            body = {"labels": api.labels_of(wanted), "label_fingerprint": there.label_fingerprint}
            request = compute_v1.SetLabelsInstanceRequest(**self._where(it), instances_set_labels_request_resource=body)
            self._calls.done(self._calls.write(self._client.set_labels_unary, request))
        if api.other_tags(wanted) != api.other_tags(tags_of(there)):
            items = [
                {"key": item.key, "value": item.value} for item in there.metadata.items if item.key != api.TAGS_ITEM
            ]
            items.append({"key": api.TAGS_ITEM, "value": api.other_tags(wanted)})
            metadata = compute_v1.Metadata(items=items, fingerprint=there.metadata.fingerprint)
            change = compute_v1.SetMetadataInstanceRequest(**self._where(it), metadata_resource=metadata)
            self._calls.done(self._calls.write(self._client.set_metadata_unary, change))

    def grow(self, it: Instance, disk_gib: int) -> bool:
        """Return whether the boot disk, which has the instance's name, is large enough.

        If not, request a larger one.
        """
        disk = self.disk(it.zone, it.key)
        if disk is None:
            raise CloudError(Meaning.NOT_FOUND, f"Disk {it.key!r} does not exist.", provider_code="notFound")
        if disk.size_gb >= disk_gib:
            return True
        request = compute_v1.ResizeDiskRequest(
            project=self._calls.project,
            zone=it.zone,
            disk=it.key,
            disks_resize_request_resource={"size_gb": disk_gib},
        )
        try:
            return self._calls.done(self._calls.write(self._disks.resize_unary, request))
        except CloudError:
            # An earlier call's operation may have ended in between.
            grown = self.disk(it.zone, it.key)
            if grown is None or grown.size_gb < disk_gib:
                raise
            return True

    def console(self, it: Instance, most: int) -> str:
        """Return the newest `most` bytes of the console.

        The request has a negative start, which counts from the end; Google keeps 1 MiB.
        """
        request = compute_v1.GetSerialPortOutputInstanceRequest(**self._where(it), port=1, start=-most)
        said = self._calls.read(self._client.get_serial_port_output, request).contents
        return said.encode()[-most:].decode(errors="replace")

    def host_keys(self, it: Instance) -> list[str]:
        """Return the guest attributes `hostkeys/` as a mapping from type to key."""
        request = compute_v1.GetGuestAttributesInstanceRequest(**self._where(it), query_path="hostkeys/")
        said = found(lambda: self._calls.read(self._client.get_guest_attributes, request))
        return [f"{one.key} {one.value}" for one in said.query_value.items] if said is not None else []

    def disk(self, zone: str, name: str) -> compute_v1.Disk | None:
        """Return a disk, or None if it does not exist."""
        request = compute_v1.GetDiskRequest(project=self._calls.project, zone=zone, disk=name)
        return found(lambda: self._calls.read(self._disks.get, request))

    def disks(self, zone: str, name: str) -> list[tuple[str, compute_v1.Disk]]:
        """Return the disks with a name and their zones, in one zone or, for "", in all."""
        if zone:
            disk = self.disk(zone, name)
            return [(zone, disk)] if disk is not None else []
        request = compute_v1.AggregatedListDisksRequest(project=self._calls.project, filter=f'name="{name}"')
        pages = self._calls.pages(self._disks.aggregated_list, request)
        every = (disk for page in pages for scope in page.items.values() for disk in scope.disks)
        return [(api.last(disk.zone), disk) for disk in every]

    def lone_disks(self, tags: Mapping[str, str]) -> list[Remnant]:
        """Return the unused disks of all zones with these tags."""
        request = compute_v1.AggregatedListDisksRequest(
            project=self._calls.project, filter=api.filter_by(tags) or None, max_results=500
        )
        pages = self._calls.pages(self._disks.aggregated_list, request)
        every = (disk for page in pages for scope in page.items.values() for disk in scope.disks)
        return [lone_disk(disk) for disk in every if not disk.users and api.bears(dict(disk.labels), tags)]

    def delete_disk(self, zone: str, name: str) -> None:
        """Request the deletion of a disk. A disk that does not exist counts as success."""
        request = compute_v1.DeleteDiskRequest(project=self._calls.project, zone=zone, disk=name)
        found(lambda: self._calls.write(self._disks.delete_unary, request))
