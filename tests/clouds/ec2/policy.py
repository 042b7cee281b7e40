"""Amazon's IAM as far as the documented policy needs it: which calls of one user a policy allows.

Sources: "Actions, resources, and condition keys for Amazon EC2" (service authorization reference) for the resources
of an action, "Grant permission to tag resources during creation" for CreateTags, and the policy evaluation logic: what
no statement allows is refused. A call is allowed only if it is for all of its resources.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Statement = Mapping[str, Any]
Tags = Mapping[str, str]
SORTS = {
    "i": "instance", "vol": "volume", "eni": "network-interface", "sg": "security-group",
    "sir": "spot-instances-request", "subnet": "subnet", "vpc": "vpc",
}  # fmt: skip
LAUNCHED = ("instance", "network-interface", "volume")


@dataclass(frozen=True, kw_only=True)
class Thing:
    """One resource that a call is about: an id or `*`, with the tags that it has and those that it gets."""

    sort: str
    id: str = "*"
    tags: Tags = field(default_factory=dict)
    wanted: Tags = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One permission that a call needs. `by`: the call that tags what it makes."""

    action: str
    things: Sequence[Thing]
    by: str = ""


def everything_but(*actions: str) -> list[Statement]:
    """A policy that lacks only these."""
    return [{"Effect": "Allow", "NotAction": list(actions), "Resource": "*"}]


def refusal(policy: Sequence[Statement], steps: Sequence[Step], account: str, region: str) -> str:
    """What Amazon says to a call; empty where it is allowed."""
    for step in steps:
        for thing in step.things:
            arn = f"arn:aws:ec2:{region}:{'' if thing.sort == 'image' else account}:{thing.sort}/{thing.id}"
            arn = arn if thing.sort else "*"
            if not any(_allows(one, step, thing, arn) for one in policy):
                return (
                    "You are not authorized to perform this operation. "
                    f"User: arn:aws:iam::{account}:user/drydock is not authorized to perform: {step.action} "
                    f"on resource: {arn} because no identity-based policy allows the {step.action} action. "
                    "Encoded authorization failure message: bm90IHJlYWQ"
                )
    return ""


def _allows(one: Statement, step: Step, thing: Thing, arn: str) -> bool:
    named = any(fnmatch.fnmatchcase(step.action, it) for it in _several(one.get("Action", ())))
    if "NotAction" in one:
        named = step.action not in one["NotAction"]
    there = any(fnmatch.fnmatchcase(arn, it) or it == "*" for it in _several(one["Resource"]))
    return named and there and all(
        _holds(operator, _value(key, step, thing), values)
        for operator, wanted in one.get("Condition", {}).items()
        for key, values in wanted.items()
    )  # fmt: skip


def _value(key: str, step: Step, thing: Thing) -> str | None:
    sort, _, tag = key.partition("/")
    held = {"aws:ResourceTag": thing.tags.get(tag), "aws:RequestTag": thing.wanted.get(tag)}
    held["ec2:CreateAction"] = step.by or None
    return held[sort]


def _holds(operator: str, value: str | None, wanted: Any) -> bool:
    if operator == "Null":
        return (value is None) == (wanted == "true")
    assert operator == "StringEquals", operator
    return value in _several(wanted)


def _several(given: Any) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


def steps(service: str, action: str, given: Mapping[str, str], tags: Callable[[str], Tags]) -> list[Step]:
    """What a call needs. `given`: its flat parameters; `tags`: those of an id."""
    name = f"{service}:{action}"
    if name == "sts:GetCallerIdentity":  # nobody needs a permission for that
        return []
    if service != "ec2" or action.startswith("Describe"):
        return [Step(action=name, things=[Thing(sort="")])]
    if action == "RunInstances":
        return _tagging(Step(action=name, things=list(_launched(given, tags))), action)
    if action == "CreateSecurityGroup":
        made = Thing(sort="security-group", wanted=_wanted(given).get("security-group", {}))
        return _tagging(Step(action=name, things=[Thing(sort="vpc", id=given.get("VpcId", "*")), made]), action)
    ids = [value for key, value in given.items() if value.partition("-")[0] in SORTS and "Filter" not in key]
    about = [Thing(sort=SORTS[it.partition("-")[0]], id=it, tags=tags(it)) for it in ids]
    return [Step(action=name, things=about or [Thing(sort="")])]


def _launched(given: Mapping[str, str], tags: Callable[[str], Tags]) -> Iterator[Thing]:
    """In the order in which Amazon seems to look: what is made, then what it stands on."""
    wanted = _wanted(given)
    spot = given.get("InstanceMarketOptions.MarketType") == "spot"
    for sort in (*LAUNCHED, *(("spot-instances-request",) if spot else ())):
        yield Thing(sort=sort, wanted=wanted.get(sort, {}))
    yield Thing(sort="image", id=given.get("ImageId", "*"))
    yield Thing(sort="subnet", id=given.get("NetworkInterface.1.SubnetId", "*"))
    for key, value in given.items():
        if key.startswith(("SecurityGroupId.", "NetworkInterface.1.SecurityGroupId.")):
            yield Thing(sort="security-group", id=value, tags=tags(value))


def _tagging(making: Step, action: str) -> list[Step]:
    made = [one for one in making.things if one.wanted]
    return [making, Step(action="ec2:CreateTags", things=made, by=action)] if made else [making]


def _wanted(given: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Sort -> the tags that a call's TagSpecifications give."""
    found: dict[str, dict[str, str]] = {}
    for key, sort in given.items():
        begin, _, last = key.rpartition(".")
        if key.startswith("TagSpecification.") and last == "ResourceType":
            numbers = [
                one.rpartition(".")[0] for one in given if one.startswith(f"{begin}.Tag.") and one.endswith("Key")
            ]
            found[sort] = {given[f"{one}.Key"]: given.get(f"{one}.Value", "") for one in numbers}
    return found
