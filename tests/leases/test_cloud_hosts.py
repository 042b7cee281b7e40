"""Hosts of emulated clouds, from request to nothing left: every instance is a real SSH server."""

from __future__ import annotations

import base64
import datetime as dt
import json
import os

import pytest

from blueprints import registry
from blueprints.models import Blueprint, RememberedError
from blueprints.offers import Account
from drydock.core import clock
from drydock.core.errors import Conflict
from leases.engine.core import installation, specs
from leases.engine.core.database import run
from leases.engine.resources import maintenance
from leases.messaging.inline import settle
from leases.models import Event, Resource
from leases.operations import callers, lifetimes
from tests.clouds.ec2.plan import Fault
from tests.leases.emulated import gone, interface, look, ready

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may make accounts for leases"),
    pytest.mark.timeout(400),
]


@pytest.fixture
def ec2(amazon):
    """Amazon's double."""
    return amazon.double


@pytest.fixture
def aws(amazon):
    """Make a blueprint on it."""
    return amazon.blueprint


@pytest.fixture
def served(aws, ask, until):
    """A lease on a machine of EC2."""
    aws()
    look()
    return ready(ask("host", cpu_millicores=2000, serve_again=True), until)


def test_a_host_is_built_used_and_gone_without_a_trace(served, ec2, machines, until):
    resource = served.resource
    assert resource.attributes["instance_type"].startswith("t3.")
    assert resource.price == resource.attributes["price"] > 0
    command = interface(served, "command")
    assert command.check(["sh", "-c", "id -un; echo $HOME"]).text.split()[0].startswith("dd")
    files = interface(served, "filesystem")
    files.write_text("note", "here")
    assert files.read_text("note") == "here"
    gone()
    assert ec2.objects() == {}
    assert machines.running == []


def test_everything_made_bears_the_proof_that_it_is_ours(served, ec2):
    there = ec2.objects()
    assert {"instances", "volumes"} <= there.keys()
    for name in (*there["instances"], *there["volumes"]):
        found = ec2.tags(name)
        assert found["drydock-resource"] == str(served.resource_id)
        assert {"drydock-installation", "drydock-epoch", "drydock-proof", "drydock-blueprint"} <= found.keys()


def test_a_lost_answer_makes_no_second_machine(aws, ec2, ask, until):
    aws()
    look()
    ec2.plan.lose("RunInstances")
    ready(ask("host"), until)
    assert len(ec2.objects()["instances"]) == 1
    gone()
    assert ec2.objects() == {}


def test_sold_out_types_zones_and_regions_are_gone_through_and_remembered(aws, ec2, ask, until):
    aws(types=["t3.micro", "t3.medium"], regions=["us-east-1"])
    look()
    for zone in ("a", "b", "c", "d", "e", "f"):
        ec2.plan.no_capacity("t3.micro", f"us-east-1{zone}")
    first = ready(ask("host", exclusive=True), until)
    assert first.resource.attributes["instance_type"] == "t3.medium"
    assert first.bounces == 0
    refused = len(ec2.asked("RunInstances"))
    second = ready(ask("host", exclusive=True), until)
    assert second.resource.attributes["instance_type"] == "t3.medium"
    assert len(ec2.asked("RunInstances")) == refused + 1
    said = " ".join(verdict["sentence"] for verdict in first.verdicts)
    assert "can build" in said
    words = set(RememberedError.objects.values_list("message", flat=True))
    assert any("do not have sufficient t3.micro capacity" in one for one in words)
    gone()
    assert ec2.objects() == {}


def test_what_the_account_refuses_waits_for_the_operator(aws, ec2, ask):
    aws()
    look()
    ec2.plan.add(
        Fault(action="RunInstances", code="UnauthorizedOperation", message="You are not authorized.", times=None)
    )
    lease = ask("host")
    settle()
    lease.refresh_from_db()
    assert (lease.state, lease.reason) == ("pending", "needs_operator")
    assert "not authorized" in lease.message


def test_a_machine_that_was_taken_back_is_noticed_by_one_listing_and_served_again(served, ec2, until):
    ec2.preempt(served.resource.facts["instance_id"])
    look("status")
    served.refresh_from_db()
    assert served.state == "broken"
    assert "reclaimed by the provider" in served.message
    ready(served.replaced_by, until)
    gone()
    assert ec2.objects() == {}


def test_what_we_stopped_is_no_death(served, until):
    maintenance.want_power(served.resource_id, "off")
    until(served.resource, power="off", seconds=120)
    look("status")
    served.refresh_from_db()
    assert (served.state, served.reason) == ("active", "ready")
    maintenance.want_power(served.resource_id, "on")
    until(served.resource, power="on", seconds=120)
    assert interface(served, "command").check(["echo", "back"]).text == "back\n"
    gone()


