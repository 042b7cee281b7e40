"""Instances and their boot disks: made, read, changed and deleted."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from google.cloud import compute_v1

from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Instance, Lifecycle, Market, Order, Remnant
from blueprints.gce import labels, orders, reading
from blueprints.gce.calls import Calls, Operation, found

TAKEN = frozenset({"alreadyExists", "RESOURCE_ALREADY_EXISTS"})


class Machines:
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
        """Ask for one. The same token is the same requestId, for which Google gives the first operation again."""
        body = orders.body(order, self._calls.project)
        request = compute_v1.InsertInstanceRequest(
            project=self._calls.project,
            zone=order.zone,
            request_id=orders.request_id(order.token),
            instance_resource=body,
        )
        return self._calls.write(self._client.insert_unary, request)

    def raw(self, zone: str, name: str) -> compute_v1.Instance | None:
        """By name or id; None where Google says of this very instance that it is not there."""
        request = compute_v1.GetInstanceRequest(project=self._calls.project, zone=zone, instance=name)
        try:
            it = self._calls.read(self._client.get, request)
        except CloudError as error:
            if error.meaning is Meaning.NOT_FOUND and "/instances/" in error.message:
                return None
            raise
        if name not in (it.name, str(it.id)):
            raise CloudError(Meaning.UNAVAILABLE, f"Google's answer to a question about {name} is not about it.")
        return it

    def ours(self, order: Order) -> Instance | None:
        """What stands under the order's name and bears its tags. Raises INVALID where another's has the name."""
        if not order.zone:
            return next((one for one in self.listed({}, order.key) if labels.bears(one.tags, order.tags)), None)
        it = self.raw(order.zone, order.key)
        if it is None:
            return None
        if not labels.bears(reading.tags(it), order.tags):
            text = f"There is an instance {order.key!r} in {order.zone} already that is not ours."
            raise CloudError(Meaning.INVALID, text, provider_code="alreadyExists")
        return reading.instance(it)

    def listed(self, tags: Mapping[str, str], name: str = "") -> Iterator[Instance]:
        """Of all zones, one call per page."""
        words = [labels.filter_by(tags), f'name="{name}"' if name else ""]
        request = compute_v1.AggregatedListInstancesRequest(
            project=self._calls.project, filter=" AND ".join(filter(None, words)) or None, max_results=500
        )
        for page in self._calls.pages(self._client.aggregated_list, request):
            for scope in page.items.values():
                every = (reading.instance(it) for it in scope.instances)
                yield from (one for one in every if labels.bears(one.tags, tags))

    def ended(self, it: Instance) -> Instance:
        """What Google still tells of one that it has deleted."""
        done = self._preempted(it) if it.market is Market.SPOT else None
        words = f"Google says that there is no instance {it.key} (notFound)."
        return replace(
            it, state=Lifecycle.TERMINATED, preempted=done is not None,
            reason=words if done is None else done.status_message,
        )  # fmt: skip

    def taken_back(self, it: Instance) -> Instance:
        """With `preempted` set where Google stopped a spot instance. Asked only of one that is not running."""
        if it.market is not Market.SPOT or it.state not in (Lifecycle.STOPPING, Lifecycle.STOPPED):
            return it
        done = self._preempted(it)
        return replace(it, preempted=True, reason=done.status_message or it.reason) if done is not None else it

    def _preempted(self, it: Instance) -> Operation | None:
        """The operation by which Google took it back; it is listed for two weeks, also where it has deleted it."""
        request = compute_v1.ListZoneOperationsRequest(
            project=self._calls.project,
            zone=it.zone,
            filter=f'operationType="compute.instances.preempted" AND targetId={it.id}',
        )
        pages = self._calls.pages(self._calls.of(compute_v1.ZoneOperationsClient).list, request)
        return next((operation for page in pages for operation in page.items), None)

    def delete(self, it: Instance) -> None:
        """By its id: a later instance of the same name is never meant. A new requestId each time, for an id that has
        been used gives the operation that there was, even if that one failed."""
        request = compute_v1.DeleteInstanceRequest(
            project=self._calls.project, zone=it.zone, instance=it.id or it.key, request_id=str(uuid.uuid4())
        )
        found(lambda: self._calls.write(self._client.delete_unary, request))

    def ask(self, it: Instance, act: str) -> None:
        """`stop`, `start` or `reset`."""
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
        """Of a stopped one."""
        body = {"machine_type": f"zones/{it.zone}/machineTypes/{machine}"}
        request = compute_v1.SetMachineTypeInstanceRequest(
            **self._where(it), instances_set_machine_type_request_resource=body
        )
        self._calls.done(self._calls.write(self._client.set_machine_type_unary, request))

    def set_tags(self, it: Instance, tags: Mapping[str, str]) -> None:
        """Labels, and the rest in the metadata. Where another changed them at the same time, once more."""
        try:
            self._set_tags(it, tags)
        except CloudError as error:
            if error.provider_code != "conditionNotMet":
                raise
            self._set_tags(it, tags)

    def _set_tags(self, it: Instance, tags: Mapping[str, str]) -> None:
        there = self.raw(it.zone, it.id or it.key)
        if there is None:
            raise CloudError(Meaning.NOT_FOUND, f"There is no instance {it.key!r}.", provider_code="notFound")
        wanted = {**reading.tags(there), **tags}
        if labels.labels(wanted) != dict(there.labels):
            body = {"labels": labels.labels(wanted), "label_fingerprint": there.label_fingerprint}
            request = compute_v1.SetLabelsInstanceRequest(**self._where(it), instances_set_labels_request_resource=body)
            self._calls.done(self._calls.write(self._client.set_labels_unary, request))
        if labels.rest(wanted) != labels.rest(reading.tags(there)):
            items = [{"key": item.key, "value": item.value} for item in there.metadata.items if item.key != labels.REST]
            items.append({"key": labels.REST, "value": labels.rest(wanted)})
            metadata = compute_v1.Metadata(items=items, fingerprint=there.metadata.fingerprint)
            change = compute_v1.SetMetadataInstanceRequest(**self._where(it), metadata_resource=metadata)
            self._calls.done(self._calls.write(self._client.set_metadata_unary, change))

    def grow(self, it: Instance, disk_gib: int) -> bool:
        """Whether the boot disk, which bears the instance's name, is as large already; else it is asked for."""
        disk = self.disk(it.zone, it.key)
        if disk is None:
            raise CloudError(Meaning.NOT_FOUND, f"There is no disk {it.key!r}.", provider_code="notFound")
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
        """The newest `most` bytes. A negative start counts from the end; Google keeps 1 MiB."""
        request = compute_v1.GetSerialPortOutputInstanceRequest(**self._where(it), port=1, start=-most)
        said = self._calls.read(self._client.get_serial_port_output, request).contents
        return said.encode()[-most:].decode(errors="replace")

    def host_keys(self, it: Instance) -> list[str]:
        """The guest attributes `hostkeys/`: type -> key."""
        request = compute_v1.GetGuestAttributesInstanceRequest(**self._where(it), query_path="hostkeys/")
        said = found(lambda: self._calls.read(self._client.get_guest_attributes, request))
        return [f"{one.key} {one.value}" for one in said.query_value.items] if said is not None else []

    def disk(self, zone: str, name: str) -> compute_v1.Disk | None:
        """None where it is not there."""
        request = compute_v1.GetDiskRequest(project=self._calls.project, zone=zone, disk=name)
        return found(lambda: self._calls.read(self._disks.get, request))

    def disks(self, zone: str, name: str) -> list[tuple[str, compute_v1.Disk]]:
        """The disks of a name with their zones, in one zone or, with "", in all."""
        if zone:
            disk = self.disk(zone, name)
            return [(zone, disk)] if disk is not None else []
        request = compute_v1.AggregatedListDisksRequest(project=self._calls.project, filter=f'name="{name}"')
        pages = self._calls.pages(self._disks.aggregated_list, request)
        every = (disk for page in pages for scope in page.items.values() for disk in scope.disks)
        return [(reading.last(disk.zone), disk) for disk in every]

    def lone_disks(self, tags: Mapping[str, str]) -> list[Remnant]:
        """Disks of all zones that bear these tags and that nothing uses."""
        request = compute_v1.AggregatedListDisksRequest(
            project=self._calls.project, filter=labels.filter_by(tags) or None, max_results=500
        )
        pages = self._calls.pages(self._disks.aggregated_list, request)
        every = (disk for page in pages for scope in page.items.values() for disk in scope.disks)
        return [reading.lone_disk(disk) for disk in every if not disk.users and labels.bears(dict(disk.labels), tags)]

    def delete_disk(self, zone: str, name: str) -> None:
        """Ask for its end; gone is success."""
        request = compute_v1.DeleteDiskRequest(project=self._calls.project, zone=zone, disk=name)
        found(lambda: self._calls.write(self._disks.delete_unary, request))
