"""How many virtual CPUs an account may run at once, and runs, by family and market, whoever started them.

Limits are read from Service Quotas. What is used is not told there: it is counted from the running instances of the
whole account, with each type's default number of virtual CPUs. Those that are pending count here though EC2 counts them
only once they run: they will. Capacity reservations count at EC2 even while unused, and are not seen here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from blueprints.cloud.values import Market, Quota
from blueprints.ec2.calls import Answer, Calls, filters, listed
from blueprints.ec2.offers import STANDARD, family_of
from blueprints.ec2.readings import described

_D, _S = Market.ON_DEMAND, Market.SPOT
CODES: dict[str, tuple[Market, tuple[str, ...]]] = {
    "L-1216C47A": (_D, (STANDARD,)),
    "L-34B43A08": (_S, (STANDARD,)),
    "L-DB2E81BA": (_D, ("g",)),
    "L-3819A6DF": (_S, ("g",)),
    "L-417A185B": (_D, ("p", "p5", "p6")),
    "L-7212CCBC": (_S, ("p",)),
    "L-C4BD4855": (_S, ("p5",)),
    "L-7295265B": (_D, ("x",)),
    "L-E3A00192": (_S, ("x",)),
    "L-74FC7D96": (_D, ("f",)),
    "L-88CF9481": (_S, ("f",)),
    "L-1945791B": (_D, ("inf",)),
    "L-B5D1601B": (_S, ("inf",)),
    "L-2C3B7624": (_D, ("trn",)),
    "L-6B0D517C": (_S, ("trn",)),
    "L-6E869C2A": (_D, ("dl",)),
    "L-85EED4F7": (_S, ("dl",)),
    "L-43DA4232": (_D, ("u",)),
    "L-F7808C92": (_D, ("hpc",)),
}
"""Quota code -> what it limits, as linked from "On-Demand Instance quotas" and "Spot Instance quotas" of the EC2 guide
(https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-on-demand-instances.html, using-spot-limits.html)."""
_MOST_TYPES = 100


def quotas_of(calls: Calls, region: str) -> list[Quota]:
    """One for each market and family that the account has a limit for in a region."""
    limits = [one for one in _limits(calls, region) if one["QuotaCode"] in CODES]
    used = vcpus_used(calls, region)
    return [quota for one in limits for quota in _quotas(one, region, used)]


def vcpus_used(calls: Calls, region: str) -> Counter[tuple[Market, str]]:
    """Virtual CPUs of everything that is pending or running in a region, by market and family."""
    running: Counter[tuple[Market, str]] = Counter()
    up = filters(instance_state_name=["pending", "running"])
    for one in described(calls, region, Filters=up, MaxResults=1000):
        running[_S if one.get("InstanceLifecycle") == "spot" else _D, one["InstanceType"]] += 1
    sizes = dict(_sizes(calls, region, sorted({name for _, name in running})))
    used: Counter[tuple[Market, str]] = Counter()
    for (market, name), count in running.items():
        used[market, family_of(name)] += count * sizes.get(name, 0)
    return used


def _limits(calls: Calls, region: str) -> Iterator[Answer]:
    for page in calls.pages("list_service_quotas", region, service="service-quotas", ServiceCode="ec2", MaxResults=100):
        yield from page["Quotas"]


def _quotas(one: Answer, region: str, used: Counter[tuple[Market, str]]) -> Iterator[Quota]:
    market, families = CODES[one["QuotaCode"]]
    total = sum(used[market, family] for family in families)
    for family in families:
        yield Quota(
            name=one.get("QuotaName") or one["QuotaCode"],
            location=region,
            limit=float(one["Value"]),
            used=float(total),
            family=family,
            market=market,
        )


def _sizes(calls: Calls, region: str, names: list[str]) -> Iterator[tuple[str, int]]:
    for start in range(0, len(names), _MOST_TYPES):
        some = names[start : start + _MOST_TYPES]
        for one in listed(calls, "describe_instance_types", region, "InstanceTypes", InstanceTypes=some):
            yield one["InstanceType"], one["VCpuInfo"]["DefaultVCpus"]