def test_a_machine_that_was_stopped_by_others_is_kept_for_a_while(served, ec2, until):
    ec2.power_off(served.resource.facts["instance_id"])
    look("status")
    served.refresh_from_db()
    assert (served.state, served.reason) == ("active", "machine_stopped")
    assert "The machine was stopped, but not by Drydock" in served.message
    assert "kept for 15 min" in served.message
    assert Event.objects.filter(kind="resource.stopped", resource=served.resource_id).count() == 1
    maintenance.want_power(served.resource_id, "on")
    until(served.resource, power="on", seconds=120)
    look("status")
    served.refresh_from_db()
    assert (served.state, served.reason) == ("active", "ready")
    Resource.objects.update(power_wanted="")
    ec2.power_off(served.resource.facts["instance_id"])
    look("status")
    run("UPDATE leases_resource SET facts = jsonb_set(facts, '{stopped,since}', '\"2020-01-01T00:00:00Z\"')")
    look("status")
    served.refresh_from_db()
    assert served.state == "broken"
    assert "not started again within 15 min" in served.message
    gone()
    assert ec2.objects() == {}


def test_a_machine_that_was_stopped_by_others_is_started_again_where_the_blueprint_says_so(aws, ec2, ask, until):
    aws(start_stopped=True)
    look()
    lease = ready(ask("host"), until)
    ec2.power_off(lease.resource.facts["instance_id"])
    look("status")
    until(lease.resource, power="on", seconds=120)
    look("status")
    lease.refresh_from_db()
    lease.resource.refresh_from_db()
    assert (lease.state, lease.reason, lease.resource.power_wanted) == ("active", "ready", "")
    assert "stopped" not in lease.resource.facts
    gone()


def test_ports_are_open_as_long_as_the_lease(aws, ec2, machines, ask, until):
    aws()
    look()
    lease = ready(ask("host", requirements={"ports": [8080, machines.port]}), until)
    assert [one.parameters["IpPermissions.1.FromPort"] for one in ec2.asked("AuthorizeSecurityGroupIngress")][
        -1
    ] == "8080"
    gone()
    assert ec2.asked("RevokeSecurityGroupIngress")
    lease.refresh_from_db()
    assert lease.state == "destroyed"


def test_a_lease_s_cloud_config_reaches_a_machine_of_its_own(aws, ec2, ask, until):
    aws(user_data={"packages": ["curl"]}, lease_sudo=True)
    look()
    lease = ready(ask("host", requirements={"user_data": "packages: [git]"}), until)
    given = json.loads(base64.b64decode(ec2.asked("RunInstances")[-1].parameters["UserData"]).partition(b"\n")[2])
    assert given["packages"] == ["curl", "git"]
    assert lease.resource.attributes["user_data"] == {"packages": ["git"]}
    gone()


def test_the_longest_life_of_a_machine_bounds_the_leases_on_it(aws, ec2, ask, until):
    aws(longest="2h")
    look()
    lease = ready(ask("host", ttl="1h"), until)
    left = lease.resource.dies_at - clock.now()
    assert dt.timedelta(hours=1, minutes=50) < left <= dt.timedelta(hours=2)
    longer = ask("host", ttl="3h", exclusive=True)
    settle()
    longer.refresh_from_db()
    assert longer.state == "broken"
    assert "the lease would last 3:00:00" in longer.message
    with pytest.raises(Conflict, match="exists only until"):
        lifetimes.extend(callers.caller("ada"), lease.pk, until=clock.now() + dt.timedelta(hours=3))
    asked = ec2.asked("RunInstances")[-1].parameters
    assert asked["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert "drydock-end" in base64.b64decode(asked["UserData"]).decode()


def test_secrets_of_a_machine_are_on_no_face_and_in_no_event(served):
    private = served.resource.secrets["private_key"].splitlines()[2]
    told = json.dumps(
        [served.resource.facts, served.facts, served.verdicts, list(Event.objects.values("message", "details"))]
    )
    assert private not in told
    assert "OPENSSH PRIVATE KEY" not in told


def test_what_ec2_still_lists_after_its_end_is_no_orphan(served, ec2):
    gone()
    assert ec2.asked("TerminateInstances")
    kind = registry.kind("ec2")
    view = specs.blueprint_view(Blueprint.objects.get(), secrets=True)
    account = Account(name="ec2", secrets=view.credentials["ec2"])
    assert {one.state for one in kind.observe(account, "us-east-1", installation.current().short)} == {"terminated"}
    assert kind.owned(view, installation.current().short) == []
