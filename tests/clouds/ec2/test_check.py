"""Before anything is made: what the account may do, where machines would stand, and what it has room for."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from blueprints.cloud.values import Market
from blueprints.ec2 import permissions
from blueprints.ec2.client import Ec2
from blueprints.ec2.kind import Ec2Host
from blueprints.specs import BlueprintView, Problem
from tests.clouds.ec2 import policy
from tests.clouds.ec2.double import Double
from tests.clouds.ec2.orders import DEBIAN, made, order

PAGE = Path(__file__).parents[3] / "docs/kinds/ec2.md"
HERE = "us-east-1"


def documented() -> list[dict[str, Any]]:
    """The policy on the kind's page."""
    blocks = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    found = next(json.loads(one) for one in blocks if '"Statement"' in one)
    statements: list[dict[str, Any]] = found["Statement"]
    return statements


def without(statements: Sequence[dict[str, Any]], action: str) -> list[dict[str, Any]]:
    """The same policy lacking one action."""
    left = []
    for one in statements:
        actions = [one["Action"]] if isinstance(one["Action"], str) else one["Action"]
        if kept := [name for name in actions if name != action]:
            left.append({**one, "Action": kept})
    return left


def problems(double: Double, **config: Any) -> list[Problem]:
    """Of a blueprint."""
    kind, secrets = Ec2Host(), {**double.secrets(), "price_list": False, "regions": [HERE]}
    said = {"credential": "aws", "regions": [HERE], "image": {"id": DEBIAN}, "types": ["t3.*"], **config}
    view = BlueprintView(
        id=1, name="aws", kind="ec2", generation=1, config=kind.Config.model_validate(said),
        credentials={"aws": secrets},
    )  # fmt: skip
    return list(kind.check_blueprint(view))


def fatal(told: Sequence[Problem]) -> list[Problem]:
    """Those that keep a blueprint disabled."""
    return [one for one in told if one.fatal]


def held(ec2: Ec2, **more: Any) -> dict[str, bool | None]:
    """Permission -> whether the account has it."""
    return {one.name: one.held for one in ec2.permissions(order(**more))}


def test_the_permissions_are_those_of_the_page() -> None:
    on_the_page = {name for one in documented() for name in policy._several(one["Action"])}
    assert sorted(permissions.PERMISSIONS) == sorted(on_the_page)
    assert set(permissions.WITHOUT) <= on_the_page


def test_a_user_who_may_everything_lacks_nothing(double: Double, ec2: Ec2) -> None:
    made(ec2, order(market=Market.SPOT))
    assert set(held(ec2, market=Market.SPOT).values()) == {True}
    assert problems(double) == []


def test_nothing_is_made_changed_or_asked_for_in_earnest(double: Double, ec2: Ec2) -> None:
    instance = made(ec2, order())
    before, first = double.objects(), len(double.requests)
    assert fatal(problems(double, markets=["spot", "on_demand"])) == []
    changing = [one for one in double.requests[first:] if not one.action.startswith(("Describe", "Get", "List"))]
    assert {one.parameters.get("DryRun") for one in changing} == {"true"}
    assert {"RunInstances", "TerminateInstances", "CreateSecurityGroup"} <= {one.action for one in changing}
    assert double.objects() == before
    found = ec2.instance(HERE, "", instance.key, instance.id)
    assert found is not None
    assert found.state == "running"


def test_with_the_documented_policy_nothing_is_lacking(double: Double, ec2: Ec2) -> None:
    double.policy = documented()
    found = held(ec2, market=Market.SPOT)
    assert False not in found.values(), "before the first machine a no about others proves nothing"
    assert {name for name, one in found.items() if one is None} == {
        "ec2:RunInstances", "ec2:TerminateInstances", "ec2:StartInstances", "ec2:StopInstances", "ec2:RebootInstances",
        "ec2:GetConsoleOutput", "ec2:ModifyInstanceAttribute", "ec2:ModifyVolume", "ec2:DeleteVolume",
        "ec2:DeleteNetworkInterface", "ec2:DeleteSecurityGroup", "ec2:CancelSpotInstanceRequests", "ec2:CreateTags",
        "ec2:AuthorizeSecurityGroupIngress", "ec2:RevokeSecurityGroupIngress",
    }  # fmt: skip
    (told,) = problems(double)
    assert not told.fatal
    assert "ec2:RunInstances" in told.message
    assert "once an object that belongs to Drydock exists" in told.message
    made(ec2, order(market=Market.SPOT))
    assert set(held(ec2, market=Market.SPOT).values()) == {True}
    assert problems(double) == []


def test_one_that_the_documented_policy_lacks_is_named(double: Double, ec2: Ec2) -> None:
    made(ec2, order(market=Market.SPOT))
    for action in permissions.PERMISSIONS:
        double.policy = without(documented(), action)
        lacking = {name for name, one in held(ec2, market=Market.SPOT).items() if one is False}
        assert lacking == ({action} if action != permissions.WHO else set())


@pytest.mark.parametrize("action", ["ec2:RunInstances", "ec2:CreateSecurityGroup", "ec2:DescribeVolumes"])
def test_one_that_machines_need_is_lacking_in_an_empty_account(double: Double, action: str) -> None:
    double.policy = policy.everything_but(action)
    (told,) = fatal(problems(double))
    assert told.field == "credential"
    assert told.message == (
        f"The account lacks {action}: machines cannot be created, reached or terminated. "
        "Grant the permission: docs/kinds/ec2.md lists all required permissions."
    )


