"""The network of an instance: its subnet, its security group, and a check of subnets before anything is created."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Order, Rule, same_owner
from blueprints.ec2.api import Answer, Calls, filters, listed, tag_list, tags_of
from blueprints.specs import Problem

NAME = "Name"
"""Tag that EC2's console displays as the name."""


def object_tags(order: Order) -> dict[str, str]:
    """Return the tags of all objects that are created for an order."""
    return {**order.tags, NAME: order.key}


def place(calls: Calls, order: Order) -> tuple[str, str]:
    """Return the VPC and the subnet of an order, or the region's default VPC.

    The subnet is empty if EC2 should choose the zone. Raises CloudError INVALID, or NOT_OFFERED if the region has no
    default VPC.
    """
    if order.network:
        subnet = next(_subnets(calls, order, SubnetIds=[order.network]), None)
        if subnet is None:
            raise CloudError(Meaning.NOT_FOUND, f"{order.location} has no subnet {order.network}.")
        _same_zone(order, subnet)
        return subnet["VpcId"], _roomy(subnet)
    vpc = _default_vpc(calls, order.location)
    if order.zone:
        return vpc, _default_subnet(calls, order, vpc)
    if not order.public_address:
        raise CloudError(Meaning.INVALID, "A machine without a public address requires a zone or a subnet.")
    return vpc, ""


def _same_zone(order: Order, subnet: Answer) -> None:
    if order.zone and subnet["AvailabilityZone"] != order.zone:
        raise CloudError(
            Meaning.NOT_OFFERED,
            f"The subnet {order.network} is in {subnet['AvailabilityZone']}, not in {order.zone}.",
            zone_wide=True,
        )


def _roomy(subnet: Answer) -> str:
    """Return the subnet's id. Raises CloudError QUOTA if the subnet has no free address."""
    if subnet.get("AvailableIpAddressCount") == 0:
        raise CloudError(
            Meaning.QUOTA,
            f"The subnet {subnet['SubnetId']} ({subnet.get('CidrBlock', '')}) has no free address.",
            provider_code="InsufficientFreeAddressesInSubnet",
            zone_wide=True,
        )
    return str(subnet["SubnetId"])


def _default_vpc(calls: Calls, region: str) -> str:
    for found in listed(calls, "describe_vpcs", region, "Vpcs", Filters=filters(is_default="true")):
        return str(found["VpcId"])
    raise CloudError(Meaning.INVALID, f"{region} has no default VPC. Set network to a subnet in the blueprint.")


def _default_subnet(calls: Calls, order: Order, vpc: str) -> str:
    wanted = filters(vpc_id=vpc, default_for_az="true", availability_zone=order.zone)
    for found in _subnets(calls, order, Filters=wanted):
        return _roomy(found)
    raise CloudError(Meaning.NOT_OFFERED, f"The default VPC has no subnet in {order.zone}.", zone_wide=True)


def _subnets(calls: Calls, order: Order, **wanted: Any) -> Iterator[Answer]:
    return listed(calls, "describe_subnets", order.location, "Subnets", **wanted)


def group(calls: Calls, order: Order, vpc: str) -> str:
    """Return the security group under the order's name, with exactly the order's ingress rules.

    It is created if necessary; repeating the call is harmless. Raises CloudError INVALID if the name belongs to a group
    without Drydock's tags.
    """
    found = _group(calls, order, vpc) or _made(calls, order, vpc)
    wanted = {(order.ssh_port, "tcp", str(ipaddress.ip_network(source, strict=False))) for source in order.ssh_from}
    there = set(_rules(found))
    region, name = order.location, found["GroupId"]
    for port, protocol, source in sorted(wanted - there):
        allow(calls, region, name, Rule(port=port, protocol=protocol, source=source))
    surplus = [one for one in found.get("IpPermissions") or () if not set(_sources(one)) <= wanted or _others(one)]
    if surplus:
        calls.call("revoke_security_group_ingress", region, GroupId=name, IpPermissions=[_bare(o) for o in surplus])
        for port, protocol, source in sorted(wanted & there):
            allow(calls, region, name, Rule(port=port, protocol=protocol, source=source))
    return str(name)


def _group(calls: Calls, order: Order, vpc: str) -> Answer | None:
    wanted = filters(group_name=order.key, vpc_id=vpc)
    found = next(listed(calls, "describe_security_groups", order.location, "SecurityGroups", Filters=wanted), None)
    if found is not None and not same_owner(tags_of(found), order.tags):
        raise CloudError(
            Meaning.INVALID,
            f"{vpc} already has a security group {order.key} that does not belong to this Drydock installation.",
        )
    return found


def _made(calls: Calls, order: Order, vpc: str) -> Answer:
    try:
        made = calls.call("create_security_group", order.location, **making(order, vpc))
    except CloudError as error:
        if error.provider_code != "InvalidGroup.Duplicate":
            raise
        found = _group(calls, order, vpc)
        if found is None:  # made a moment ago, and not yet seen everywhere
            raise
        return found
    return {"GroupId": made["GroupId"]}


def making(order: Order, vpc: str) -> Answer:
    """Return the parameters of CreateSecurityGroup for an order."""
    return {
        "GroupName": order.key,
        "Description": f"Access to {order.key}",
        "VpcId": vpc,
        "TagSpecifications": [{"ResourceType": "security-group", "Tags": tag_list(object_tags(order))}],
    }


def allow(calls: Calls, region: str, name: str, rule: Rule) -> None:
    """Add a rule to a security group. A rule that already exists counts as success."""
    try:
        calls.call("authorize_security_group_ingress", region, GroupId=name, IpPermissions=[_permission(rule)])
    except CloudError as error:
        if error.provider_code != "InvalidPermission.Duplicate":
            raise


