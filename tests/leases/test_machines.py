"""What is done to machines on purpose: reboot, a larger disk, another type, tags, console; by whom, and when not."""

from __future__ import annotations

import json

import pytest
from django.contrib.auth.models import User

from blueprints.fake.cloud import Cloud
from blueprints.models import Blueprint, Credential, Listing
from drydock.core.errors import Conflict, InvalidRequest, NotAllowed, NotFound, NotSupported
from interfaces.errors import LeaseEnded, Unreachable
from leases.engine.catalogue import poll_schedule
from leases.engine.resources import maintenance
from leases.engine.sync import poll
from leases.messaging.inline import settle
from leases.models import Budget, Event, Resource, Run, Share, Usage
from leases.operations import costs, leases, machines, resources
from leases.operations.callers import caller


@pytest.fixture
def cloud(blueprint):
    """A fake cloud that sells small, big and odd machines in one place, and a blueprint on it."""
    found = Cloud("t")
    found.sell("east", "small", vcpus=2, ram_mib=2048, price=0.1)
    found.sell("east", "big", vcpus=8, ram_mib=8192, price=0.4)
    found.sell("east", "odd", vcpus=8, ram_mib=8192, price=0.4, arch="arm64")
    found.sell("west", "huge", vcpus=64, ram_mib=8192, price=4)
    Credential.objects.create(name="c", secrets={"provider": "t"})
    _pool(blueprint)
    _look()
    return found


def _pool(blueprint, **config):
    said = {"provider": "t", "credential": "c", "poll_seconds": 0.01, "capacity": {"slots": 4}, **config}
    return blueprint(kind="fake_cloud", config=said)


def _look():
    poll_schedule.due()
    for _ in range(3):
        for one in poll_schedule.Reading.objects.all():
            poll_schedule.Reading.objects.filter(pk=one.pk).update(due_at="2020-01-01T00:00Z")
            poll.read(one.pk)


@pytest.fixture
def held(cloud, ask, until):
    """A machine of ada's own."""
    return until(ask("fake_cloud", exclusive=True, requirements={"region": ["east"], "max_price": 0.2}), state="active")


@pytest.fixture
def ada(owner):
    return caller(owner)


@pytest.fixture
def operator():
    return caller(User.objects.create_superuser("root"))


def done(lease):
    """What came of the last act, once nothing is under way."""
    while Run.objects.exists():
        settle()
    return Event.objects.filter(kind__startswith="machine.", resource=lease.resource_id).order_by("-id").first()


def only(cloud):
    return cloud.instances()[0]


def test_a_reboot_is_a_run_that_workers_carry_out(held, cloud, ada):
    info = machines.reboot(ada, held.pk)
    assert (info.progress.phase, info.outcome, info.act) == ("reboot", "asked", "reboot")
    assert done(held).kind == "machine.done"
    assert cloud.count("reboot") == 1
    info = machines.get(ada, held.pk)
    assert (info.outcome, info.message, info.progress) == ("done", "The machine was rebooted.", None)
    held.refresh_from_db()
    assert held.state == "active"


def test_the_same_wish_again_is_the_same_run_and_another_is_refused(held, cloud, ada):
    machines.reboot(ada, held.pk)
    machines.reboot(ada, held.pk)
    assert Run.objects.count() == 1
    with pytest.raises(Conflict, match="is busy with reboot"):
        machines.set_tags(ada, held.pk, {"team": "a"})
    with pytest.raises(Conflict, match="is busy with reboot"):
        machines.stop(ada, held.pk)
    done(held)
    assert cloud.count("reboot") == 1
    assert Event.objects.filter(kind="machine.asked").count() == 1


def test_a_health_check_gives_way(held, cloud, ada):
    Run.objects.create(resource=held.resource, phase="check", in_call=True)
    machines.reboot(ada, held.pk)
    assert list(Run.objects.values_list("phase", flat=True)) == ["reboot"]


def test_a_larger_disk_is_the_holders_at_once(held, cloud, ada):
    machines.resize_volume(ada, held.pk, 100)
    done(held)
    share, resource = Share.objects.get(), Resource.objects.get()
    assert resource.total_disk_mib == resource.used_disk_mib == share.disk_mib == 100 * 1024
    assert cloud.settings(only(cloud).key)["disk_gib"] == "100"
    with pytest.raises(InvalidRequest, match="can only grow"):
        machines.resize_volume(ada, held.pk, 50)
    machines.resize_volume(ada, held.pk, 100)
    assert not Run.objects.exists()


