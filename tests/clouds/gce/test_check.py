"""Before anything is made: what the service account may do, where machines would stand, and what there is room for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from blueprints.gce import permissions
from blueprints.gce.client import Gce
from blueprints.gce.config import Credential
from blueprints.gce.kind import GceHost
from blueprints.specs import BlueprintView, Problem
from tests.clouds.gce.conftest import order
from tests.clouds.gce.double import Double

PAGE = Path(__file__).parents[3] / "docs/kinds/gce.md"
HERE = "us-central1"
TESTED = "cloudresourcemanager.projects.testIamPermissions"


def problems(double: Double, secrets: dict[str, Any] | None = None, **config: Any) -> list[Problem]:
    """Of a blueprint."""
    kind = GceHost()
    said = {"credential": "gcp", "regions": [HERE], "types": ["e2-*"], **config}
    view = BlueprintView(
        id=1, name="gcp", kind="gce", generation=1, config=kind.Config.model_validate(said),
        credentials={"gcp": {**double.credential, **(secrets or {})}},
    )  # fmt: skip
    return list(kind.check_blueprint(view))


def fatal(told: Sequence[Problem]) -> list[Problem]:
    """Those that keep a blueprint disabled."""
    return [one for one in told if one.fatal]


def test_the_permissions_are_those_of_the_page() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    role = next(one for one in map(yaml.safe_load, blocks) if "includedPermissions" in one)
    assert list(permissions.PERMISSIONS) == role["includedPermissions"]
    assert set(permissions.WITHOUT) <= set(permissions.PERMISSIONS)
    assert len(permissions.PERMISSIONS) <= 100, "more take two questions"


def test_an_account_with_all_of_them_lacks_nothing_and_nothing_is_made(double: Double, gce: Gce) -> None:
    assert {one.held for one in gce.permissions(order())} == {True}
    assert problems(double) == []
    changing = {one.method for one in double.seen if one.body}
    assert changing == {TESTED}
    assert double.objects() == {}


def test_an_agents_image_is_doubted_to_take_a_host_key(double: Double) -> None:
    said = problems(double, ready_by="agent")
    assert [(one.field, one.fatal) for one in said] == [("host_key", False)]
    assert "host_key: injected requires cloud-init" in said[0].message
    assert "guest_attributes" in said[0].message
    assert problems(double, ready_by="agent", host_key="guest_attributes") == []


def test_each_that_is_lacking_is_named(double: Double, gce: Gce) -> None:
    for name in permissions.PERMISSIONS:
        double.lacking = {name}
        assert {one.name for one in gce.permissions(order()) if one.held is False} == {name}


def test_those_that_machines_need_keep_a_blueprint_disabled(double: Double) -> None:
    double.lacking = {"compute.instances.create", "compute.firewalls.create", "compute.instances.reset"}
    first, second = problems(double)
    assert (first.field, first.fatal) == ("credential", True)
    assert first.message == (
        "The account lacks compute.firewalls.create, compute.instances.create: machines cannot be created, reached or "
        "terminated. Grant the permission: docs/kinds/gce.md lists all required permissions."
    )
    assert (second.field, second.fatal) == ("credential", False)
    assert "lacks compute.instances.reset: machines cannot be rebooted." in second.message


def test_what_the_host_key_comes_by_is_needed_then(double: Double) -> None:
    double.lacking = {"compute.instances.getGuestAttributes"}
    assert fatal(problems(double)) == []
    (told,) = fatal(problems(double, host_key="guest_attributes"))
    assert "compute.instances.getGuestAttributes: machines cannot be created, reached" in told.message


def test_machines_without_a_public_address_need_no_permission_for_one(double: Double) -> None:
    double.lacking = {"compute.subnetworks.useExternalIp"}
    assert len(fatal(problems(double))) == 1
    assert problems(double, public_address=False) == []


@pytest.mark.parametrize("status", [403, 404, 503])
def test_where_nobody_answers_it_is_said_and_refuses_nothing(double: Double, status: int) -> None:
    double.faults.refuse(TESTED, status, "SERVICE_DISABLED", "Cloud Resource Manager API has not been used.", times=9)
    (told,) = problems(double)
    assert (told.field, told.fatal) == ("credential", False)
    assert told.message.startswith("Could not verify whether the account has compute.acceleratorTypes.list, ")
    assert "Cloud Resource Manager API has not been used" in told.message


def test_an_endpoint_of_one_s_own_sends_no_token_to_google(double: Double) -> None:
    (told,) = problems(double, {"resource_manager": ""})
    assert not told.fatal
    assert "URL of Cloud Resource Manager is not set (resource_manager)" in told.message
    assert double.calls(TESTED) == []


def test_google_s_own_address_is_the_usual_one() -> None:
    usual = permissions.Permissions(Credential(project="drydock-test", environment=True), 1.0)
    assert usual._url == "https://cloudresourcemanager.googleapis.com"


def test_an_account_that_may_not_even_look_about_hears_what_else_it_lacks(double: Double) -> None:
    double.lacking = {"compute.regions.list", "compute.instances.delete"}
    double.faults.refuse("compute.regions.list", 403, "forbidden", "Required 'compute.regions.list' permission")
    first, second = problems(double)
    assert "compute.regions.list" in first.message
    assert "compute.instances.delete, compute.regions.list" in second.message


def test_a_network_that_is_not_there_is_named_with_those_that_are(double: Double) -> None:
    assert problems(double, network="default") == []
    (told,) = problems(double, network="nowhere")
    assert (told.field, told.fatal) == ("network", True)
    assert "no network 'nowhere'. Available: default, prod." in told.message
    del double.world.catalogue["networks"]["default"]
    (told,) = problems(double)
    assert "no network 'default'. Available: prod." in told.message


def test_a_network_that_chooses_no_subnet_needs_one_named(double: Double) -> None:
    (told,) = problems(double, network="prod")
    assert (told.field, told.fatal) == ("network", True)
    assert "mode custom" in told.message
    assert "in us-central1: regions/us-central1/subnetworks/inner." in told.message
    assert problems(double, network="regions/us-central1/subnetworks/inner") == []
    double.world.catalogue["networks"]["old"] = {"auto": False, "range": "10.240.0.0/16", "subnets": {}}
    assert problems(double, network="old") == []
    double.world.catalogue["networks"]["default"]["subnets"] = {"default": ["us-east1"]}
    (told,) = problems(double)
    assert "has no subnet in us-central1" in told.message


def test_a_subnet_has_to_be_there_and_in_the_region(double: Double) -> None:
    (told,) = problems(double, network="regions/us-central1/subnetworks/other")
    assert (told.field, told.fatal) == ("network", True)
    assert "no subnet other in us-central1. Available: regions/us-central1/subnetworks/default, " in told.message
    told = fatal(problems(double, network="regions/us-central1/subnetworks/inner", regions=[HERE, "us-east1"]))[0]
    assert "is in us-central1, so machines in us-east1 cannot use it" in told.message


def test_of_a_subnet_elsewhere_only_a_yes_tells(double: Double) -> None:
    shared = "projects/the-host/regions/us-central1/subnetworks/shared"
    double.lacking = {*permissions.OF_NETWORK}
    double.elsewhere = {"the-host": {*permissions.OF_NETWORK}}
    (told,) = problems(double, network=shared)
    assert (told.field, told.fatal) == ("credential", False)
    assert told.message.startswith("The network in ")
    assert "could not be read" in told.message
    double.elsewhere = {"the-host": set()}
    assert fatal(problems(double, network=shared)) == []
    said = [one.message for one in problems(double, network=shared)]
    assert any("compute.subnetworks.use" in one and "but the subnet may" in one for one in said)


def test_a_full_quota_is_told_with_its_figures(double: Double) -> None:
    double.quotas[HERE]["CPUS"] = 1
    (told,) = problems(double)
    assert (told.field, told.fatal) == ("types", False)
    assert "us-central1: the provider quotas do not allow a single machine; the smallest instance type" in told.message
    assert "CPUS has 0 of 1 vcpus in use" in told.message
    assert problems(double, types=["n2-*"]) == []
    assert problems(double, types=["e2-*", "n2-*"]) == []


def test_a_type_that_is_not_there_is_told(double: Double) -> None:
    (told,) = problems(double, types=["z9-*"])
    assert (told.field, told.fatal) == ("types", True)
    assert "us-central1 has no type with types z9-*" in told.message
    told = problems(double, types=["z9-*"], regions=[HERE, "us-east1"])[0]
    assert not told.fatal, "another region may have it"
