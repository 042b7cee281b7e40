"""Maintenance of a host that several of its devices need: whom it waits for, and how often the host is switched."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from blueprints.amounts import Amounts
from blueprints.fake.cloud import Cloud
from blueprints.models import Blueprint
from leases.engine.core import specs, workers
from leases.engine.core.database import rows
from leases.engine.lifecycle import release, runner
from leases.engine.sync import discovery
from leases.messaging.inline import settle
from leases.models import Event, Lease, Resource, Run, Sync
from leases.operations import attention, installation, resources
from leases.operations.callers import caller

PAST = "2020-01-01T00:00Z"


def maintenance(action, at="build.verify", relation="host", **given):
    return {"does": "need_maintenance", "at": at, "relation": relation, "action": action, **given}


@pytest.fixture
def cloud():
    return Cloud("cards")


@pytest.fixture
def host(blueprint, django_user_model, until):
    """An active host of eight slots, of a blueprint of its own, whose provider counts its power cycles."""
    workers.seen("elsewhere:1")
    root = caller(django_user_model.objects.create_superuser("root"))
    blueprint("hosts", config={"provider": "hosts", "capacity": {"slots": 8}}, max_resources=0)
    added = resources.register(root, "hosts", {"name": "host"})
    return until(Resource.objects.get(pk=added.id), state="active")


@pytest.fixture
def cards(blueprint, cloud, host):
    """Make devices of a host, by discovery, whose blueprint has these faults."""

    def make(count, *faults, kind="fake_activated", depth=1, name="cards", **config):
        pool = blueprint(name, kind=kind, max_resources=0,
                         config={"provider": name, "poll_seconds": 0, "faults": list(faults), **config})  # fmt: skip
        settle()
        for n in range(1, count + 1):
            whole = "host"
            for level in range(1, depth):
                cloud.plant(f"shelf-{n}-{level}", part_of=whole, capacity=Amounts(slots=0))
                whole = f"shelf-{n}-{level}"
            Cloud(name).plant(f"card-{n}", part_of=whole)
        Sync.objects.update(due_at=PAST)
        assert discovery.discover(pool.pk)
        return Resource.objects.filter(blueprint=pool, name__startswith="card-")

    return make


def cycles():
    return sum(one.cycles for one in Cloud("hosts").instances())


def finish(found):
    """Carry out everything, also what waits for later."""
    for _ in range(12):
        Run.objects.filter(waits_for="", due_at__isnull=False).update(due_at=PAST)
        settle()
        if not found.exclude(state="active").exists():
            return
    pytest.fail(str(list(Run.objects.values("resource__name", "phase", "step", "sentence", "maintenance"))))


def test_eight_cards_that_each_need_their_host_power_cycled_cause_one_power_cycle(cards, host):
    found = cards(8, maintenance("power_cycle"))
    finish(found)
    assert (found.count(), cycles()) == (8, 1)
    host.refresh_from_db()
    assert not host.in_maintenance


def test_cards_that_are_set_up_for_their_leases_share_one_power_cycle(cards, host, ask, until):
    found = cards(8, maintenance("power_cycle", at="activate.access"), {"does": "slow", "at": "activate.account"})
    finish(found)
    leases = [ask("fake_activated") for _ in range(8)]
    for lease in leases:
        until(lease, state="active")
    assert len({lease.resource_id for lease in Lease.objects.all()}) == 8
    assert cycles() == 1


def test_a_power_cycle_gathers_those_that_may_still_ask_but_not_for_ever(cards, host, settings):
    slow = {"does": "slow", "at": "build.boot", "polls": 1, "after": 60}
    found = cards(2, slow | {"skip": 1}, maintenance("power_cycle"))
    settle()
    assert sorted(Run.objects.values_list("waits_for", flat=True)) == ["", "maintenance"]
    assert cycles() == 0
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"maintenance_gather_seconds": 0.0})
    settle()
    settle()
    assert cycles() == 1
    finish(found)
    assert cycles() == 2, "it was done without the second card"


@pytest.mark.parametrize(("holders", "ends"), [("wait", False), ("refuse", True)])
def test_a_lease_on_another_device_of_the_host_counts_as_a_holder_of_the_host(cards, host, ask, until, holders, ends):
    found = cards(
        1, maintenance("alone", at="activate.access", holders=holders, relation="parent"), kind="fake_activated"
    )
    other = Resource.objects.create(
        blueprint=host.blueprint, type="fake", name="other", origin="registered", part_of=host, state="active"
    )
    Resource.objects.filter(pk=host.pk).update(total_slots=0)
    finish(found)
    held = until(ask(), state="active")
    assert held.resource_id == other.pk
    lease = ask("fake_activated")
    settle()
    assert lease.pk not in Lease.objects.filter(state="active").values_list("pk", flat=True)
    if ends:
        assert (
            "is leased, and the step that needs the maintenance must not wait"
            in Event.objects.filter(lease=lease).order_by("-id").values_list("message", flat=True)[0]
        )
        return
    told = Event.objects.filter(kind="lease.maintenance", lease=held)
    assert told.exists()
    assert until(held, state="active")
    release.release(held.pk, actor="ada")
    until(lease, state="active")


def test_the_holder_of_a_part_is_told_of_a_drain_that_does_not_wait(cards, host, ask, until):
    part = Resource.objects.create(
        blueprint=host.blueprint, type="fake", name="part", origin="registered", part_of=host, state="active"
    )
    Resource.objects.filter(pk=host.pk).update(total_slots=0)
    held = until(ask(), state="active")
    assert held.resource_id == part.pk
    finish(cards(1, maintenance("drain", holders="tell")))
    assert Event.objects.filter(kind="lease.maintenance", lease=held).count() == 1


def test_several_kinds_of_maintenance_are_granted_one_after_another_and_kept(cards, host):
    found = cards(
        1, maintenance("drain", at="build.create"), maintenance("alone", at="build.create"),
        maintenance("power_cycle", at="build.verify"),
    )  # fmt: skip
    finish(found)
    assert cycles() == 1
    assert Event.objects.filter(kind="resource.maintenance", resource=host).count() == 3
    host.refresh_from_db()
    assert not host.in_maintenance


def test_what_was_granted_first_is_kept_while_another_is_asked_for(cards, host):
    cards(1, maintenance("alone", at="build.create"), maintenance("power_cycle", at="build.create"),
          {"does": "slow", "at": "build.verify", "polls": 1, "after": 600})  # fmt: skip
    for _ in range(4):
        settle()
    (run,) = Run.objects.all()
    assert run.maintenance["granted"]
    assert [one["action"] for one in run.maintenance["earlier"]] == ["alone"]
    assert rows("SELECT in_maintenance FROM leases_resource WHERE id = %s", (host.pk,))[0][0]


def test_two_that_drain_a_host_and_then_want_it_alone_do_not_block_each_other(cards, host):
    found = cards(2, maintenance("drain", at="build.create"), maintenance("alone", at="build.verify"))
    finish(found)


def test_the_host_is_the_topmost_whole_and_the_parent_the_next_one(cards, host):
    found = cards(1, maintenance("power_cycle", at="build.verify", relation="host"), depth=3, kind="fake_activated")
    finish(found)
    assert cycles() == 1


def test_the_whole_of_a_needed_lease_is_reached_by_name(blueprint, cards, host, ask, until):
    finish(cards(1))
    needs = {"does": "need_leases", "at": "build.create", "leases": [{"name": "card", "type": "fake_activated"}]}
    faults = [needs, maintenance("power_cycle", relation="card.host")]
    blueprint("images", kind="fake_reported", config={"provider": "images", "faults": faults})
    until(ask("fake_reported"), state="active")
    assert cycles() == 1


def test_a_relation_that_leads_nowhere_fails_the_step_and_names_it(blueprint, ask, until):
    blueprint("alone", config={"faults": [maintenance("drain", relation="parent.host")]})
    ask()
    settle()
    broken = until(Resource.objects.get(), state="broken")
    assert "no related resource 'parent.host'" in broken.message


def test_a_host_is_not_power_cycled_while_another_device_in_it_is_flashed(cards, host, settings):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"maintenance_gather_seconds": 0.0})
    slow = {"does": "slow", "at": "build.flash", "skip": 1, "polls": 1, "after": 600}
    found = cards(2, slow, maintenance("power_cycle"))
    for _ in range(4):
        settle()
        Run.objects.filter(phase="power").update(due_at=PAST)
    settle()
    assert Run.objects.get(uninterruptible=True).step == "flash"
    assert Run.objects.get(phase="power").sentence.startswith("Waits until build of card-")
    assert cycles() == 0
    finish(found)
    assert 1 <= cycles() <= 2
    assert not Run.objects.exists()


def test_no_flash_begins_while_its_host_is_being_switched(cards, host):
    found = cards(1)
    begun = Run.objects.create(resource=host, phase="power", wanted={"power": "cycle"}, position=1, due_at=None)
    settle()
    assert Run.objects.get(phase="build").sentence == "Waits until host has been switched."
    assert not Cloud("cards").count("flash")
    begun.delete()
    finish(found)


def test_waiting_for_holders_ends_and_names_the_holder_and_its_end(cards, host, ask, until, settings):
    part = Resource.objects.create(
        blueprint=host.blueprint, type="fake", name="part", origin="registered", part_of=host, state="active"
    )
    Resource.objects.filter(pk=host.pk).update(total_slots=0)
    held = until(ask(until="2035-01-02T03:04Z"), state="active")
    assert held.resource_id == part.pk
    cards(1, maintenance("alone"))
    settle()
    told = Event.objects.get(kind="lease.maintenance", lease=held)
    assert told.message.startswith("Maintenance waits for this lease to end, for at most 1 d:")
    assert Run.objects.get(phase="build").waits_for == "maintenance"
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"maintenance_patience_seconds": 1e-3})
    card = until(Resource.objects.get(name="card-1"), state="broken")
    assert f"waited 1 ms for lease {held.pk}, which ends at 2035-01-02 03:04 UTC" in card.message
    host.refresh_from_db()
    assert not host.in_maintenance


def reboots():
    return sum("rebooted" in Cloud("hosts").settings(one.key) for one in Cloud("hosts").instances())


def test_a_reboot_is_done_once_and_the_power_stays_on(cards, host):
    finish(cards(3, maintenance("reboot")))
    assert (reboots(), cycles(), Cloud("hosts").count("reboot")) == (1, 0, 1)


def test_the_strongest_method_that_was_asked_for_serves_all(cards, host):
    found = cards(2)
    for card, action in zip(found, ("reboot", "power_cycle"), strict=True):
        faults = [*card.blueprint.config["faults"], maintenance(action, keys=specs.name_of(card))]
        Blueprint.objects.filter(pk=card.blueprint_id).update(config=card.blueprint.config | {"faults": faults})
    found = found.all()
    settle_until_asked(2)
    finish(found)
    assert (reboots(), cycles()) == (0, 1)


def settle_until_asked(count):
    """Call the steps of builds until so many wait for maintenance, without carrying the maintenance out."""
    for _ in range(60):
        if Run.objects.filter(phase="build", waits_for="maintenance").count() == count:
            return
        for pk in Run.objects.filter(phase="build", waits_for="").values_list("pk", flat=True):
            runner.carry_on(pk)
    pytest.fail("the builds asked for nothing")


def test_a_failed_reboot_fails_those_that_wait_for_it(cards, host, until):
    host.blueprint.config |= {"faults": [{"does": "fail", "at": "reboot.ask", "scope": "offer", "message": "BMC busy"}]}
    host.blueprint.save()
    cards(1, maintenance("reboot"))
    settle()
    card = until(Resource.objects.get(name="card-1"), state="broken")
    assert "host could not be rebooted: BMC busy" in card.message


@pytest.mark.parametrize("yes", [True, False])
def test_an_operator_switches_what_no_kind_can_switch_once_for_all(cards, host, until, yes):
    host.blueprint.config |= {"lacks": ["powers", "reboots"]}
    host.blueprint.save()
    found = cards(2, maintenance("reboot"))
    for _ in range(3):
        settle()
    held = Run.objects.get(waits_for="operator")
    assert held.sentence == "Reboot host by hand, because its kind cannot; then answer yes."
    assert Run.objects.filter(waits_for="maintenance").count() == 1
    root = caller(User.objects.get(username="root"))
    installation.resolve(root, resource_id=held.resource_id, yes=yes, message="no hands here")
    if yes:
        finish(found)
        assert (reboots(), cycles()) == (0, 0)
        return
    refused = until(Resource.objects.get(pk=held.resource_id), state="broken")
    assert "root answered no: no hands here" in refused.message


def test_a_host_that_an_operator_wants_not_rebooted_is_not_until_it_may(cards, host):
    root = caller(User.objects.get(username="root"))
    info = resources.forbid_reboots(root, host.pk, reason="Its data is being copied.")
    assert "Maintenance must not reboot it: Its data is being copied." in info.problems
    (item,) = [one for one in attention.needed(root) if one.what == "no_reboots"]
    assert (item.id, item.message) == (host.pk, "Its data is being copied.")
    found = cards(1, maintenance("power_cycle"))
    for _ in range(3):
        settle()
    said = "Waits, because an operator forbids to reboot host: Its data is being copied."
    assert Run.objects.get(phase="build").sentence == said
    assert cycles() == 0
    assert resources.allow_reboots(root, host.pk).no_reboots == ""
    finish(found)
    assert cycles() == 1
    kinds = ("resource.no_reboots", "resource.reboots_allowed")
    assert Event.objects.filter(kind__in=kinds, resource=host).count() == 2


def test_a_step_that_holds_after_its_host_was_switched_by_hand_gets_its_own_answer(cards, host, until):
    host.blueprint.config |= {"lacks": ["powers", "reboots"]}
    host.blueprint.save()
    hold = {"does": "hold", "at": "build.verify", "resolved_by": "operator", "what": "Is the cable in?"}
    found = cards(1, maintenance("reboot", at="build.create"), hold)
    root = caller(User.objects.get(username="root"))
    for asked in ("Reboot host by hand", "Is the cable in?"):
        for _ in range(3):
            settle()
        held = Run.objects.get(waits_for="operator")
        assert held.sentence.startswith(asked)
        installation.resolve(root, resource_id=held.resource_id, message="done")
    finish(found)


def test_a_run_that_goes_on_after_its_maintenance_does_not_wait_for_it_any_more(cards, host):
    """Else a later reboot would not gather it, and people would read that it waits for maintenance."""
    slow = {"does": "slow", "at": "build.verify", "polls": 1, "after": 600}
    cards(1, maintenance("alone"), slow)
    for _ in range(4):
        settle()
    run = Run.objects.get()
    assert run.maintenance["granted"]
    assert (run.step, run.waits_for) == ("verify", "")


def test_cards_of_a_host_that_are_built_together_share_an_empty_host_and_its_reboot(cards, host):
    both = {"does": "slow", "at": "build.flash", "polls": 1, "after": 600, "each": True}
    found = cards(2, maintenance("vacate", at="build.create"), both, maintenance("power_cycle"))
    for _ in range(4):
        settle()
    assert list(Run.objects.values_list("step", flat=True)) == ["flash", "flash"]
    finish(found)
    assert cycles() == 1
    host.refresh_from_db()
    assert not host.in_maintenance


def test_nobody_has_a_host_alone_while_others_have_vacated_it(cards, host):
    slow = {"does": "slow", "at": "build.verify", "polls": 1, "after": 600}
    vacating = cards(1, maintenance("vacate", at="build.create"), slow)
    for _ in range(3):
        settle()
    assert Run.objects.get().step == "verify"
    alone = cards(1, maintenance("alone", at="build.create"), name="others")
    for _ in range(3):
        settle()
    assert Run.objects.get(waits_for="maintenance").resource == alone.get()
    finish(vacating)
    finish(alone)


def test_a_step_that_needs_two_reboots_gets_two(cards, host):
    found = cards(1, maintenance("power_cycle"), maintenance("power_cycle", times=2))
    finish(found)
    assert cycles() == 2


def test_a_lease_that_only_keeps_an_idle_device_is_not_waited_for(blueprint, cards, host, ask, until):
    finish(cards(2))
    needs = {"does": "need_leases", "at": "build.create", "leases": [{"name": "card", "type": "fake_activated"}]}
    faults = [needs, maintenance("vacate", relation="card.host"), maintenance("power_cycle", relation="card.host")]
    blueprint("images", kind="fake_reported", config={"provider": "images", "faults": faults})
    first = until(ask("fake_reported"), state="active")
    second = ask("fake_reported")
    for _ in range(3):
        settle()
    assert Run.objects.get(waits_for="maintenance"), "the first lease is used"
    release.release(first.pk, actor="ada")
    until(first, state="destroyed")
    until(second, state="active")