def test_another_type_changes_size_price_and_what_the_holder_has(held, cloud, ada):
    before = Share.objects.get()
    assert (before.cpu_millicores, before.ram_mib) == (2000, 2048)
    info = machines.change_type(ada, held.pk, "big")
    assert info.instance_type == "small"
    assert done(held).message == "The instance type was changed from small to big."
    share, resource = Share.objects.get(), Resource.objects.get()
    assert (share.cpu_millicores, share.ram_mib, share.created_at) == (8000, 8192, before.created_at)
    assert (resource.used_cpu_millicores, resource.total_cpu_millicores) == (8000, 8000)
    assert (resource.price, resource.attributes["price"], resource.offer) == (0.4, 0.4, "east/big/on_demand")
    assert resource.held_alone
    assert resource.idle_since is None
    assert (only(cloud).power, cloud.settings(only(cloud).key)["type"]) == ("on", "big")
    leases.release(ada, held.pk)
    settle()
    resource.refresh_from_db()
    assert resource.used_cpu_millicores == 0


def test_what_is_sold_out_goes_back_and_says_so(held, cloud, ada, until):
    cloud.sell_out("big")
    machines.change_type(ada, held.pk, "big")
    said = done(held)
    assert (said.kind, said.lease_id) == ("machine.failed", held.pk)
    assert "instance type is small again, and it runs" in said.message
    resource = until(Resource.objects.get(), power="on")
    assert (resource.total_cpu_millicores, resource.price, resource.state) == (2000, 0.1, "active")
    assert (only(cloud).power, cloud.settings(only(cloud).key)["type"]) == ("on", "small")
    held.refresh_from_db()
    assert held.state == "active"


@pytest.mark.parametrize("whose", ["user", "blueprint"])
def test_a_dearer_type_is_refused_where_it_would_pass_a_budget(held, ada, owner, whose):
    of = {"user": owner} if whose == "user" else {"blueprint": held.resource.blueprint}
    Budget.objects.create(max_hourly=0.35, **of)
    with pytest.raises(Conflict, match=r"is \$0.35/h, of which \$0.10/h is in use; this costs \$0.30/h"):
        machines.change_type(ada, held.pk, "big")
    assert not Run.objects.exists()
    assert Resource.objects.get().price == 0.1


def test_a_dearer_type_is_spent_from_asking_and_given_back_when_it_cannot_be_had(held, cloud, ada, owner):
    Budget.objects.create(user=owner, max_hourly=0.45)
    cloud.sell_out("big")
    machines.change_type(ada, held.pk, "big")
    machines.change_type(ada, held.pk, "big")
    assert [b.used for b in costs.list_budgets(ada)] == [0.4]
    assert done(held).kind == "machine.failed"
    assert [b.used for b in costs.list_budgets(ada)] == [0.1]
    prices = list(Usage.objects.order_by("id").values_list("price", flat=True))
    assert (prices[0], prices[-1], 0.4 in prices) == (0.1, 0.1, True)


def test_what_is_off_becomes_another_type_and_stays_off(held, cloud, ada, until):
    machines.stop(ada, held.pk)
    until(held.resource, power="off")
    machines.change_type(ada, held.pk, "big")
    done(held)
    assert only(cloud).power == "off"
    machines.start(ada, held.pk)
    until(held.resource, power="on")
    assert only(cloud).power == "on"


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ("odd", "is arm64, but the machine is x86_64"),
        ("huge", "is not offered in east"),
        ("nothing", "is not offered in east"),
        ("small", "is already a small"),
    ],
)
def test_types_that_it_cannot_become_are_refused_before_anything_is_done(held, ada, wanted, why):
    Resource.objects.update(attributes={**held.resource.attributes, "arch": "x86_64"})
    with pytest.raises(InvalidRequest, match=why) as refused:
        machines.change_type(ada, held.pk, wanted)
    assert refused.value.field == "type_name"
    assert not Run.objects.exists()


def test_a_type_too_small_for_what_is_leased_of_it_is_refused(cloud, ask, until, operator):
    lease = until(ask("fake_cloud", cpu_millicores=5000), state="active")
    with pytest.raises(InvalidRequest, match="5 vCPUs leased, 2 vCPUs on the new instance type"):
        machines.change_type(operator, lease.pk, "small")


def test_tags_are_kept_and_ours_are_refused(held, cloud, ada):
    machines.set_tags(ada, held.pk, {"team": "a"})
    done(held)
    assert machines.get(ada, held.pk).tags == {"team": "a"}
    assert cloud.settings(only(cloud).key)["tag:team"] == "a"
    for tags, why in (
        ({"drydock-resource": "1"}, "are reserved"), ({"Drydock-proof": "1"}, "are reserved"),
        ({"fake-x": "1"}, "reserves names"),
        ({}, "between 1 and 20"), ({"a": "b" * 300}, "at most 255"), ({"a": 3}, "a value of"),
    ):  # fmt: skip
        with pytest.raises(InvalidRequest, match=why):
            machines.set_tags(ada, held.pk, tags)
    assert not Run.objects.exists()


