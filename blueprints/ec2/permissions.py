"""The permissions that the kind needs at EC2, and a check of the account's permissions.

Most are checked by calls with DryRun, which EC2 checks but does not carry out. `DryRunOperation` means allowed and
`UnauthorizedOperation` denied (https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RunInstances.html, DryRun);
any other answer says nothing about permissions. The policy of docs/kinds/ec2.md allows changes only to objects with
Drydock's tag, and launches only into groups with that tag. The calls therefore name existing objects that belong to
Drydock; if there are none, a denial proves nothing either.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from blueprints.cloud.client import Permission
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Market, Order
from blueprints.ec2 import account, network
from blueprints.ec2.api import Calls, filters, listed, tag_list, tags_of
from blueprints.ec2.instances import SORTS, image_of, instances_in, launch
from blueprints.ec2.market import LIST_REGION

TAGS = "ec2:CreateTags"


@dataclass(frozen=True, kw_only=True)
class Change:
    """An API call that changes an existing object: the object's type, and the call's other parameters."""

    name: str
    sort: str
    argument: str
    many: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)


_SSH = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "192.0.2.1/32"}]}
_RULE = {"IpPermissions": [_SSH]}
CHANGES = (
    Change(name="ec2:AuthorizeSecurityGroupIngress", sort="security group", argument="GroupId", more=_RULE),
    Change(name="ec2:CancelSpotInstanceRequests", sort="spot request", argument="SpotInstanceRequestIds", many=True),
    Change(name=TAGS, sort="security group", argument="Resources", many=True, more={"Tags": tag_list({"a": "b"})}),
    Change(name="ec2:DeleteNetworkInterface", sort="network interface", argument="NetworkInterfaceId"),
    Change(name="ec2:DeleteSecurityGroup", sort="security group", argument="GroupId"),
    Change(name="ec2:DeleteVolume", sort="volume", argument="VolumeId"),
    Change(name="ec2:GetConsoleOutput", sort="instance", argument="InstanceId"),
    Change(
        name="ec2:ModifyInstanceAttribute",
        sort="instance",
        argument="InstanceId",
        more={"InstanceType": {"Value": "t3.micro"}},
    ),
    Change(name="ec2:ModifyVolume", sort="volume", argument="VolumeId", more={"Size": 1024}),
    Change(name="ec2:RebootInstances", sort="instance", argument="InstanceIds", many=True),
    Change(name="ec2:RevokeSecurityGroupIngress", sort="security group", argument="GroupId", more=_RULE),
    Change(name="ec2:StartInstances", sort="instance", argument="InstanceIds", many=True),
    Change(name="ec2:StopInstances", sort="instance", argument="InstanceIds", many=True),
    Change(name="ec2:TerminateInstances", sort="instance", argument="InstanceIds", many=True),
)
NO_SUCH_ID = {
    "instance": "i-00000000000000000",
    "volume": "vol-00000000000000000",
    "network interface": "eni-00000000000000000",
    "security group": "sg-00000000000000000",
    "spot request": "sir-00000000",
}
"""Maps each type of object to an id that no object has."""
YES, NO = "DryRunOperation", "UnauthorizedOperation"
GROUP, RUN = "ec2:CreateSecurityGroup", "ec2:RunInstances"
INSTALLATION = "drydock-installation"
_REFUSED = re.compile(r"not authorized to perform: (?P<action>\S+)(?: on resource: (?P<resource>\S+))?")
_NONE_YET = "this can only be checked once an object that belongs to Drydock exists"
_WORD = re.compile(r"(?<!^)(?=[A-Z])")
_MOST = 3
"""Maximum number of installations whose objects are checked."""
_IDS = {"instance": "InstanceId", **{sort.name: sort.id for sort in SORTS}}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The result for one permission; `unclear` explains why it could not be determined."""

    held: bool | None
    unclear: str = ""


Thing = dict[str, Any]
Found = dict[str, Answer]


