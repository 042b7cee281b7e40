"""Instances over REST on an emulated cloud: what is told of the machine, how it is switched, and when it is gone."""

from __future__ import annotations

import datetime as dt
import itertools
import os

import pytest
from django.contrib.auth.models import User
from django.db.models.functions import Now

from blueprints.models import Blueprint
from drydock.core import clock
from leases import lifecycle
from leases.messaging.inline import settle
from leases.models import Event, Lease, Resource, Run
from leases.states import LeaseState, ResourceState
from tests.clouds.ec2.plan import Fault
from tests.leases.emulated import gone, look, ready

pytestmark = pytest.mark.timeout(400)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may make accounts for leases")
REFUSED = "You are not authorized to perform this operation."


@pytest.fixture
def there(amazon, api, owner, until):
    """Ada's program, the number of her running instance, and its blueprint."""
    made = amazon.blueprint(trusted=True)
    look()
    program = api(owner)
    given = {"location": ["us-east-1"], "name": "one", "tags": {"team": "blue"}}
    instance = program("POST", "instances", given, code=201)
    assert (instance["state"], instance["provider_id"], instance["ssh_host"]) == ("pending", "", "")
    ready(Lease.objects.get(pk=instance["id"]), until)
    look("status")
    return program, instance["id"], made


def _due():
    Run.objects.update(due_at="2020-01-01T00:00Z")
    settle()


def _until(program, instance, state):
    end = clock.monotonic() + 90
    while (found := program("GET", f"instances/{instance}"))["state"] != state:
        assert clock.monotonic() < end, found
        _due()
        look("status")
        clock.sleep(0.02)
    return found


@needs_root
def test_a_running_instance_tells_where_it_is_and_is_stopped_and_started(there, amazon):
    program, instance, _ = there
    info = program("GET", f"instances/{instance}?wait=5")
    machine = Resource.objects.get()
    assert (info["state"], info["kind"], info["location"]) == ("running", "ec2", "us-east-1")
    assert info["provider_id"] == machine.facts["instance_id"]
    assert info["provider_id"].startswith("i-")
    seen = machine.facts["seen"]
    assert info["public_address"] == seen["public_address"] != ""
    assert info["private_address"] == seen["private_address"] != ""
    assert (info["ssh_host"], info["ssh_port"]) == (machine.facts["address"], amazon.machines.port)
    assert info["ssh_user"] == Lease.objects.get(pk=instance).facts["user"]
    assert info["ssh_host_keys"] == machine.facts["host_keys"]
    assert info["hourly_cost"] == info["price"] == machine.price > 0
    assert program("POST", f"instances/{instance}/stop")["state"] == "stopping"
    _until(program, instance, "stopped")
    assert program("POST", f"instances/{instance}/start")["state"] == "pending"
    _until(program, instance, "running")
    assert program("POST", f"instances/{instance}/reboot")["state"] == "running"
    gone()


@needs_root
def test_a_refused_termination_stays_terminating_with_its_cost_until_the_machine_is_gone(there, amazon, api, chief):
    program, instance, made = there
    refused = Fault(action="TerminateInstances", code="UnauthorizedOperation", message=REFUSED, status=403, times=None)
    amazon.double.plan.add(refused)
    Blueprint.objects.filter(pk=made.pk).update(drained=True)
    program("DELETE", f"instances/{instance}")
    end = clock.monotonic() + 60
    while not Event.objects.filter(kind="resource.destroy_failed").exists():
        assert clock.monotonic() < end
        _due()
    assert len(amazon.double.objects()) > 0
    assert Lease.objects.get(pk=instance).state == "destroyed", "the lease is over, and the machine is not"
    for one in (program("GET", f"instances/{instance}"), *program("GET", "instances")["results"]):
        assert (one["id"], one["state"]) == (instance, "terminating")
        assert one["hourly_cost"] == one["price"] > 0
        assert REFUSED in one["message"]
        assert (one["failure"]["act"], one["failure"]["code"]) == ("destroy", "UnauthorizedOperation")
        assert one["failure"]["attempts"] >= 2
    for who in (program, api(chief, "operate")):
        told = [one for one in who("GET", "attention")["results"] if one["what"] == "destroy_failed"]
        assert len(told) == 1
        assert REFUSED in told[0]["message"]
    amazon.double.plan.clear()
    info = _until(program, instance, "terminated")
    assert (info["hourly_cost"], info["failure"]) == (0.0, None)
    assert program("GET", "instances")["results"] == []
    assert amazon.double.objects() == {}


