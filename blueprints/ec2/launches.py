"""What RunInstances is asked for an order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Confidential, Market, Order
from blueprints.ec2.calls import Answer, tag_list
from blueprints.ec2.network import object_tags
from blueprints.ec2.tokens import client_token

DISK_TYPE = "gp3"
"""Cheaper than gp2 at the same size, and its speed does not depend on the size."""
TAGGED = ("instance", "volume", "network-interface")


def launch(order: Order, prepared: Mapping[str, str]) -> dict[str, Any]:
    """The parameters: the same ones for the same order and preparation, as a repeated client token demands.

    Source: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RunInstances.html.
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
    """A network card says both where it stands and whether it has a public address. Without a subnet there can be
    none of ours: EC2 chooses one of the default subnets, whose instances have public addresses."""
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
"""Types with CPU credits. Of them T2 is standard unless told otherwise, the others are unlimited (EC2 guide, "Unlimited
mode for burstable performance instances"): so it is said of each."""


def _credits(order: Order) -> Answer:
    if not order.type.startswith(BURSTS):
        return {}
    return {"CreditSpecification": {"CpuCredits": order.options.get("cpu_credits", "standard")}}


def _confidential(order: Order) -> Answer:
    if order.confidential is None:
        return {}
    if order.confidential is not Confidential.SEV_SNP:
        raise CloudError(Meaning.NOT_OFFERED, f"EC2 has no guests with {order.confidential}, only with sev_snp.")
    return {"CpuOptions": {"AmdSevSnp": "enabled"}}


def _ending(order: Order) -> Answer:
    # The dead man's switch in the guest powers off; without this EC2 would keep it, stopped, and its disk.
    return {"InstanceInitiatedShutdownBehavior": "terminate"} if order.ends_after is not None else {}