class DryRuns:
    """Dry runs in one region.

    `known` is true if the API certainly supports DryRun, as Amazon's does. Any other API must first have shown that it
    does.
    """

    def __init__(self, calls: Calls, order: Order, *, known: bool) -> None:
        self._calls, self._order, self._region, self._known = calls, order, order.location, known

    def check(self, name: str) -> Answer:
        """Check a call that only reads."""
        refused = self._refused(name, {})
        if refused is None:
            return Answer(held=True)
        self._known |= refused.provider_code == YES
        return _told(refused)

    def changes(self) -> Found:
        """Check all calls that change something."""
        if not self._known:
            return self._unknown()
        try:
            launching = self._launching(*network.place(self._calls, self._order))
        except CloudError as error:
            launching = dict.fromkeys((GROUP, RUN), _unclear(f"there is no network to check it with ({error.message})"))
        return self._changing() | launching if self._known else launching

    def _unknown(self) -> Found:
        self._known = False
        return dict.fromkeys((GROUP, RUN, *(one.name for one in CHANGES)), _unclear("this API does not support DryRun"))

    def _changing(self) -> Found:
        there = self._things()
        return {one.name: self._about(one, there[one.sort]) for one in CHANGES}

    def _about(self, one: Change, things: Sequence[Thing]) -> Answer:
        """Check a change against Drydock's objects.

        Permission for one of them suffices, as the others may belong to another installation. Without any object, only
        a permission proves something.
        """
        ids = [thing[_IDS[one.sort]] for thing in things] or [NO_SUCH_ID[one.sort]]
        asked = [self._refused(one.name, {one.argument: [it] if one.many else it, **one.more}) for it in ids]
        told = [Answer(held=True) if refused is None else _told(refused) for refused in asked]
        if any(answer.held for answer in told):
            return Answer(held=True)
        return told[0] if things else _unclear(_NONE_YET)

    def _things(self) -> dict[str, list[Thing]]:
        """Return the existing objects with Drydock's tag, one per installation, by sort."""
        ours = filters(tag_key=INSTALLATION)
        found = {sort.name: self._one_each(sort.tags, self._listed(sort.list, sort.field, ours)) for sort in SORTS}
        up = filters(instance_state_name=["pending", "running", "stopping", "stopped"])
        reservations = self._listed("describe_instances", "Reservations", [*ours, *up])
        return {**found, "instance": self._one_each("Tags", [*instances_in({"Reservations": reservations})])}

    def _listed(self, operation: str, name: str, wanted: list[dict[str, Any]]) -> list[Thing]:
        try:
            found: list[Thing] = list(listed(self._calls, operation, self._region, name, Filters=wanted))
        except CloudError as error:
            if error.meaning is not Meaning.CREDENTIALS:
                raise
            return []
        return found

    def _one_each(self, field: str, things: Sequence[Thing]) -> list[Thing]:
        return list({tags_of(one, field).get(INSTALLATION, ""): one for one in things}.values())[:_MOST]

    def _launching(self, vpc: str, subnet: str) -> Found:
        wanted = filters(tag_key=INSTALLATION, vpc_id=vpc)
        groups = self._one_each("Tags", self._listed("describe_security_groups", "SecurityGroups", wanted))
        orders = [self._order, *(replace(self._order, tags=tags_of(one)) for one in groups)]
        making = _best([self._group(order, vpc) for order in orders])
        if not self._known:
            return self._unknown()
        try:
            prepared = {"vpc": vpc, "subnet": subnet, **self._image()}
        except CloudError as error:
            return making | {RUN: _unclear(f"there is no image to check it with ({error.message})")}
        if not groups:
            return making | self._run_elsewhere({**prepared, "group": self._usual_group(vpc)})
        pairs = zip(orders[1:], groups, strict=True)
        ran = [_named(RUN, self._run(order, {**prepared, "group": one["GroupId"]})) for order, one in pairs]
        return making | _best(ran)

    def _usual_group(self, vpc: str) -> str:
        wanted = filters(group_name="default", vpc_id=vpc)
        found = self._listed("describe_security_groups", "SecurityGroups", wanted)
        return str(found[0]["GroupId"]) if found else NO_SUCH_ID["security group"]

    def _group(self, order: Order, vpc: str) -> Found:
        def undo(made: Thing) -> None:
            self._known = False
            self._calls.call("delete_security_group", self._region, GroupId=made["GroupId"])

        return _named(GROUP, self._refused(GROUP, network.making(order, vpc), undo))

    def _image(self) -> dict[str, str]:
        found = account.image_description(self._calls, self._region, self._order.image)
        return {"root_device": found["RootDeviceName"], "disk_gib": str(image_of(found).disk_gib or 1)}

    def _run_elsewhere(self, prepared: Mapping[str, str]) -> Found:
        """Try to launch into a group without Drydock's tag, which the policy does not allow.

        Only a denial for another reason proves something.
        """
        refused = self._run(self._order, prepared)
        about = _REFUSED.search(refused.message) if refused else None
        if refused is None or refused.provider_code != NO or (about and ":security-group/" not in about["resource"]):
            return _named(RUN, refused)
        return {RUN: _unclear(_NONE_YET)}

    def _run(self, order: Order, prepared: Mapping[str, str]) -> CloudError | None:
        def undo(made: Thing) -> None:
            ids = [one["InstanceId"] for one in made["Instances"]]
            self._calls.call("terminate_instances", self._region, InstanceIds=ids)

        return self._refused(RUN, launch(order, prepared), undo)

    def _refused(
        self, name: str, arguments: Mapping[str, Any], undo: Callable[[Thing], None] = lambda made: None
    ) -> CloudError | None:
        """Return EC2's refusal of a dry run, which is expected every time.

        If EC2 carried the call out, undo it and return None.
        """
        operation = _WORD.sub("_", name.partition(":")[2]).lower()
        try:
            undo(self._calls.call(operation, self._region, DryRun=True, **arguments))
        except CloudError as error:
            return error
        return None


