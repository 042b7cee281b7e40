"""Before anything is made: what we may do, where machines would stand, and what there is room for."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from blueprints.azure import permissions
from blueprints.azure.kind import AzureHost
from blueprints.specs import BlueprintView, Problem
from tests.clouds.azure.conftest import Bench, order
from tests.clouds.azure.double import GROUP, SUBSCRIPTION, AzureDouble
from tests.clouds.azure.ground import Grant

PAGE = Path(__file__).parents[3] / "docs/kinds/azure.md"
WHOLE = f"/subscriptions/{SUBSCRIPTION}"
OURS = f"{WHOLE}/resourceGroups/{GROUP}"
IN_ALL = " (in the whole subscription)"


def documented() -> tuple[list[str], list[str]]:
    """The actions of the role for the group and of that for the subscription, on the kind's page."""
    blocks = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    roles = {one["Name"]: one["Actions"] for one in map(json.loads, blocks) if "AssignableScopes" in one}
    return roles["Drydock hosts"], roles["Drydock inventory"]


def grant(double: AzureDouble, *, lacking: Sequence[str] = (), of_all: Sequence[str] = ()) -> None:
    """The documented roles, without some actions of the group's or the subscription's."""
    hosts, inventory = documented()
    double.ground.grants = [
        Grant(OURS, [one for one in hosts if one not in lacking]),
        Grant(WHOLE, [one for one in inventory if one not in of_all]),
    ]


def problems(double: AzureDouble, **config: Any) -> list[Problem]:
    """Of a blueprint."""
    kind = AzureHost()
    said = {"credential": "azure", "regions": ["eastus"], "types": ["Standard_D2s_v5"], **config}
    view = BlueprintView(
        id=1, name="azure", kind="azure", generation=1, config=kind.Config.model_validate(said),
        credentials={"azure": double.credential()},
    )  # fmt: skip
    return list(kind.check_blueprint(view))


def fatal(told: Sequence[Problem]) -> list[Problem]:
    """Those that keep a blueprint disabled."""
    return [one for one in told if one.fatal]


def test_the_permissions_are_those_of_the_page() -> None:
    hosts, inventory = documented()
    assert list(permissions.IN_GROUP) == hosts
    assert list(permissions.IN_SUBSCRIPTION) == inventory
    assert set(permissions.WITHOUT) <= {*hosts, *inventory}


def test_with_the_documented_roles_nothing_is_lacking_and_nothing_is_made(bench: Bench) -> None:
    grant(bench.double)
    assert {one.held for one in bench.azure.permissions(order())} == {True}
    assert problems(bench.double) == []
    assert {one.method for one in bench.double.calls} == {"GET"}
    assert bench.double.objects() == {}


def test_each_that_is_lacking_is_named(bench: Bench) -> None:
    for name in permissions.IN_GROUP:
        grant(bench.double, lacking=[name])
        lacking = {one.name for one in bench.azure.permissions(order()) if one.held is False}
        also_read_in_all = name in permissions.IN_SUBSCRIPTION
        assert lacking == (set() if also_read_in_all else {name})
    for name in permissions.IN_SUBSCRIPTION[1:]:
        grant(bench.double, of_all=[name])
        lacking = {one.name for one in bench.azure.permissions(order()) if one.held is False}
        assert lacking == {name + IN_ALL}


@pytest.mark.parametrize(
    ("actions", "but", "lacking"),
    [
        (["*"], [], []),
        (["*/read", "microsoft.compute/*", "Microsoft.Network/*", "Microsoft.Resources/tags/*"], [], []),
        (["*"], ["Microsoft.Network/publicIPAddresses/*"], ["publicIPAddresses"]),
        (["*"], ["*/delete"], ["delete"]),
        (["Microsoft.Network/*", "*/read", "Microsoft.Resources/tags/write"], [], ["Microsoft.Compute"]),
    ],
)
def test_roles_with_wildcards_are_understood(
    bench: Bench, actions: list[str], but: list[str], lacking: list[str]
) -> None:
    bench.double.ground.grants = [Grant(WHOLE, actions, but)]
    found = [one.name for one in bench.azure.permissions(order()) if one.held is False]
    assert bool(found) == bool(lacking)
    assert all(any(word in name for word in lacking) for name in found)


def test_what_one_role_leaves_out_another_may_grant(bench: Bench) -> None:
    bench.double.ground.grants = [Grant(WHOLE, ["*"], ["*/delete"]), Grant(OURS, ["*/delete"])]
    bench.double.answers.page_size = 1
    assert {one.held for one in bench.azure.permissions(order())} == {True}


def test_those_that_machines_need_keep_a_blueprint_disabled(double: AzureDouble) -> None:
    grant(double, lacking=["Microsoft.Compute/virtualMachines/write", "Microsoft.Compute/virtualMachines/start/action"])
    first, second = problems(double)
    assert (first.field, first.fatal) == ("credential", True)
    assert first.message == (
        "The account lacks Microsoft.Compute/virtualMachines/write: machines cannot be created, reached or terminated. "
        "Grant the permission: docs/kinds/azure.md lists all required permissions."
    )
    assert (second.field, second.fatal) == ("credential", False)
    assert "stopped machines cannot be started" in second.message


