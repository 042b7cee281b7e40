"""Whether there is a subnet for machines to stand in, before there is a machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from blueprints.cloud.values import Order
from blueprints.ec2.calls import Answer, Calls, filters, listed
from blueprints.specs import Problem


def problems(calls: Calls, order: Order, zones: Sequence[str]) -> list[Problem]:
    """What is wrong with the subnet that an order names, or with the default VPC where it names none."""
    there = list(listed(calls, "describe_subnets", order.location, "Subnets"))
    if order.network:
        return list(_of_named(order, zones, there))
    default = list(listed(calls, "describe_vpcs", order.location, "Vpcs", Filters=filters(is_default="true")))
    if not default:
        said = f"{order.location} has no default VPC. Name a subnet in network; there are: {_listed(there)}."
        return [_problem(said)]
    usual = [one for one in there if one["VpcId"] == default[0]["VpcId"] and one.get("DefaultForAz")]
    return list(_of_default(order, zones, usual, there))


def _of_named(order: Order, zones: Sequence[str], there: Sequence[Answer]) -> Iterator[Problem]:
    found = next((one for one in there if one["SubnetId"] == order.network), None)
    if found is None:
        said = f"{order.location} has no subnet {order.network}. It has: {_listed(there)}. Name one, or other regions."
        yield _problem(said)
        return
    zone = found["AvailabilityZone"]
    if zones and zone not in zones:
        said = f"The subnet {order.network} is in {zone}, and machines may only be in {', '.join(zones)}."
        yield _problem(f"{said} Allow {zone} in zones, or name one of: {_listed(there, zones)}.")
    yield from _full(found)


def _of_default(
    order: Order, zones: Sequence[str], usual: Sequence[Answer], there: Sequence[Answer]
) -> Iterator[Problem]:
    """Zones of other regions may be among those that are allowed."""
    served = {one["AvailabilityZone"] for one in usual}
    without = [zone for zone in zones if zone.startswith(order.location) and zone not in served]
    if not usual or without:
        where = f" in {', '.join(without)}" if usual else ""
        said = f"The default VPC of {order.location} has no default subnet{where}."
        yield _problem(f"{said} Make one (aws ec2 create-default-subnet), or name one in network: {_listed(there)}.")
    for one in usual:
        if not zones or one["AvailabilityZone"] in zones:
            yield from _full(one)


def _full(subnet: Answer) -> Iterator[Problem]:
    if subnet.get("AvailableIpAddressCount") == 0:
        said = (
            f"The subnet {subnet['SubnetId']} in {subnet['AvailabilityZone']} has no free address: no machine fits in."
        )
        yield _problem(f"{said} Free some, or name another subnet.", fatal=False)


def _listed(there: Sequence[Answer], zones: Sequence[str] = ()) -> str:
    shown = [one for one in there if not zones or one["AvailabilityZone"] in zones]
    words = [f"{one['SubnetId']} ({one['AvailabilityZone']}, {one.get('CidrBlock', '')})" for one in shown]
    return ", ".join(sorted(words)) or "none"


def _problem(message: str, *, fatal: bool = True) -> Problem:
    return Problem(message=message, field="network", fatal=fatal)