def test_one_without_which_machines_come_and_go_is_a_warning(double: Double, ec2: Ec2) -> None:
    made(ec2, order())
    double.policy = policy.everything_but("ec2:RebootInstances", "ec2:GetConsoleOutput", permissions.QUOTAS)
    told = problems(double)
    assert [one.fatal for one in told] == [False] * 4
    assert "ec2:GetConsoleOutput: the console output cannot be read" in told[0].message
    assert "ec2:RebootInstances: machines cannot be rebooted" in told[1].message
    assert permissions.QUOTAS in told[2].message
    assert told[3].message.startswith("The quotas in ")
    assert "could not be read" in told[3].message
    (needed,) = fatal(problems(double, host_key="console"))
    assert "ec2:GetConsoleOutput: machines cannot be created, reached" in needed.message


def test_an_account_that_may_not_even_look_about_hears_what_else_it_lacks(double: Double) -> None:
    double.policy = policy.everything_but("ec2:DescribeRegions", "ec2:CreateSecurityGroup")
    first, second = problems(double)
    assert "ec2:DescribeRegions" in first.message
    assert "ec2:CreateSecurityGroup" in second.message
    double.keys.clear()
    (only,) = problems(double)
    assert only.field == "credential"


def test_another_installation_s_things_prove_nothing_against_us(double: Double, ec2: Ec2) -> None:
    made(ec2, order(tags={"drydock-installation": "other"}))
    made(ec2, order())
    ours = {"StringEquals": {"aws:ResourceTag/drydock-installation": "abc"}}
    acts = next(one for one in documented() if one["Sid"] == "ActOnWhatIsOurs")
    double.policy = [*without(documented(), "ec2:TerminateInstances"), {**acts, "Condition": ours}]
    assert held(ec2)["ec2:TerminateInstances"] is True


def test_a_cloud_that_knows_no_dry_run_is_asked_to_change_nothing(double: Double, ec2: Ec2) -> None:
    double.knows_dry_run = False
    found = {one.name: one for one in ec2.permissions(order())}
    assert found["ec2:DescribeVolumes"].held is True
    assert found["ec2:RunInstances"].unclear == "this API does not support DryRun"
    assert all(one.action.startswith(("Describe", "Get", "List")) for one in double.requests)
    assert double.objects() == {}


def test_a_subnet_that_is_not_there_is_named_with_those_that_are(double: Double, ec2: Ec2) -> None:
    (told,) = [one for one in problems(double, network="subnet-0badc0de") if one.field == "network"]
    assert told.fatal
    assert "us-east-1 has no subnet subnet-0badc0de. Available: subnet-" in told.message
    assert "us-east-1a, 172.31" in told.message
    there = ec2.connection.call("describe_subnets", HERE)["Subnets"]
    one = next(it for it in there if it["AvailabilityZone"] == "us-east-1b")
    assert fatal(problems(double, network=one["SubnetId"])) == []
    (told,) = fatal(problems(double, network=one["SubnetId"], zones=["us-east-1a"]))
    assert told.field == "network"
    assert "is in us-east-1b, but the blueprint allows only us-east-1a" in told.message


def test_without_a_default_network_one_has_to_be_named(double: Double, ec2: Ec2) -> None:
    subnet = ec2.connection.call("describe_subnets", HERE)["Subnets"][0]
    double.without_network(HERE)
    told = [one for one in problems(double) if one.field == "network"]
    assert [one.message for one in told] == ["us-east-1 has no default VPC. Set network to a subnet. Available: none."]
    assert subnet["SubnetId"] not in told[0].message


def test_a_zone_without_a_default_subnet_is_named(double: Double, ec2: Ec2) -> None:
    there = ec2.connection.call("describe_subnets", HERE)["Subnets"]
    gone = next(it for it in there if it["AvailabilityZone"] == "us-east-1a")
    ec2.connection.call("delete_subnet", HERE, SubnetId=gone["SubnetId"])
    assert fatal(problems(double, zones=["us-east-1b", "eu-west-1a"])) == []
    (told,) = fatal(problems(double, zones=["us-east-1a", "us-east-1b"]))
    assert "has no default subnet in us-east-1a" in told.message


def test_a_full_quota_is_told_with_its_figures(double: Double, ec2: Ec2) -> None:
    name = "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances"
    double.limits["L-1216C47A"] = (name, 3.0)
    assert "quotas do not allow" not in str(problems(double))
    made(ec2, order())
    (told,) = problems(double)
    assert (told.field, told.fatal) == ("types", False)
    assert told.message.startswith(
        "us-east-1: the provider quotas do not allow a single machine; the smallest instance type is"
    )
    assert f"{name} has 2 of 3 vcpus in use" in told.message
    assert "quotas do not allow" not in str(problems(double, markets=["on_demand", "spot"])), "there is room for spot"


def test_a_type_that_is_not_there_is_told(double: Double) -> None:
    (told,) = [one for one in problems(double, types=["z9.*"]) if one.field == "types"]
    assert told.fatal
    assert "us-east-1 has no type with types z9.*, arch x86_64, markets on_demand" in told.message
    (told,) = [one for one in problems(double, types=["m6g.*"]) if one.field == "types"]
    assert not told.fatal, "a lease may require arm64"
