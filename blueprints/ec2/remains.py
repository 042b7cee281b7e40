"""What may be left of an order when its instance is gone: listed, and deleted in the order that EC2 demands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from blueprints.cloud.client import ignore
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import OWNER, Instance, Lifecycle, Remnant, lost_tags
from blueprints.ec2.calls import Answer, Calls, filters, listed, tagged, tags_of
from blueprints.ec2.network import NAME
from blueprints.ec2.readings import described, instance_of, time_of

_LATER = (Meaning.CONFLICT, Meaning.NOT_FOUND)
_OPEN = ("state", ("open", "active"))
_EPOCH = "drydock-epoch"
_ID_FILTERS = {
    "sir-": "spot_instance_request_id",
    "vol-": "volume_id",
    "eni-": "network_interface_id",
    "sg-": "group_id",
}


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
    prefix: str = ""
    """Of its ids."""
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
        prefix="sir-",
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
        prefix="vol-",
        alone=("status", ("available", "error")),
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
        prefix="eni-",
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
        prefix="sg-",
        named_by="GroupName",
    ),
)
"""In the order of deletion: a group is in use while a network interface has it."""


def owned(tags: Mapping[str, str]) -> list[dict[str, Any]]:
    """The filter for what bears the tags of this owner; the others may have changed since."""
    return tagged({name: value for name, value in tags.items() if name in OWNER} or dict(tags))


def instances_of(calls: Calls, region: str, key: str, tags: Mapping[str, str] | None = None) -> list[Instance]:
    """Every instance whose client token bears the key, the ended ones too."""
    wanted = owned(tags) if tags else tagged({NAME: key})
    found = [instance_of(one, region) for one in described(calls, region, Filters=wanted)]
    return [one for one in found if one.key == key]


def sweep(
    calls: Calls, region: str, key: str, tags: Mapping[str, str], *, known: Sequence[str] = (),
    report: Callable[[str], object] = ignore,
) -> list[str]:  # fmt: skip
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
        named = [one for one in known if sort.prefix and one.startswith(sort.prefix) and one not in found]
        untagged = _known(calls, region, sort, named)
        for one in untagged:
            report(f"{sort.name} {one}: its tags were removed, it is known by its id.")
        for one in (*found, *untagged):
            _delete(calls, region, sort, one)
        if found or untagged:
            there = [*_found(calls, region, sort, key, tags), *_known(calls, region, sort, untagged)]
            left += [f"{sort.name} {one}" for one in there]
    return left


def remains(calls: Calls, region: str, tags: Mapping[str, str]) -> list[Remnant]:
    """What bears these tags in a region and is used by nothing. A volume made of a snapshot may bear the tags of the
    volume of which the snapshot was: its name proves nothing."""
    return [
        _remnant(sort, one, region)
        for sort in SORTS
        for one in listed(calls, sort.list, region, sort.field, Filters=[*tagged(dict(tags)), *_alone(sort)])
    ]


def _alone(sort: Sort) -> list[dict[str, Any]]:
    return filters(**dict([sort.alone])) if sort.alone else []


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
    """By the tags of their owner. Which of a resource's epochs they are of, the name of a group tells, which nobody
    can change; of the others their tags."""
    wanted = [*owned(tags), *(filters(**dict([_OPEN])) if sort.many else [])]
    there = listed(calls, sort.list, region, sort.field, Filters=wanted)
    return sorted(one[sort.id] for one in there if _is_of(sort, one, key, tags))


def _is_of(sort: Sort, found: Answer, key: str, tags: Mapping[str, str]) -> bool:
    if sort.named_by:
        return bool(found[sort.named_by] == key)
    there = tags_of(found, sort.tags)
    return there.get(NAME) == key or (_EPOCH in tags and there.get(_EPOCH) == tags[_EPOCH])


def _known(calls: Calls, region: str, sort: Sort, ids: Sequence[str]) -> list[str]:
    """Those of these ids that are there and bear nobody's tags. A filter finds what there is; an id that is gone would
    be an error for all of them."""
    if not ids:
        return []
    wanted = [*filters(**{_ID_FILTERS[sort.prefix]: list(ids)}), *(filters(**dict([_OPEN])) if sort.many else [])]
    there = listed(calls, sort.list, region, sort.field, Filters=wanted)
    return sorted(one[sort.id] for one in there if lost_tags(tags_of(one, sort.tags)))


def _delete(calls: Calls, region: str, sort: Sort, one: str) -> None:
    """In use still, or gone by now, is no error: the list that follows tells."""
    try:
        which: dict[str, Any] = {sort.argument: [one] if sort.many else one}
        calls.call(sort.delete, region, **which)
    except CloudError as error:
        if error.meaning not in _LATER:
            raise
