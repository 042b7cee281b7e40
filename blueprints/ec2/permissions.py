"""The least permissions at EC2, and which of them the account has: asked without doing anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from blueprints.cloud.client import Permission
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Market, Order
from blueprints.ec2.calls import Calls
from blueprints.ec2.changes import ABOUT
from blueprints.ec2.dryruns import GROUP, RUN, Answer, DryRuns
from blueprints.ec2.prices import LIST_REGION

LOOKS = (
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
PERMISSIONS = (*LOOKS, GROUP, RUN, *(one.name for one in ABOUT), PRODUCTS, QUOTAS, WHO)
"""All that the policy in docs/kinds/ec2.md allows; a test holds them equal."""
WITHOUT = {
    "ec2:DescribeSpotPriceHistory": "there are no spot offers",
    "ec2:GetConsoleOutput": "consoles cannot be read",
    "ec2:ModifyInstanceAttribute": "machines cannot become another type",
    "ec2:ModifyVolume": "disks cannot grow",
    "ec2:RebootInstances": "machines cannot be rebooted",
    "ec2:StartInstances": "stopped machines cannot be started",
    "ec2:StopInstances": "machines cannot be stopped",
    PRODUCTS: "there are no prices of regions that the bundled table has not",
    QUOTAS: "quotas are seen only when a create is refused",
}
"""What does not work without one; all else does."""
OF_SPOT = frozenset({"ec2:CancelSpotInstanceRequests", "ec2:DescribeSpotPriceHistory"})
_HOST_KEYS = {"ec2:GetConsoleOutput": "console"}


def permissions(calls: Calls, order: Order, *, price_list: bool, amazon: bool) -> list[Permission]:
    """Each that is needed. `price_list`: Amazon's is asked for prices; `amazon`: this is no private cloud."""
    found = {WHO: Answer(held=True), QUOTAS: _of_quotas(calls, order.location)}
    if price_list:
        found[PRODUCTS] = _of_products(calls, order.location)
    runs = DryRuns(calls, order, known=amazon)
    found |= {name: runs.look(name) for name in LOOKS}
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
    """Services that know no DryRun: one entry is read."""
    try:
        call()
    except CloudError as error:
        if error.meaning is Meaning.CREDENTIALS:
            return Answer(held=False)
        return Answer(held=None, unclear=f"it was answered {error.provider_code or error.meaning}: {error.message}")
    return Answer(held=True)