def deny(calls: Calls, region: str, name: str, rule: Rule) -> None:
    """Remove a rule from a security group. A rule that does not exist counts as success."""
    try:
        calls.call("revoke_security_group_ingress", region, GroupId=name, IpPermissions=[_permission(rule)])
    except CloudError as error:
        if error.provider_code not in ("InvalidPermission.NotFound", "InvalidGroup.NotFound"):
            raise


def own_group(instance: Answer, key: str) -> str:
    """Return the group of a described instance that was created under its name. Raises CloudError NOT_FOUND."""
    for one in instance.get("SecurityGroups") or ():
        if one["GroupName"] == key:
            return str(one["GroupId"])
    raise CloudError(Meaning.NOT_FOUND, f"{instance['InstanceId']} has lost its security group {key}.")


def _permission(rule: Rule) -> Answer:
    network = ipaddress.ip_network(rule.source, strict=False)
    ranges = {"IpRanges": [{"CidrIp": str(network)}]}
    if network.version == 6:
        ranges = {"Ipv6Ranges": [{"CidrIpv6": str(network)}]}
    return {"IpProtocol": rule.protocol, "FromPort": rule.port, "ToPort": rule.port, **ranges}


def _rules(found: Answer) -> Iterable[tuple[int, str, str]]:
    for permission in found.get("IpPermissions") or ():
        yield from _sources(permission)


def _sources(permission: Answer) -> Sequence[tuple[int, str, str]]:
    ranges = [one["CidrIp"] for one in permission.get("IpRanges") or ()]
    ranges += [one["CidrIpv6"] for one in permission.get("Ipv6Ranges") or ()]
    port = permission.get("FromPort") if permission.get("FromPort") == permission.get("ToPort") else None
    return [(-1 if port is None else port, permission["IpProtocol"], source) for source in ranges]


def _others(permission: Answer) -> bool:
    """Return whether the permission admits other groups or prefix lists, which Drydock never sets."""
    return bool(permission.get("UserIdGroupPairs") or permission.get("PrefixListIds"))


def _bare(permission: Answer) -> Answer:
    """Return the permission without its empty lists and descriptions."""
    kept = ("IpProtocol", "FromPort", "ToPort", "IpRanges", "Ipv6Ranges", "UserIdGroupPairs", "PrefixListIds")
    return {name: permission[name] for name in kept if permission.get(name) not in (None, [])}


def problems(calls: Calls, order: Order, zones: Sequence[str]) -> list[Problem]:
    """Return the problems with the order's subnet, or with the default VPC if the order names no subnet."""
    there = list(listed(calls, "describe_subnets", order.location, "Subnets"))
    if order.network:
        return list(_of_named(order, zones, there))
    default = list(listed(calls, "describe_vpcs", order.location, "Vpcs", Filters=filters(is_default="true")))
    if not default:
        said = f"{order.location} has no default VPC. Set network to a subnet. Available: {_listed(there)}."
        return [_problem(said)]
    usual = [one for one in there if one["VpcId"] == default[0]["VpcId"] and one.get("DefaultForAz")]
    return list(_of_default(order, zones, usual, there))


def _of_named(order: Order, zones: Sequence[str], there: Sequence[Answer]) -> Iterator[Problem]:
    found = next((one for one in there if one["SubnetId"] == order.network), None)
    if found is None:
        said = (
            f"{order.location} has no subnet {order.network}. Available: {_listed(there)}. Choose one of "
            "these, or other regions."
        )
        yield _problem(said)
        return
    zone = found["AvailabilityZone"]
    if zones and zone not in zones:
        said = f"The subnet {order.network} is in {zone}, but the blueprint allows only {', '.join(zones)}."
        yield _problem(f"{said} Add {zone} to zones, or set network to one of: {_listed(there, zones)}.")
    yield from _full(found)


def _of_default(
    order: Order, zones: Sequence[str], usual: Sequence[Answer], there: Sequence[Answer]
) -> Iterator[Problem]:
    """Return the problems with the default VPC. The allowed zones may include zones of other regions."""
    served = {one["AvailabilityZone"] for one in usual}
    without = [zone for zone in zones if zone.startswith(order.location) and zone not in served]
    if not usual or without:
        where = f" in {', '.join(without)}" if usual else ""
        said = f"The default VPC of {order.location} has no default subnet{where}."
        yield _problem(
            f"{said} Create a subnet (aws ec2 create-default-subnet), or set network to one of: {_listed(there)}."
        )
    for one in usual:
        if not zones or one["AvailabilityZone"] in zones:
            yield from _full(one)


def _full(subnet: Answer) -> Iterator[Problem]:
    if subnet.get("AvailableIpAddressCount") == 0:
        said = (
            f"The subnet {subnet['SubnetId']} in {subnet['AvailabilityZone']} has no free address, so no "
            "machine can be created in it."
        )
        yield _problem(f"{said} Free some addresses, or set network to another subnet.", fatal=False)


def _listed(there: Sequence[Answer], zones: Sequence[str] = ()) -> str:
    shown = [one for one in there if not zones or one["AvailabilityZone"] in zones]
    words = [f"{one['SubnetId']} ({one['AvailabilityZone']}, {one.get('CidrBlock', '')})" for one in shown]
    return ", ".join(sorted(words)) or "none"


def _problem(message: str, *, fatal: bool = True) -> Problem:
    return Problem(message=message, field="network", fatal=fatal)
