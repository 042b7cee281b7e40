"""What may be left of an order when its instance is gone: listed, and deleted in the order that EC2 demands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Instance, Lifecycle, Remnant
from blueprints.ec2.calls import Answer, Calls, filters, tagged, tags_of
from blueprints.ec2.network import NAME, own
from blueprints.ec2.readings import instance_of, instances_in, time_of

_LATER = (Meaning.CONFLICT, Meaning.NOT_FOUND)
_OPEN = ("state", ("open", "active"))


@dataclass(frozen=True, kw_only=True)
class Sort:
    """One sort of thing: how it is listed, and how one is deleted."""

    name: str
    list: str
    field: str
    id: str
    delete: str
    argument: str
    many: bool = False
    tags: str = "Tags"
    alone: tuple[str, str | Sequence[str]] | None = None
    """The filter for those that nothing uses."""
    since: str = ""
    named_by: str = ""
    """The field with the name that it was made under; empty: that stands in a tag alone."""
    copied: bool = False
    """Copies of it, with its tags, are made by others."""


SORTS = (
    Sort(
        name="spot request",
        list="describe_spot_instance_requests",
        field="SpotInstanceRequests",
        id="SpotInstanceRequestId",
        delete="cancel_spot_instance_requests",
        argument="SpotInstanceRequestIds",
        many=True,
        alone=_OPEN,
        since="CreateTime",
    ),
    Sort(
        name="volume",
        list="describe_volumes",
        field="Volumes",
        id="VolumeId",
        delete="delete_volume",
        argument="VolumeId",
        alone=("status", "available"),
        since="CreateTime",
        copied=True,
    ),
    Sort(
        name="network interface",
        list="describe_network_interfaces",
        field="NetworkInterfaces",
        id="NetworkInterfaceId",
        delete="delete_network_interface",
        argument="NetworkInterfaceId",
        tags="TagSet",
        alone=("status", "available"),
    ),
    Sort(
        name="security group",
        list="describe_security_groups",
        field="SecurityGroups",
        id="GroupId",
        delete="delete_security_group",
        argument="GroupId",
        named_by="GroupName",
    ),
)
"""In the order of deletion: a group is in use while a network interface has it."""


def instances_of(calls: Calls, region: str, key: str, tags: Mapping[str, str] | None = None) -> list[Instance]:
    """Every instance whose client token bears the key, the ended ones too."""
    answer = calls.call("describe_instances", region, Filters=own(key, tags or {}))
    found = [instance_of(one, region) for one in instances_in(answer)]
    return [one for one in found if one.key == key]


def sweep(calls: Calls, region: str, key: str, tags: Mapping[str, str]) -> list[str]:
    """Delete what can be deleted now; the names of what is still there, read after the deletion.

    An instance that is still there is one of an attempt whose answer was lost and that was given up too early: every
    attempt has a token of its own, so a key may have two.
    """
    left = []
    for stray in instances_of(calls, region, key, tags):
        if stray.state not in (Lifecycle.TERMINATED, Lifecycle.TERMINATING):
            calls.call("terminate_instances", region, InstanceIds=[stray.id])
        if stray.state is not Lifecycle.TERMINATED:
            left.append(f"instance {stray.id}")
    for sort in SORTS:
        found = _found(calls, region, sort, key, tags)
        for one in found:
            _delete(calls, region, sort, one)
        if found:
            left += [f"{sort.name} {one}" for one in _found(calls, region, sort, key, tags)]
    return left


def remains(calls: Calls, region: str, tags: Mapping[str, str]) -> list[Remnant]:
    """What bears these tags in a region and is used by nothing. A volume made of a snapshot may bear the tags of the
    volume of which the snapshot was: its name proves nothing."""
    return [
        _remnant(sort, one, region)
        for sort in SORTS
        for page in calls.pages(
            sort.list, region, Filters=[*tagged(dict(tags)), *filters(**dict([sort.alone] if sort.alone else []))]
        )
        for one in page[sort.field]
    ]


def _remnant(sort: Sort, found: Answer, region: str) -> Remnant:
    tags = tags_of(found, sort.tags)
    return Remnant(
        what=sort.name,
        id=found[sort.id],
        key=found[sort.named_by] if sort.named_by else tags.get(NAME, ""),
        location=region,
        zone=found.get("AvailabilityZone") or "",
        tags=tags,
        created_at=time_of(found.get(sort.since)) if sort.since else None,
        named=not sort.copied,
    )


def _found(calls: Calls, region: str, sort: Sort, key: str, tags: Mapping[str, str]) -> list[str]:
    wanted = own(key, tags)
    if sort.many:
        wanted += filters(**dict([_OPEN]))
    answer: Answer = calls.call(sort.list, region, Filters=wanted)
    return sorted(one[sort.id] for one in answer[sort.field])


def _delete(calls: Calls, region: str, sort: Sort, one: str) -> None:
    """In use still, or gone by now, is no error: the list that follows tells."""
    try:
        which: dict[str, Any] = {sort.argument: [one] if sort.many else one}
        calls.call(sort.delete, region, **which)
    except CloudError as error:
        if error.meaning not in _LATER:
            raise