def _unclear(why: str) -> Answer:
    return Answer(held=None, unclear=why)


def _told(refused: CloudError) -> Answer:
    if refused.provider_code in (YES, NO):
        return Answer(held=refused.provider_code == YES)
    return _unclear(f"EC2 answered {refused.provider_code or refused.meaning}: {refused.message}")


def _named(asked: str, refused: CloudError | None) -> Found:
    """Return answers by the permission that a refusal names.

    A call with tags also needs the permission to tag.
    """
    if refused is None or refused.provider_code != NO:
        return {asked: Answer(held=True) if refused is None else _told(refused)}
    about = _REFUSED.search(refused.message)
    named = about["action"] if about else asked
    return {asked: Answer(held=named != asked)} | {named: Answer(held=False)}


def _best(tried: Sequence[Found]) -> Found:
    """Return the best of several installations' results: one in which all permissions are held, or else the first."""
    return next((one for one in tried if all(answer.held for answer in one.values())), tried[0])


READS = (
    "ec2:DescribeAvailabilityZones",
    "ec2:DescribeImages",
    "ec2:DescribeInstanceTypeOfferings",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeInstances",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeRegions",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSpotInstanceRequests",
    "ec2:DescribeSpotPriceHistory",
    "ec2:DescribeSubnets",
    "ec2:DescribeVolumes",
    "ec2:DescribeVpcs",
)
PRODUCTS, QUOTAS, WHO = "pricing:GetProducts", "servicequotas:ListServiceQuotas", "sts:GetCallerIdentity"
PERMISSIONS = (*READS, GROUP, RUN, *(one.name for one in CHANGES), PRODUCTS, QUOTAS, WHO)
"""All permissions of the policy in docs/kinds/ec2.md; a test keeps both equal."""
WITHOUT = {
    "ec2:DescribeSpotPriceHistory": "spot offers have no prices",
    "ec2:GetConsoleOutput": "the console output cannot be read",
    "ec2:ModifyInstanceAttribute": "the type of machines cannot be changed",
    "ec2:ModifyVolume": "disks cannot be enlarged",
    "ec2:RebootInstances": "machines cannot be rebooted",
    "ec2:StartInstances": "stopped machines cannot be started",
    "ec2:StopInstances": "machines cannot be stopped",
    PRODUCTS: "regions that the bundled table lacks have no prices",
    QUOTAS: "quotas are noticed only when a create is refused",
}
"""Maps a permission to what fails without it. Without any other permission, the kind does not work."""
OF_SPOT = frozenset({"ec2:CancelSpotInstanceRequests", "ec2:DescribeSpotPriceHistory"})
_HOST_KEYS = {"ec2:GetConsoleOutput": "console"}


def permissions(calls: Calls, order: Order, *, price_list: bool, amazon: bool) -> list[Permission]:
    """Return the status of every required permission.

    `price_list`: prices come from Amazon's Price List. `amazon`: the cloud is AWS itself, not a private cloud with the
    same API.
    """
    found = {WHO: Answer(held=True), QUOTAS: _of_quotas(calls, order.location)}
    if price_list:
        found[PRODUCTS] = _of_products(calls, order.location)
    runs = DryRuns(calls, order, known=amazon)
    found |= {name: runs.check(name) for name in READS}
    found |= runs.changes()
    asked = set(found) - (OF_SPOT if order.market is not Market.SPOT else set())
    return [_permission(name, found[name]) for name in PERMISSIONS if name in asked]


def _permission(name: str, answer: Answer) -> Permission:
    return Permission(
        name=name,
        held=answer.held,
        unclear=answer.unclear,
        without=WITHOUT.get(name, ""),
        host_key=_HOST_KEYS.get(name, ""),
    )


def _of_quotas(calls: Calls, region: str) -> Answer:
    return _tried(
        lambda: calls.call("list_service_quotas", region, service="service-quotas", ServiceCode="ec2", MaxResults=1)
    )


def _of_products(calls: Calls, region: str) -> Answer:
    wanted = [{"Type": "TERM_MATCH", "Field": "regionCode", "Value": region}]
    how = {"ServiceCode": "AmazonEC2", "Filters": wanted, "MaxResults": 1}
    return _tried(lambda: calls.call("get_products", LIST_REGION, service="pricing", **how))


def _tried(call: Callable[[], Any]) -> Answer:
    """Check a permission of a service without DryRun by a call that reads one entry."""
    try:
        call()
    except CloudError as error:
        if error.meaning is Meaning.CREDENTIALS:
            return Answer(held=False)
        return Answer(held=None, unclear=f"EC2 answered {error.provider_code or error.meaning}: {error.message}")
    return Answer(held=True)