@needs_root
def test_a_stop_that_fails_in_the_background_is_shown_on_the_instance(there, amazon):
    program, instance, _ = there
    amazon.double.plan.add(
        Fault(action="StopInstances", code="UnauthorizedOperation", message=REFUSED, status=403, times=None)
    )
    program("POST", f"instances/{instance}/stop")
    while Run.objects.exists():
        _due()
    info = program("GET", f"instances/{instance}")
    assert (info["state"], info["failure"]["act"]) == ("running", "stop")
    assert REFUSED in info["message"]
    assert [one["what"] for one in program("GET", "attention")["results"]].count("act_failed") == 1
    assert [one["kind"] for one in program("GET", f"events?lease={instance}")["results"]][-1] == "resource.power_failed"
    amazon.double.plan.clear()
    gone()


@needs_root
def test_a_machine_that_is_kept_says_until_when_and_what_it_costs(there, ask, until):
    program, instance, made = there
    Blueprint.objects.filter(pk=made.pk).update(idle_timeout="15 minutes")
    program("DELETE", f"instances/{instance}")
    info = _until(program, instance, "released")
    machine = Resource.objects.get()
    kept = machine.idle_since + dt.timedelta(minutes=15)
    assert info["kept_until"] == kept.isoformat()
    assert info["hourly_cost"] == machine.price > 0
    assert "kept until" in info["message"]
    assert [one["id"] for one in program("GET", "instances")["results"]] == [instance]
    again = until(ask("host", exclusive=True), state="active", seconds=60)
    assert again.resource_id == machine.pk
    info = program("GET", f"instances/{instance}")
    assert (info["state"], info["hourly_cost"]) == ("reassigned", 0.0)
    assert program("GET", "instances")["results"] == []
    gone()
    assert program("GET", f"instances/{instance}")["state"] == "terminated"


def test_no_instance_is_over_while_its_machine_is_there_whatever_the_states_are(blueprint):
    """Every combination of states, power, absence and a later holder: listed exactly while something costs."""
    ada, pool = User.objects.create_user("ada"), blueprint("pool", config={})
    powers = list(itertools.product(["", "on", "off"], ["", "on", "off"]))
    words = set()
    for number, (of_machine, is_gone, drained, taken) in enumerate(
        itertools.product(ResourceState, [False, True], [False, True], [False, True])
    ):
        if of_machine == ResourceState.DESTROYED and not is_gone:
            continue
        for power, wanted in powers if of_machine == ResourceState.ACTIVE and not drained else [("", "")]:
            machine = Resource.objects.create(
                blueprint=pool, type="host", state=of_machine, power=power, power_wanted=wanted, drained=drained,
                gone_at=Now() if is_gone else None, identity=f"{number}-{power}-{wanted}",
            )  # fmt: skip
            leases = Lease.objects.bulk_create(
                Lease(type="host", owner=ada, state=state, resource=machine, shape="x", acquired_at="2026-01-01T00:00Z")
                for state in LeaseState
            )  # fmt: skip
            if taken:
                Lease.objects.create(
                    type="host",
                    owner=ada,
                    state="destroyed",
                    resource=machine,
                    shape="x",
                    acquired_at="2026-02-02T00:00Z",
                )
            found = lifecycle.with_state(Lease.objects.filter(pk__in=[one.pk for one in leases]))
            listed = set(found.filter(lifecycle.not_over()).values_list("pk", flat=True))
            for lease in found:
                words.add(lease.instance_state)
                over = lease.state in ("destroyed", "broken")
                case = (lease.state, str(of_machine), is_gone, drained, taken, power, wanted, lease.instance_state)
                if lease.instance_state == "terminated":
                    assert is_gone, case
                if lease.instance_state not in lifecycle.OVER:
                    assert lease.pk in listed, case
                if over and not is_gone and not taken:
                    assert lease.instance_state in ("terminating", "released"), case
                if over and not is_gone and taken:
                    assert lease.instance_state in ("reassigned", "failed"), case
                if over and is_gone:
                    assert lease.instance_state in ("terminated", "failed"), case
                if lease.instance_state in ("running", "stopping", "stopped", "released"):
                    assert (of_machine, is_gone) in (("active", False), ("pending", False)), case
    assert words == set(lifecycle.STATES)
