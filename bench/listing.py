"""The status of many machines, as a listing of a place tells it, against the vendor client's parsing of it."""

from __future__ import annotations

import statistics
import uuid
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from bench.figures import Figure, figure

PLACE = "r1"
_CALLS = 4
_MACHINES = """
    INSERT INTO leases_resource (blueprint_id, type, name, origin, generation, state, attributes, facts, traits,
        total_slots, missed, check_failures)
    SELECT %(blueprint)s, %(kind)s, 'vm-' || n, 'built', 1, 'active',
        jsonb_build_object('region', 'r' || n %% %(places)s), '{"seen": {"state": "starting"}}', '{}', 1, 0, 0
    FROM generate_series(1, %(count)s) n RETURNING id, attributes ->> 'region'"""
_PAGE = """<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>r</requestId>
<reservationSet>{items}</reservationSet></DescribeInstancesResponse>"""
_TAG = "<item><key>{}</key><value>{}</value></item>"
_GROUP = "<groupSet><item><groupId>sg-0a1</groupId><groupName>dd</groupName></item></groupSet>"
_ITEM = f"""<item><reservationId>r-{{number}}</reservationId><ownerId>123456789012</ownerId><groupSet/><instancesSet>
<item><instanceId>i-{{number}}</instanceId><imageId>ami-0abc</imageId><instanceState><code>16</code><name>{{state}}</name>
</instanceState><privateDnsName>ip-10-0-0-7.ec2.internal</privateDnsName><dnsName>ec2-203-0-113-7.amazonaws.com</dnsName>
<reason/><amiLaunchIndex>0</amiLaunchIndex><productCodes/><instanceType>m6a.large</instanceType>
<launchTime>2026-01-01T00:00:00.000Z</launchTime><placement><availabilityZone>us-east-1a</availabilityZone><groupName/>
<tenancy>default</tenancy></placement><monitoring><state>disabled</state></monitoring><subnetId>subnet-1</subnetId>
<vpcId>vpc-1</vpcId><privateIpAddress>10.0.0.7</privateIpAddress><ipAddress>203.0.113.7</ipAddress>
<sourceDestCheck>true</sourceDestCheck>{_GROUP}<architecture>x86_64</architecture><rootDeviceType>ebs</rootDeviceType>
<rootDeviceName>/dev/xvda</rootDeviceName><blockDeviceMapping><item><deviceName>/dev/xvda</deviceName><ebs>
<volumeId>vol-1</volumeId><status>attached</status><attachTime>2026-01-01T00:00:00.000Z</attachTime>
<deleteOnTermination>true</deleteOnTermination></ebs></item></blockDeviceMapping>
<virtualizationType>hvm</virtualizationType><clientToken>{{token}}</clientToken><tagSet>{{tags}}</tagSet>
<hypervisor>xen</hypervisor><networkInterfaceSet><item><networkInterfaceId>eni-1</networkInterfaceId>
<subnetId>subnet-1</subnetId><vpcId>vpc-1</vpcId><description/><ownerId>123456789012</ownerId><status>in-use</status>
<macAddress>02:00:00:00:00:01</macAddress><privateIpAddress>10.0.0.7</privateIpAddress>
<sourceDestCheck>true</sourceDestCheck>{_GROUP}<attachment><attachmentId>eni-attach-1</attachmentId>
<deviceIndex>0</deviceIndex><status>attached</status><attachTime>2026-01-01T00:00:00.000Z</attachTime>
<deleteOnTermination>true</deleteOnTermination></attachment></item></networkInterfaceSet><ebsOptimized>false</ebsOptimized>
</item></instancesSet></item>"""
"""An answer of DescribeInstances, with the elements that it has for a usual instance
(docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeInstances.html, example 1)."""


def figures(account: int, blueprint: int, *, machines: int, places: int, kind: str) -> Iterator[Figure]:
    """All machines of a place change from one listing to the next: the dearest there can be; then none does."""
    from leases.engine.core.database import rows

    there = rows(_MACHINES, {"blueprint": blueprint, "kind": kind, "places": places, "count": machines})
    here = [pk for pk, place in there if place == PLACE]
    apply = _applied(account, kind)
    apply(_read(_page(here, "pending")))
    yield _statements(here, apply)
    yield from _cpu(here, apply)


def _statements(here: list[int], apply: Callable[[Any], object]) -> Figure:
    from django.db import connection

    from bench.cycle import Statements

    counted = Statements()
    with connection.execute_wrapper(counted):
        apply(_read(_page(here, "running")))
    sent = counted.seen.total()
    return figure(
        f"statements of a listing of {len(here)} machines that all changed", sent, "statements", "20", sent / 20
    )


def _cpu(here: list[int], apply: Callable[[Any], object]) -> Iterator[Figure]:
    """Ours is all that follows the client's parsing: reading its answer, comparing, and what the database does."""
    for name, states in {"none changed": ("running",), "all changed": ("pending", "running")}.items():
        pages = [_page(here, state) for state in states]
        parsed = [_read(page) for page in pages]
        pairs = [(_spent(apply, parsed), _spent(_read, pages)) for _ in range(4)][1:]
        ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
        what = f"CPU of a listing of {len(here)} machines, {name}"
        yield figure(what, ours * 1000, "ms", "botocore's parsing of it", ours / theirs)


def _spent(work: Callable[[Any], object], given: list[Any]) -> float:
    """Seconds of CPU of one call, those of the database connection too. The system counts in hundredths: so several."""
    from bench.clients import cpu_of
    from leases.engine.core.database import rows

    backend = [int(rows("SELECT pg_backend_pid()")[0][0])]
    before = cpu_of(backend)
    for one in given * (_CALLS // len(given)):
        work(one)
    return (cpu_of(backend) - before) / _CALLS


def _applied(account: int, kind: str) -> Callable[[Any], object]:
    """From what the client has parsed to what stands in the rows."""
    from blueprints.cloud.inventory import machine
    from blueprints.ec2.instances import instance_of, instances_in
    from blueprints.models import Reading
    from leases.engine.sync import poll

    token = uuid.uuid4()
    reading = Reading.objects.create(
        credential_id=account, kind=kind, what="status", place=PLACE, token=token, due_at="2020-01-01T00:00Z"
    )
    return lambda answer: poll.apply(reading, token, [machine(instance_of(one, PLACE)) for one in instances_in(answer)])


def _page(ids: list[int], state: str) -> bytes:
    from leases.engine.core import installation, specs

    here = installation.current()
    items = []
    for pk in ids:
        key = specs.key("r", pk)
        tags = {**installation.tags(here.short, here.epoch_of("r", pk), pk), "Name": key}
        told = "".join(_TAG.format(name, value) for name, value in tags.items())
        items.append(_ITEM.format(number=f"{pk:017x}", state=state, token=f"{key}.{pk:024x}", tags=told))
    return _PAGE.format(items="".join(items)).encode()


def _read(page: bytes) -> Any:
    """As boto3's client does it."""
    parser, shape = _parser()
    return parser.parse({"body": page, "headers": {}, "status_code": 200}, shape)


@cache
def _parser() -> tuple[Any, Any]:
    from botocore.parsers import create_parser
    from botocore.session import get_session

    model = get_session().get_service_model("ec2")
    return create_parser(model.metadata["protocol"]), model.operation_model("DescribeInstances").output_shape
