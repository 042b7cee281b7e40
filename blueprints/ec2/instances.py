"""Instances at EC2: launch them, read them, and delete the resources that an instance leaves behind."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from blueprints.cloud.client import ignore
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import OWNER, Confidential, Image, Instance, Lifecycle, Market, Order, Remnant, lost_tags
from blueprints.ec2.api import Answer, Calls, client_token, filters, key_in, listed, tag_list, tagged, tags_of
from blueprints.ec2.network import NAME, object_tags

_STATES = {
    "pending": Lifecycle.PENDING,
    "running": Lifecycle.RUNNING,
    "shutting-down": Lifecycle.TERMINATING,
    "terminated": Lifecycle.TERMINATED,
    "stopping": Lifecycle.STOPPING,
    "stopped": Lifecycle.STOPPED,
}
"""EC2's instance states. Source: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_InstanceState.html"""
_PREEMPTED = frozenset({"Server.SpotInstanceTermination", "Server.SpotInstanceShutdown"})
"""Reasons of interrupted spot instances: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_StateReason.html"""
_WITH_REASON = frozenset({Lifecycle.STOPPING, Lifecycle.STOPPED, Lifecycle.TERMINATING, Lifecycle.TERMINATED})


def instances_in(answer: Answer) -> Iterator[Answer]:
    """Yield the instances of one answer, over all its reservations."""
    for reservation in answer.get("Reservations") or ():
        yield from reservation["Instances"]


def describe(calls: Calls, region: str, **wanted: Any) -> list[Answer]:
    """Return the instances of DescribeInstances, over all its pages."""
    return [one for page in calls.pages("describe_instances", region, **wanted) for one in instances_in(page)]


def is_spot(found: Answer) -> bool:
    """Return whether a described instance is a running spot instance."""
    return found.get("InstanceLifecycle") == "spot" and found["State"]["Name"] == "running"


_MARKED = frozenset({"marked-for-termination", "marked-for-stop"})
"""Status codes that a spot request has for the last two minutes before its instance is reclaimed
(https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-request-status.html)."""


def leaving(calls: Calls, region: str, tags: Mapping[str, str]) -> dict[str, str]:
    """Return the reasons for imminent interruptions, by instance id.

    The dict is empty if the notices cannot be read. Nothing depends on them.
    """
    try:
        answer = calls.call("describe_spot_instance_requests", region, Filters=tagged(dict(tags)))
    except CloudError:
        return {}
    marked = [one for one in answer["SpotInstanceRequests"] if (one.get("Status") or {}).get("Code") in _MARKED]
    return {one["InstanceId"]: f"{one['Status']['Code']}: {one['Status'].get('Message', '')}" for one in marked}


def instance_of(found: Answer, location: str) -> Instance:
    """Convert an instance from DescribeInstances or RunInstances to the contract's form."""
    state = _STATES.get(found["State"]["Name"], Lifecycle.FAILED)
    return Instance(
        id=found["InstanceId"],
        key=key_in(found.get("ClientToken") or ""),
        state=state,
        location=location,
        zone=(found.get("Placement") or {}).get("AvailabilityZone") or "",
        type=found.get("InstanceType") or "",
        market=Market.SPOT if found.get("InstanceLifecycle") == "spot" else Market.ON_DEMAND,
        image=found.get("ImageId") or "",
        public_address=found.get("PublicIpAddress") or "",
        private_address=found.get("PrivateIpAddress") or "",
        tags=tags_of(found),
        created_at=_created(found),
        reason=_reason(found) if state in _WITH_REASON else "",
        preempted=_code(found) in _PREEMPTED,
        parts=_parts(found),
    )


def best_of(found: Iterable[Instance]) -> Instance | None:
    """Return the newest of several instances, preferring those that have not ended."""
    ended = (Lifecycle.TERMINATED, Lifecycle.TERMINATING)
    never = dt.datetime.min.replace(tzinfo=dt.UTC)
    return max(found, key=lambda one: (one.state not in ended, one.created_at or never), default=None)


def image_of(found: Answer) -> Image:
    """Convert an image from DescribeImages to the contract's form."""
    return Image(
        id=found["ImageId"],
        name=found.get("Name") or "",
        arch=found.get("Architecture") or "",
        created_at=time_of(found.get("CreationDate")),
        disk_gib=int((root_of(found).get("Ebs") or {}).get("VolumeSize") or 0),
    )


def root_of(found: Answer) -> Answer:
    """Return the mapping of the boot disk of an image or an instance, or an empty dict if it has none."""
    wanted = found.get("RootDeviceName")
    mappings: Iterable[Answer] = found.get("BlockDeviceMappings") or ()
    return next((one for one in mappings if one.get("DeviceName") == wanted), {})


