"""The same of every cloud: a host is built, used and gone; nothing is made twice; the cheapest of all is found."""

from __future__ import annotations

import os
from contextlib import ExitStack

import pytest

from blueprints.models import Listing
from drydock.core import clock
from interfaces.keys import new_key_pair
from leases.messaging.inline import settle
from leases.models import Event, Lease, Resource, Run
from tests.leases.emulated import CLOUDS, gone, interface, look, ready

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may make accounts for leases"),
    pytest.mark.timeout(400),
]


def test_a_host_is_built_used_and_gone_without_a_trace(cloud, machines, ask, until):
    cloud.blueprint()
    look()
    lease = ready(ask("host", cpu_millicores=2000), until)
    host = lease.resource
    assert host.attributes["vcpus"] >= 2
    assert host.price == host.attributes["price"] > 0
    assert host.attributes["continent"]
    command = interface(lease, "command")
    assert command.check(["sh", "-c", "id -un"]).text.startswith("dd")
    files = interface(lease, "filesystem")
    files.write_text("note", "here")
    assert files.read_text("note") == "here"
    assert Listing.objects.filter(boot_seconds__gt=0).count() == 1
    gone()
    assert cloud.double.objects() == {}
    assert machines.running == []


def test_a_lost_answer_makes_no_second_machine(cloud, machines, ask, until):
    cloud.blueprint()
    look()
    cloud.lose()
    ready(ask("host"), until)
    assert len(machines.running) == 1
    gone()
    assert cloud.double.objects() == {}


SOURCES = {"ec2": "console", "gce": "guest_attributes", "azure": "run_command"}


def test_the_host_key_that_a_guest_has_made_is_read_and_pinned(cloud, machines, ask, until):
    cloud.blueprint(host_key=SOURCES[cloud.kind])
    look()
    lease = ready(ask("host"), until)
    (key,) = lease.resource.facts["host_keys"]
    assert key == " ".join(machines.host_key(machines.running[0]).split()[:2])
    assert "host_private" not in lease.resource.secrets
    assert interface(lease, "command").check(["echo", "here"]).text == "here\n"
    gone()
    assert cloud.double.objects() == {}


def test_a_machine_with_another_host_key_than_its_cloud_tells_is_refused(cloud, machines, ask):
    machines.lies = new_key_pair("another").public
    cloud.blueprint(host_key=SOURCES[cloud.kind])
    look()
    ask("host")
    settle()
    look("status")
    end = clock.monotonic() + 60
    while not Event.objects.filter(message__contains="not the pinned one").exists():
        assert clock.monotonic() < end
        Run.objects.update(due_at="2020-01-01T00:00Z")
        settle()
    assert not Lease.objects.filter(state="active").exists()
    gone()
    assert cloud.double.objects() == {}


def test_without_quota_nothing_is_made(cloud, machines, ask):
    cloud.fill()
    cloud.blueprint()
    look()
    lease = ask("host")
    settle()
    lease.refresh_from_db()
    assert (lease.state, lease.reason) == ("pending", "waiting_offer")
    assert "is exhausted: " in lease.message
    assert "in use" in lease.message
    assert not Resource.objects.exists()
    assert cloud.double.objects() == {}


def test_a_request_that_is_cancelled_while_it_is_built_leaves_nothing(cloud, machines, ask):
    cloud.blueprint()
    look()
    lease = ask("host")
    settle()
    lease.refresh_from_db()
    assert lease.state == "acquired"
    gone()
    assert cloud.double.objects() == {}
    assert machines.running == []


@pytest.mark.slow
def test_one_fleet_of_all_clouds_gives_the_cheapest_or_what_the_operators_want_first(machines, ask, until):
    with ExitStack() as stack:
        fleet = [stack.enter_context(make(machines)) for make in CLOUDS.values()]
        made = [cloud.blueprint() for cloud in fleet]
        for number, blueprint in enumerate(made):
            type(blueprint).objects.filter(pk=blueprint.pk).update(order=number)
        look()
        listed = Listing.objects.filter(available=True, arch="x86_64", market="on_demand")
        regions = ["us-east-1", "us-central1", "eastus"]
        lowest = listed.filter(location__in=regions, price__gt=0).order_by("price")[0].price
        by_order = ready(ask("host", exclusive=True), until)
        assert by_order.resource.blueprint.name == "ec2"
        cheapest = ready(ask("host", exclusive=True, choose="price"), until)
        assert cheapest.resource.price == lowest
        confidential = ready(ask("host", exclusive=True, choose="price", traits=["tdx"]), until)
        assert confidential.resource.blueprint.name in ("gce", "azure")
        assert "tdx" in confidential.resource.traits
        assert Event.objects.filter(lease=confidential, to_state="active").exists()
        gone()
        assert [cloud.double.objects() for cloud in fleet] == [{}, {}, {}]