def test_what_the_host_key_comes_by_is_needed_then(double: AzureDouble) -> None:
    grant(double, lacking=["Microsoft.Compute/virtualMachines/runCommand/action"])
    assert fatal(problems(double)) == []
    (told,) = fatal(problems(double, host_key="run_command"))
    assert "runCommand/action: machines cannot be created, reached" in told.message


def test_what_is_not_used_is_not_needed(double: AzureDouble) -> None:
    network = double.ground.put_network("mine", "eastus", "inner")
    lacking = ["Microsoft.Network/virtualNetworks/write", "Microsoft.Network/publicIPAddresses/write"]
    grant(double, lacking=lacking)
    assert len(fatal(problems(double))) == 1
    assert problems(double, network=f"{network}/subnets/inner", public_address=False) == []


def test_joining_a_subnet_may_be_granted_there_alone(double: AzureDouble) -> None:
    subnet = f"{double.ground.put_network('mine', 'eastus', 'inner')}/subnets/inner"
    grant(double, lacking=[permissions.JOIN])
    (told,) = fatal(problems(double, network=subnet))
    assert f"lacks {permissions.JOIN} (of the subnet)" in told.message
    double.ground.grants.append(Grant(subnet, [permissions.JOIN]))
    assert problems(double, network=subnet) == []


def test_where_that_may_not_be_read_it_is_said_and_refuses_nothing(double: AzureDouble) -> None:
    grant(double, of_all=["Microsoft.Authorization/permissions/read"])
    told = problems(double)
    assert fatal(told) == []
    assert {one.field for one in told} == {"credential"}
    assert told[0].message.startswith("Could not verify whether the account has Microsoft.Compute/disks/delete")
    assert "Microsoft.Authorization/permissions/read" in told[0].message


def test_a_subnet_that_is_not_there_is_named_with_those_that_are(double: AzureDouble) -> None:
    network = double.ground.put_network("mine", "eastus", "inner", "outer")
    assert problems(double, network=f"{network}/subnets/inner") == []
    (told,) = problems(double, network=f"{network}/subnets/other")
    assert (told.field, told.fatal) == ("network", True)
    assert f"has no subnet other. Available: {network}/subnets/inner, {network}/subnets/outer." in told.message
    (told,) = problems(double, network=f"{OURS}/providers/Microsoft.Network/virtualNetworks/gone/subnets/a")
    assert "The resource group drydock-tests has no network gone." in told.message
    assert f"Available in eastus in the resource group: {network}/subnets/inner" in told.message
    (told,) = [one for one in problems(double, network="inner") if one.field == "network"]
    assert "'inner' is not a subnet's resource id (/subscriptions/..." in told.message


def test_a_network_of_another_region_does_not_fit(double: AzureDouble) -> None:
    network = double.ground.put_network("mine", "westeurope", "inner")
    (told,) = problems(double, network=f"{network}/subnets/inner")
    assert (told.field, told.fatal) == ("network", True)
    assert "mine is in westeurope, so machines in eastus cannot use it. Allow only westeurope" in told.message


def test_a_network_elsewhere_that_may_not_be_read_refuses_nothing(double: AzureDouble) -> None:
    there = f"{WHOLE}/resourceGroups/elsewhere/providers/Microsoft.Network/virtualNetworks/a/subnets/b"
    (told,) = fatal(problems(double, network=there))
    assert "resource group elsewhere has no network a" in told.message
    double.fail(before=True, path="/virtualNetworks/", status=403, code="AuthorizationFailed", times=9)
    assert fatal(problems(double, network=there)) == []
    (told,) = [one for one in problems(double, network=there) if "The network in" in one.message]
    assert "AuthorizationFailed" in told.message
    other = there.replace(SUBSCRIPTION, "99999999-1111-2222-3333-444444444444")
    assert any("instead of the credential's" in one.message for one in problems(double, network=other))


def test_the_network_that_is_made_must_be_ours_where_it_is_there(double: AzureDouble) -> None:
    double.ground.put_network("drydock-eastus", "eastus", "others")
    (told,) = problems(double)
    assert (told.field, told.fatal) == ("network", True)
    assert "drydock-eastus has no subnet hosts" in told.message
    double.ground.put_network("drydock-eastus", "eastus", "hosts")
    assert problems(double) == []


def test_a_full_quota_is_told_with_its_figures(double: AzureDouble) -> None:
    double.limit("eastus", "cores", 1)
    (told,) = problems(double)
    assert (told.field, told.fatal) == ("types", False)
    assert "eastus: the provider quotas do not allow a single machine; the smallest instance type is" in told.message
    assert "cores in words has 0 of 1 vcpus in use" in told.message
    double.limit("eastus", "cores", 2)
    assert problems(double) == []
    double.limit("eastus", "PublicIPAddresses", 0)
    (told,) = problems(double)
    assert "0 of 0 addresses in use" in told.message
    assert problems(double, public_address=False) == []


def test_a_type_that_is_not_there_is_told(double: AzureDouble) -> None:
    (told,) = problems(double, types=["Standard_Z9*"])
    assert (told.field, told.fatal) == ("types", True)
    assert "eastus has no type with types Standard_Z9*" in told.message
