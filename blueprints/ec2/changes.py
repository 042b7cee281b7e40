"""The calls that change something which is there already, as they are asked about without being made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from blueprints.ec2.calls import tag_list

TAGS = "ec2:CreateTags"


@dataclass(frozen=True, kw_only=True)
class About:
    """A change of a thing that is there: which sort of thing, and what the call says besides its id."""

    name: str
    sort: str
    argument: str
    many: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)


_SSH = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "192.0.2.1/32"}]}
_RULE = {"IpPermissions": [_SSH]}
ABOUT = (
    About(name="ec2:AuthorizeSecurityGroupIngress", sort="security group", argument="GroupId", more=_RULE),
    About(name="ec2:CancelSpotInstanceRequests", sort="spot request", argument="SpotInstanceRequestIds", many=True),
    About(name=TAGS, sort="security group", argument="Resources", many=True, more={"Tags": tag_list({"a": "b"})}),
    About(name="ec2:DeleteNetworkInterface", sort="network interface", argument="NetworkInterfaceId"),
    About(name="ec2:DeleteSecurityGroup", sort="security group", argument="GroupId"),
    About(name="ec2:DeleteVolume", sort="volume", argument="VolumeId"),
    About(name="ec2:GetConsoleOutput", sort="instance", argument="InstanceId"),
    About(
        name="ec2:ModifyInstanceAttribute",
        sort="instance",
        argument="InstanceId",
        more={"InstanceType": {"Value": "t3.micro"}},
    ),
    About(name="ec2:ModifyVolume", sort="volume", argument="VolumeId", more={"Size": 1024}),
    About(name="ec2:RebootInstances", sort="instance", argument="InstanceIds", many=True),
    About(name="ec2:RevokeSecurityGroupIngress", sort="security group", argument="GroupId", more=_RULE),
    About(name="ec2:StartInstances", sort="instance", argument="InstanceIds", many=True),
    About(name="ec2:StopInstances", sort="instance", argument="InstanceIds", many=True),
    About(name="ec2:TerminateInstances", sort="instance", argument="InstanceIds", many=True),
)
NOTHING = {
    "instance": "i-00000000000000000",
    "volume": "vol-00000000000000000",
    "network interface": "eni-00000000000000000",
    "security group": "sg-00000000000000000",
    "spot request": "sir-00000000",
}
"""Ids that no thing has."""
