"""Instances and images as EC2 describes them, in the contract's values."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from blueprints.cloud.faults import CloudError
from blueprints.cloud.values import Image, Instance, Lifecycle, Market
from blueprints.ec2.calls import Answer, Calls, tagged, tags_of
from blueprints.ec2.tokens import key_in

_STATES = {
    "pending": Lifecycle.PENDING,
    "running": Lifecycle.RUNNING,
    "shutting-down": Lifecycle.TERMINATING,
    "terminated": Lifecycle.TERMINATED,
    "stopping": Lifecycle.STOPPING,
    "stopped": Lifecycle.STOPPED,
}
"""https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_InstanceState.html"""
_PREEMPTED = frozenset({"Server.SpotInstanceTermination", "Server.SpotInstanceShutdown"})
"""https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_StateReason.html"""
_WITH_REASON = frozenset({Lifecycle.STOPPING, Lifecycle.STOPPED, Lifecycle.TERMINATING, Lifecycle.TERMINATED})


def instances_in(answer: Answer) -> Iterator[Answer]:
    """The instances of one answer, whatever reservations they were made in."""
    for reservation in answer.get("Reservations") or ():
        yield from reservation["Instances"]


def described(calls: Calls, region: str, **wanted: Any) -> list[Answer]:
    """The instances that DescribeInstances tells of, over all its pages."""
    return [one for page in calls.pages("describe_instances", region, **wanted) for one in instances_in(page)]


def is_spot(found: Answer) -> bool:
    """Whether an instance that EC2 describes is one of the spot market, and runs."""
    return found.get("InstanceLifecycle") == "spot" and found["State"]["Name"] == "running"


_MARKED = frozenset({"marked-for-termination", "marked-for-stop"})
"""Status codes of a spot request two minutes before its instance is taken back
(https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-request-status.html)."""


def leaving(calls: Calls, region: str, tags: Mapping[str, str]) -> dict[str, str]:
    """Instance -> why it is taken back soon. Nothing where that cannot be read: it is a notice, and no more."""
    try:
        answer = calls.call("describe_spot_instance_requests", region, Filters=tagged(dict(tags)))
    except CloudError:
        return {}
    marked = [one for one in answer["SpotInstanceRequests"] if (one.get("Status") or {}).get("Code") in _MARKED]
    return {one["InstanceId"]: f"{one['Status']['Code']}: {one['Status'].get('Message', '')}" for one in marked}


def instance_of(found: Answer, location: str) -> Instance:
    """An instance as DescribeInstances or RunInstances tells of it."""
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
    """Of several, one that has not ended, and the newest."""
    ended = (Lifecycle.TERMINATED, Lifecycle.TERMINATING)
    never = dt.datetime.min.replace(tzinfo=dt.UTC)
    return max(found, key=lambda one: (one.state not in ended, one.created_at or never), default=None)


def image_of(found: Answer) -> Image:
    """An image as DescribeImages tells of it."""
    return Image(
        id=found["ImageId"],
        name=found.get("Name") or "",
        arch=found.get("Architecture") or "",
        created_at=time_of(found.get("CreationDate")),
        disk_gib=int((root_of(found).get("Ebs") or {}).get("VolumeSize") or 0),
    )


def root_of(found: Answer) -> Answer:
    """The mapping of the boot disk of an image or an instance; empty where there is none."""
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
    """A moment as EC2 tells it: as text, or read already."""
    if isinstance(given, str) and given:
        given = dt.datetime.fromisoformat(given.replace("Z", "+00:00"))
    return given.astimezone(dt.UTC) if isinstance(given, dt.datetime) else None