def test_a_console_is_shown_without_secrets_and_recorded(held, cloud, ada):
    secret = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQ"
    Resource.objects.update(secrets={})
    row = Resource.objects.get()
    row.secrets = {"host_private": f"-----BEGIN OPENSSH PRIVATE KEY-----\n{secret}\n-----END OPENSSH PRIVATE KEY-----"}
    row.save(update_fields=["secrets"])
    cloud.write(only(cloud).key, "x" * 70_000 + f"\nuser data: {secret}\npassword: hunter22\nlogin: ")
    shown = machines.console(ada, held.pk)
    assert secret not in shown.text
    assert "hunter22" not in shown.text
    assert shown.text.endswith("login: ")
    assert len(shown.text.encode()) <= machines.CONSOLE_BYTES
    said = Event.objects.get(kind="machine.console")
    assert (said.actor, said.lease_id) == ("ada", held.pk)


def test_a_provider_that_does_not_tell_is_said_so(held, ada, monkeypatch):
    def refuse(self, resource):
        raise Conflict("throttled")

    monkeypatch.setattr("blueprints.fake.offering.FakeCloud.console", refuse)
    with pytest.raises(Unreachable, match="cannot be read: throttled"):
        machines.console(ada, held.pk)


def test_a_part_of_a_machine_is_not_the_whole(cloud, ask, until, ada, operator):
    lease = until(ask("fake_cloud", slots=1), state="active")
    for act in (machines.stop, machines.reboot, machines.console):
        with pytest.raises(NotAllowed, match="holds only a part"):
            act(ada, lease.pk)
    machines.reboot(operator, lease.pk)
    assert done(lease).kind == "machine.done"
    every = until(ask("fake_cloud", slots=4), state="active")
    machines.reboot(ada, every.pk)


def test_strangers_find_no_machine_and_ended_leases_have_none(held, ada):
    bob = caller(User.objects.create_user("bob"))
    for act in (machines.get, machines.stop, machines.reboot, machines.console):
        with pytest.raises(NotFound):
            act(bob, held.pk)
    leases.release(ada, held.pk)
    settle()
    with pytest.raises(LeaseEnded):
        machines.reboot(ada, held.pk)
    assert not Run.objects.filter(phase="reboot").exists()


def test_what_is_not_supported_is_named(held, ada, blueprint, ask, until):
    row = Blueprint.objects.get()
    Blueprint.objects.update(config={**row.config, "lacks": ["reboots", "consoles", "powers"]})
    for act, name in ((machines.reboot, "reboot"), (machines.console, "console-output"), (machines.stop, "stop-start")):
        with pytest.raises(NotSupported, match="is not supported by the kind fake_cloud") as refused:
            act(ada, held.pk)
        assert refused.value.capability == name
    assert machines.get(ada, held.pk).capabilities == ("resize-volume", "change-type", "tags")
    blueprint("plain")
    plain = until(ask(exclusive=True), state="active")
    with pytest.raises(NotSupported) as refused:
        machines.change_type(ada, plain.pk, "big")
    assert refused.value.capability == "change-type"


def test_what_is_off_or_rebooting_on_purpose_is_not_taken_for_dead(held, cloud, ada, until):
    machines.stop(ada, held.pk)
    machines.stop(ada, held.pk)
    until(held.resource, power="off")
    with pytest.raises(Conflict, match="is off"):
        machines.reboot(ada, held.pk)
    _look()
    held.refresh_from_db()
    assert held.state == "active"
    machines.start(ada, held.pk)
    until(held.resource, power="on")
    machines.change_type(ada, held.pk, "big")
    cloud.switch(only(cloud).key, "off")
    _look()
    held.refresh_from_db()
    assert held.state == "active"
    done(held)


def test_a_death_between_any_two_calls_is_gone_on_from(held, cloud, ada, blueprint):
    row = Blueprint.objects.get()
    lost = [{"does": "lose", "at": f"retype.{step}", "times": 1} for step in ("off", "change", "on")]
    Blueprint.objects.update(config={**row.config, "faults": lost})
    machines.change_type(ada, held.pk, "big")
    assert done(held).kind == "machine.done"
    assert (only(cloud).power, cloud.settings(only(cloud).key)["type"]) == ("on", "big")


def test_operators_do_it_to_any_machine(held, ada, operator):
    machines.act_on_resource(operator, held.resource_id, "tags", tags={"team": "a"})
    assert done(held).kind == "machine.done"
    with pytest.raises(NotAllowed):
        machines.act_on_resource(ada, held.resource_id, "tags", tags={"team": "a"})
    with pytest.raises(NotFound):
        machines.act_on_resource(operator, 4711, "reboot")
    with pytest.raises(InvalidRequest):
        machines.act_on_resource(operator, held.resource_id, "explode")
    assert resources.get(operator, held.resource_id).facts["tags"] == {"team": "a"}


def test_a_wish_for_power_waits_its_turn(held, ada):
    maintenance.want_power(held.resource_id, "off")
    with pytest.raises(Conflict, match="busy with power"):
        machines.reboot(ada, held.pk)


def test_nothing_of_it_is_a_secret(held, ada):
    info = machines.get(ada, held.pk)
    assert "secret" not in json.dumps(str(info))
    assert Listing.objects.exists()