def _parts(found: Answer) -> tuple[str, ...]:
    disks = ((one.get("Ebs") or {}).get("VolumeId") for one in found.get("BlockDeviceMappings") or ())
    cards = (one.get("NetworkInterfaceId") for one in found.get("NetworkInterfaces") or ())
    return tuple(filter(None, (*disks, *cards, found.get("SpotInstanceRequestId"))))


def _code(found: Answer) -> str:
    return (found.get("StateReason") or {}).get("Code") or ""


def _reason(found: Answer) -> str:
    message: str = (found.get("StateReason") or {}).get("Message") or found.get("StateTransitionReason") or ""
    code = _code(found)
    return message if code in message else f"{code}: {message}"


def _created(found: Answer) -> dt.datetime | None:
    # LaunchTime moves with every start; its first network card has been there since it was made.
    cards = found.get("NetworkInterfaces") or ()
    times = [found.get("LaunchTime"), *((card.get("Attachment") or {}).get("AttachTime") for card in cards)]
    return min((time for time in map(time_of, times) if time), default=None)


def time_of(given: Any) -> dt.datetime | None:
    """Return a time in EC2's answers, whether it is text or already parsed."""
    if isinstance(given, str) and given:
        given = dt.datetime.fromisoformat(given.replace("Z", "+00:00"))
    return given.astimezone(dt.UTC) if isinstance(given, dt.datetime) else None


DISK_TYPE = "gp3"
"""Volume type of boot disks. It is cheaper than gp2, and its speed does not depend on the size of the volume."""
TAGGED = ("instance", "volume", "network-interface")


def launch(order: Order, prepared: Mapping[str, str]) -> dict[str, Any]:
    """Return the parameters of the call that launches an instance.

    The same order and preparation always give the same parameters, as a repeated client token requires. Source:
    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RunInstances.html.
    """
    return {
        "ClientToken": client_token(order),
        "MinCount": 1,
        "MaxCount": 1,
        "ImageId": order.image,
        "InstanceType": order.type,
        "UserData": order.user_data,  # botocore encodes it in base64
        "BlockDeviceMappings": [_disk(order, prepared)],
        # No credentials of an instance's role for whoever can make it fetch a URL.
        "MetadataOptions": {"HttpTokens": "required", "HttpEndpoint": "enabled"},
        "TagSpecifications": _tags(order),
        **_place(order, prepared),
        **_market(order),
        **_credits(order),
        **_confidential(order),
        **_ending(order),
    }


def _disk(order: Order, prepared: Mapping[str, str]) -> Answer:
    return {
        "DeviceName": prepared["root_device"],
        "Ebs": {
            "VolumeSize": max(order.disk_gib or 0, int(prepared["disk_gib"])),
            "VolumeType": order.disk_type or DISK_TYPE,
            "Encrypted": True,
            "DeleteOnTermination": True,
        },
    }


def _tags(order: Order) -> list[Answer]:
    kinds = TAGGED + (("spot-instances-request",) if order.market is Market.SPOT else ())
    return [{"ResourceType": kind, "Tags": tag_list(object_tags(order))} for kind in kinds]


def _place(order: Order, prepared: Mapping[str, str]) -> Answer:
    """Return the placement of an instance.

    A network card sets both the subnet and the public address. Without a subnet, no card can be given: EC2 chooses a
    default subnet, whose instances have public addresses.
    """
    if not prepared.get("subnet"):
        return {"SecurityGroupIds": [prepared["group"]]}
    card = {
        "DeviceIndex": 0,
        "SubnetId": prepared["subnet"],
        "Groups": [prepared["group"]],
        "AssociatePublicIpAddress": order.public_address,
        "DeleteOnTermination": True,
    }
    return {"NetworkInterfaces": [card]}


def _market(order: Order) -> Answer:
    if order.market is not Market.SPOT:
        return {}
    spot = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
    if order.max_price is not None:
        spot["MaxPrice"] = f"{order.max_price:.6f}".rstrip("0")
    return {"InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": spot}}


BURSTS = ("t2.", "t3.", "t3a.", "t4g.")
"""Types with CPU credits. T2 is standard by default and the others are unlimited (EC2 guide, "Unlimited mode for
burstable performance instances"), so the mode is always set explicitly."""


def _credits(order: Order) -> Answer:
    if not order.type.startswith(BURSTS):
        return {}
    return {"CreditSpecification": {"CpuCredits": order.options.get("cpu_credits", "standard")}}


def _confidential(order: Order) -> Answer:
    if order.confidential is None:
        return {}
    if order.confidential is not Confidential.SEV_SNP:
        raise CloudError(Meaning.NOT_OFFERED, f"EC2 does not support {order.confidential}; use sev_snp.")
    return {"CpuOptions": {"AmdSevSnp": "enabled"}}


def _ending(order: Order) -> Answer:
    # The dead man's switch in the guest powers off; without this EC2 would keep it, stopped, and its disk.
    return {"InstanceInitiatedShutdownBehavior": "terminate"} if order.ends_after is not None else {}


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
    """A type of object, with the calls that list its objects and delete one of them."""

    name: str
    list: str
    field: str
    id: str
    delete: str
    argument: str
    many: bool = False
    tags: str = "Tags"
    prefix: str = ""
    """Prefix of the ids of such objects."""
    alone: tuple[str, str | Sequence[str]] | None = None
    """The filter that finds unused objects: a field and its values."""
    since: str = ""
    named_by: str = ""
    """The field with the name under which the object was made; empty if only a tag has that name."""
    copied: bool = False
    """Whether other programs make copies of the object that have the same tags."""


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
"""All types of objects, in the order of deletion: a group is in use while a network interface refers to it."""


def owner_filter(tags: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the filter for objects that have this owner's tags. It ignores other tags, which may have changed."""
    return tagged({name: value for name, value in tags.items() if name in OWNER} or dict(tags))


def instances_of(calls: Calls, region: str, key: str, tags: Mapping[str, str] | None = None) -> list[Instance]:
    """Return every instance whose client token contains the key, ended ones included."""
    wanted = owner_filter(tags) if tags else tagged({NAME: key})
    found = [instance_of(one, region) for one in describe(calls, region, Filters=wanted)]
    return [one for one in found if one.key == key]


def sweep(
    calls: Calls, region: str, key: str, tags: Mapping[str, str], *, known: Sequence[str] = (),
    report: Callable[[str], object] = ignore,
) -> list[str]:  # fmt: skip
    """Delete everything that can be deleted now. Return the names of the remaining objects, read after the deletion.

    Further instances come from attempts whose answer was lost and that were given up too early: every attempt has a
    token of its own, so a key may have two instances.
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
            report(f"{sort.name} {one} is deleted by its id, because somebody removed its tags.")
        for one in (*found, *untagged):
            _delete(calls, region, sort, one)
        if found or untagged:
            there = [*_found(calls, region, sort, key, tags), *_known(calls, region, sort, untagged)]
            left += [f"{sort.name} {one}" for one in there]
    return left


def remains(calls: Calls, region: str, tags: Mapping[str, str]) -> list[Remnant]:
    """Return the unused objects with these tags in a region.

    A volume created from a snapshot may have the tags of the snapshot's volume, so its name proves nothing.
    """
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
    """Return the ids of a resource's objects, found by the owner's tags.

    The resource epoch is proven by the name of a group, which cannot be changed, and by the tags of other objects.
    """
    wanted = [*owner_filter(tags), *(filters(**dict([_OPEN])) if sort.many else [])]
    there = listed(calls, sort.list, region, sort.field, Filters=wanted)
    return sorted(one[sort.id] for one in there if _is_of(sort, one, key, tags))


def _is_of(sort: Sort, found: Answer, key: str, tags: Mapping[str, str]) -> bool:
    if sort.named_by:
        return bool(found[sort.named_by] == key)
    there = tags_of(found, sort.tags)
    return there.get(NAME) == key or (_EPOCH in tags and there.get(_EPOCH) == tags[_EPOCH])


def _known(calls: Calls, region: str, sort: Sort, ids: Sequence[str]) -> list[str]:
    """Return those of the given ids that exist without an owner's tags.

    The ids are passed as a filter, because an id that is gone would otherwise make the whole call fail.
    """
    if not ids:
        return []
    wanted = [*filters(**{_ID_FILTERS[sort.prefix]: list(ids)}), *(filters(**dict([_OPEN])) if sort.many else [])]
    there = listed(calls, sort.list, region, sort.field, Filters=wanted)
    return sorted(one[sort.id] for one in there if lost_tags(tags_of(one, sort.tags)))


def _delete(calls: Calls, region: str, sort: Sort, one: str) -> None:
    """Delete one object.

    An object that is still in use or already gone is not an error: the listing afterwards shows it.
    """
    try:
        which: dict[str, Any] = {sort.argument: [one] if sort.many else one}
        calls.call(sort.delete, region, **which)
    except CloudError as error:
        if error.meaning not in _LATER:
            raise
