"""Updates of leased resources: those that disturb no lease are made at once, and others wait or are forced."""

from __future__ import annotations

import signal
from collections import Counter

import pytest

from blueprints.answers import Ready
from blueprints.contract import Step
from blueprints.fake.cloud import Cloud
from blueprints.fake.kind import Fake, FakeActivated
from blueprints.models import Blueprint
from drydock.core.errors import Busy, Conflict, InvalidRequest, NotSupported
from drydock_client.values import BlueprintChange
from leases.engine.core import database, specs
from leases.engine.lifecycle import release
from leases.engine.scheduling import request
from leases.messaging import hints
from leases.messaging.inline import settle
from leases.models import Event, Failure, FormerConfig, Lease, Resource, Run, Share
from leases.operations import attention, blueprints, leases, resources
from leases.operations.callers import Caller, caller
from leases.reasons import Reason
from leases.validation.requests import read
from tests.leases import kinds
from tests.leases.test_death import _settle_while, in_child, kill_at

BASE = {"provider": "t", "poll_seconds": 0, "flash_polls": 2}
MILD = {**BASE, "traits": ["fast"]}
BLUE = {**BASE, "attributes": {"color": "blue"}}
LATER = {"poll_seconds": 60}
PAST = "2020-01-01T00:00Z"
WHY = "A security fix."


@pytest.fixture
def root(django_user_model):
    return caller(django_user_model.objects.create_superuser("root"))


@pytest.fixture
def change(root):
    """Change the config of a blueprint by the operation."""

    def make(config, name="pool"):
        blueprints.change(root, name, BlueprintChange(config=config))

    return make


@pytest.fixture
def lease(blueprint, ask, until):
    """An active lease on one of two slots of a resource on which each lease has an account."""
    blueprint(kind="fake_activated", config={**BASE, "capacity": {"slots": 2}}, max_resources=1)
    return until(ask("fake_activated", ttl="2h"), state="active")


def slots(config):
    return {**config, "capacity": {"slots": 2}}


def accounts():
    return sorted((one.lease, one.what) for one in Cloud("t").left())


def settled(times=3):
    for _ in range(times):
        settle()


def due():
    """Make what waits for its next poll due."""
    Run.objects.filter(due_at__isnull=False).update(due_at=PAST)
    settle()


def test_a_change_that_disturbs_no_lease_is_made_while_the_resource_is_leased(lease, ask, change, until):
    there = accounts()
    assert there
    change(slots(MILD))
    resource = until(lease.resource, generation=2)
    lease.refresh_from_db()
    assert (resource.traits, resource.in_maintenance, lease.state, lease.reason) == (
        ["fast"],
        False,
        "active",
        Reason.READY,
    )
    assert accounts() == there
    assert not Event.objects.filter(kind="lease.maintenance").exists()
    assert until(ask("fake_activated"), state="active").resource == resource


def test_a_lease_that_is_requested_during_such_an_update_gets_the_resource(lease, ask, change, until):
    slow = {"does": "slow", "at": "update.restart", "polls": 1, "after": 3600}
    change({**slots(MILD), "faults": [slow]})
    settled()
    assert Run.objects.get(phase="update").resource == lease.resource
    assert until(ask("fake_activated"), state="active").resource == lease.resource
    due()
    until(lease.resource, generation=2)


def test_a_change_that_disturbs_leases_waits_and_says_for_whom(lease, root, change, until):
    change(slots(BLUE))
    settled()
    info = resources.get(root, lease.resource_id)
    assert (info.update.state, info.update.leases, info.update.until) == ("waiting", (lease.pk,), lease.until)
    said = "The instance is flashed and restarted for another attributes."
    assert (
        info.update.sentence
        == f"An update waits for lease {lease.pk} of ada, until {lease.until:%Y-%m-%d %H:%M} UTC. {said}"
    )
    (item,) = [one for one in attention.needed(root) if one.what == "update_waits"]
    assert (item.id, item.message) == (lease.resource_id, info.update.sentence)
    assert f"drydock resources update {lease.resource_id}" in item.mend
    assert not Run.objects.exists()
    release.release(lease.pk, actor="ada")
    resource = until(lease.resource, generation=2)
    assert resource.state == "active"
    assert resources.get(root, resource.pk).update is None
    assert not [one for one in attention.needed(root) if one.what == "update_waits"]


def test_an_owner_does_not_see_leases_of_others_that_an_update_waits_for(
    lease, ask, root, change, until, django_user_model
):
    eve = django_user_model.objects.create_user("eve")
    own = until(ask("fake_activated", by=eve), state="active")
    change(slots(BLUE))
    seen = resources.get(caller(eve), lease.resource_id).update
    assert (seen.leases, seen.until) == ((own.pk,), None)
    assert f"lease {lease.pk}" not in seen.sentence
    assert "ada" not in seen.sentence


def test_an_operator_forces_an_update_and_the_leases_are_set_up_again(lease, root, change, until):
    there = accounts()
    change(slots(BLUE))
    settled()
    info = resources.update(root, lease.resource_id, reason=WHY)
    assert (info.in_maintenance, info.update.state) == (True, "running")
    lease.refresh_from_db()
    assert (lease.state, lease.reason) == ("active", Reason.UPDATING)
    told = Event.objects.get(kind="lease.maintenance", lease=lease)
    assert told.message.endswith(
        f"interrupts this lease. The instance is flashed and restarted for another attributes. {WHY}"
    )
    before = Event.objects.get(kind="resource.update_forced")
    resources.update(root, lease.resource_id, reason="Again.")
    assert [one.pk for one in Event.objects.filter(kind="resource.update_forced")] == [before.pk]
    until(lease, reason=Reason.READY)
    resource = until(lease.resource, generation=2)
    assert (lease.state, resource.in_maintenance, accounts()) == ("active", False, there)
    assert Event.objects.filter(kind="lease.acquired").count() == 1
    with pytest.raises(Conflict, match="up to date"):
        resources.update(root, lease.resource_id, reason=WHY)
    release.release(lease.pk, actor="ada")
    until(lease, state="destroyed")
    assert accounts() == []


def test_a_forced_update_needs_a_reason_and_a_kind_that_can(lease, root, change, until, blueprint, ask):
    change(slots(BLUE))
    with pytest.raises(InvalidRequest):
        resources.update(root, lease.resource_id, reason=" ")
    with kinds.installed(Careful()):
        blueprint("careful", kind="careful", config=BASE)
        held = until(ask("careful"), state="active")
        change(BLUE, "careful")
        with pytest.raises(NotSupported, match="'careful'"):
            resources.update(root, held.resource_id, reason=WHY)
        assert not Run.objects.filter(resource=held.resource).exists()
        release.release(held.pk, actor="ada")
        until(held.resource, generation=2)


@pytest.mark.parametrize("said", [KeyError("color"), None])
def test_a_kind_that_cannot_say_how_a_change_disturbs_leases_hides_no_resources(
    root, change, until, blueprint, ask, said
):
    with kinds.installed(Silent(said)):
        blueprint("silent", kind="silent", config=BASE)
        held = until(ask("silent"), state="active")
        change(MILD, "silent")
        settled()
        assert [one.id for one in resources.list_(root)] == [held.resource_id]
        update = resources.get(root, held.resource_id).update
        assert (update.state, update.leases) == ("waiting", (held.pk,))
        assert "The kind silent cannot say what changes." in update.sentence
        assert [one for one in attention.needed(root) if one.what == "update_waits"]


def test_updates_that_disturb_no_lease_do_not_hide_one_that_waits(
    lease, ask, root, change, until, blueprint, monkeypatch
):
    blueprint("second", kind="fake_activated", config=slots(BASE), max_resources=1)
    until(ask("fake_activated"), state="active")
    held = until(ask("fake_activated"), state="active")
    assert held.resource != lease.resource
    fail = {"does": "fail", "at": "update.restart", "scope": "operator", "message": "Forbidden."}
    change({**slots(MILD), "faults": [fail]})
    change(slots(BLUE), "second")
    settled()
    monkeypatch.setattr(attention, "AT_MOST", 1)
    assert [one.id for one in attention.needed(root) if one.what == "update_waits"] == [held.resource_id]


def test_an_update_that_disturbs_no_lease_and_fails_is_tried_again_while_the_resource_stays_in_service(
    lease, root, change, until
):
    fail = {"does": "fail", "at": "update.restart", "scope": "operator", "message": "Forbidden."}
    change({**slots(MILD), "faults": [fail]})
    until(lease.resource, generation=1)
    settled(1)
    found = Failure.objects.filter(act="update")
    said = [one for one in attention.needed(root) if one.what == "act_failed"]
    assert found.exists() == bool(said)
    resource = until(lease.resource, generation=2)
    assert Event.objects.get(kind="resource.update_failed").message == "Forbidden."
    assert (resource.drained, resource.in_maintenance, resource.suspect_since) == (False, False, None)
    assert not found.exists()


def test_a_changed_config_is_tried_at_once_although_the_last_one_failed(lease, settings, change, until):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(
        update={"step_backoff_seconds": 3600.0, "step_backoff_limit_seconds": 3600.0}
    )
    fail = {"does": "fail", "at": "update.restart", "scope": "operator", "times": None}
    change({**slots(MILD), "faults": [fail]})
    settled(6)
    assert (Failure.objects.get().act, Failure.objects.get().attempts) == ("update", 1)
    change(slots(MILD))
    until(lease.resource, generation=3)


def test_leases_are_set_up_again_after_a_forced_update_that_failed(lease, root, change, until):
    there = accounts()
    fail = {"does": "fail", "at": "update.restart", "scope": "operator", "message": "Refused."}
    change({**slots(BLUE), "faults": [fail]})
    resources.update(root, lease.resource_id, reason=WHY)
    resource = until(lease.resource, drained=True)
    until(lease, reason=Reason.READY)
    assert (lease.state, resource.generation, accounts()) == ("active", 1, there)
    assert resource.note == "Update failed: Refused."


def test_a_lease_that_cannot_be_set_up_again_is_lost_and_served_elsewhere(blueprint, ask, root, change, until):
    blueprint(kind="fake_activated", config=BASE)
    lease = until(ask("fake_activated", serve_again=True), state="active")
    fail = {"does": "fail", "at": "activate.account", "scope": "operator"}
    change({**BLUE, "faults": [fail]})
    resources.update(root, lease.resource_id, reason=WHY)
    until(lease, state="broken")
    assert lease.reason == Reason.ACTIVATION_FAILED
    again = until(lease.replaced_by, state="active")
    assert again.resource_id != lease.resource_id
    until(lease.resource, in_maintenance=False)


def test_a_lease_that_ends_during_a_forced_update_is_cleaned_after_it(lease, root, change, until):
    change({**slots(BLUE), **LATER})
    resources.update(root, lease.resource_id, reason=WHY)
    settled()
    assert Run.objects.get(phase="update").uninterruptible
    release.release(lease.pk, actor="ada")
    settled()
    waits = Run.objects.get(lease=lease)
    assert (waits.phase, waits.position, waits.in_call) == ("deactivate", 0, False)
    assert waits.sentence == f"Waits until {lease.resource.name} has been updated."
    for _ in range(6):
        due()
    until(lease, state="destroyed")
    until(lease.resource, generation=2, in_maintenance=False)
    assert accounts() == []


def test_a_forced_update_waits_for_a_step_of_a_lease_that_has_begun(lease, ask, root, change, until, django_user_model):
    slow = {"does": "slow", "at": "activate.account", "polls": 1, "after": 3600}
    Blueprint.objects.update(config={**slots(BASE), "faults": [slow]})
    second = ask("fake_activated", by=django_user_model.objects.create_user("eve"))
    settled()
    assert Run.objects.get(lease=second).step == "account"
    change(slots(BLUE))
    resources.update(root, lease.resource_id, reason=WHY)
    settled()
    waits = Run.objects.get(phase="update")
    assert (waits.position, waits.sentence) == (0, "Waits until activate of a lease on it has ended.")
    assert f"lease {second.pk}" not in str(resources.get(caller(lease.owner), lease.resource_id))
    for _ in range(8):
        due()
    until(lease.resource, generation=2)
    until(second, state="active")
    assert len(accounts()) == 4


def test_steps_that_do_not_apply_do_not_let_an_update_and_steps_of_leases_run_at_once(
    blueprint, ask, root, change, until, django_user_model
):
    with kinds.installed(Skips()):
        slow = [{"does": "slow", "at": at, "polls": 1, "after": 3600} for at in ("activate.account", "update.restart")]
        blueprint(kind="skips", config=slots(BASE), max_resources=1)
        first = until(ask("skips"), state="active")
        Blueprint.objects.update(config={**slots(BASE), "faults": slow})
        second = ask("skips")
        settled()
        assert Run.objects.get(lease=second).step == "account"
        change({**slots(BLUE), "faults": slow})
        resources.update(root, first.resource_id, reason=WHY)
        settled()
        assert Run.objects.get(phase="update").position == 0
        release.release(second.pk, actor="ada")
        while Run.objects.filter(phase="update", step="").exists():
            due()
        release.release(first.pk, actor="ada")
        settled()
        assert Run.objects.get(lease=first).position == 0
        for _ in range(12):
            due()
        until(first, state="destroyed")


def test_a_lease_that_is_requested_during_a_forced_update_waits_for_its_end(lease, ask, root, change, until):
    change({**slots(BLUE), **LATER})
    resources.update(root, lease.resource_id, reason=WHY)
    second = ask("fake_activated")
    settled()
    second.refresh_from_db()
    assert second.state == "pending"
    for _ in range(4):
        due()
    assert until(second, state="active").resource_id == lease.resource_id


def test_a_config_that_changes_again_does_not_reach_an_update_that_has_begun(lease, root, change, until):
    slow = {"does": "slow", "at": "update.restart", "polls": 1, "after": 3600}
    change({**slots(MILD), "faults": [slow]})
    settled()
    there = accounts()
    change({**slots(BLUE), "traits": ["slow"]})
    due()
    resource = until(lease.resource, generation=2)
    settled()
    resource.refresh_from_db()
    assert (resource.traits, resource.generation, accounts()) == (["fast"], 2, there)
    assert resources.get(root, resource.pk).update.state == "waiting"
    assert set(FormerConfig.objects.values_list("generation", flat=True)) == {1, 2}
    change(slots(BASE))
    until(resource, generation=4)
    change(slots(MILD))
    assert set(FormerConfig.objects.values_list("generation", flat=True)) == {4}


def test_a_kind_that_changes_does_not_reach_an_update_that_has_begun(lease, root, change, until):
    with kinds.installed(Other()):
        slow = {"does": "slow", "at": "update.restart", "polls": 1, "after": 3600}
        change({**slots(BLUE), "traits": ["fast"], "faults": [slow]})
        resources.update(root, lease.resource_id, reason=WHY)
        settled()
        blueprints.change(root, "pool", BlueprintChange(kind="fake_other", config=slots(BASE)))
        due()
        resource = until(lease.resource, generation=2)
        assert resource.traits == ["fast"]
        settled()
        lease.refresh_from_db()
        assert lease.state == "active"
        assert resources.get(root, resource.pk).update.disruption.startswith("The kind changes from fake_activated")
        release.release(lease.pk, actor="ada")
        until(lease, state="destroyed")


def test_a_forced_update_waits_while_reboots_are_forbidden(lease, root, change, until):
    change(slots(BLUE))
    resources.forbid_reboots(root, lease.resource_id, reason="Its data is being copied.")
    resources.update(root, lease.resource_id, reason=WHY)
    settled()
    said = f"Waits, because an operator forbids to reboot {lease.resource.name}: Its data is being copied."
    assert Run.objects.get(phase="update").sentence == said
    assert said in resources.get(root, lease.resource_id).update.sentence
    resources.allow_reboots(root, lease.resource_id)
    due()
    until(lease.resource, generation=2)


def test_a_resource_is_not_updated_while_its_holder_must_not_be_interrupted(blueprint, ask, change, until):
    blueprint(config={**BASE, "capacity": {"slots": 4}}, max_resources=1)
    needs = {"does": "need_leases", "at": "build.create", "leases": [{"name": "cluster", "type": "fake"}]}
    blueprint("above", kind="fake_activated", config={**BASE, **LATER, "flash_polls": 2, "faults": [needs]})
    lease = ask("fake_activated")
    for _ in range(20):
        settle()
        if Run.objects.filter(phase="build", uninterruptible=True, resource__type="fake_activated").exists():
            break
    below = Resource.objects.get(type="fake", state="active")
    change({**MILD, "capacity": {"slots": 4}})
    settled()
    waits = Run.objects.get(phase="update", resource=below)
    assert (waits.position, waits.in_call) == (0, False)
    assert waits.sentence.startswith("Waits until build of above-")
    for _ in range(8):
        due()
    until(below, generation=2)
    until(lease, state="active")


def test_a_resource_is_not_updated_while_its_host_is_switched_and_not_switched_while_it_is_updated(
    blueprint, ask, root, change, until
):
    """The one that has begun goes on, and the other waits for it."""
    blueprint("hosts", config={"provider": "hosts"}, max_resources=0)
    host = until(Resource.objects.get(pk=resources.register(root, "hosts", {"name": "host"}).id), state="active")
    blueprint(config=BASE)
    lease = until(ask(allowed_blueprints=["pool"]), state="active")
    Resource.objects.filter(pk=lease.resource_id).update(part_of=host)
    slow = {"does": "slow", "at": "update.restart", "polls": 1, "after": 3600}
    change({**MILD, "faults": [slow]})
    settled()
    resources.power(root, host.pk, "cycle")
    settled()
    power = Run.objects.get(phase="power")
    assert power.sentence.startswith(f"Waits until update of {lease.resource.name} can be interrupted.")
    assert Cloud("hosts").count("switch_off") == 0
    for _ in range(6):
        due()
    until(lease.resource, generation=2)
    assert Cloud("hosts").count("switch_off") == 1
    Blueprint.objects.filter(name="hosts").update(
        config={"provider": "hosts", "faults": [{"does": "slow", "at": "power.off", "polls": 1, "after": 3600}]}
    )
    resources.power(root, host.pk, "cycle")
    settled()
    change({**MILD, "traits": ["slow"]})
    settled()
    assert Run.objects.get(phase="update").sentence == "Waits until host has been switched."
    for _ in range(6):
        due()
    until(lease.resource, generation=3)


def test_cards_of_one_host_are_updated_together_and_hosts_one_after_the_other(blueprint, root, change, until):
    blueprint("hosts", config={"provider": "hosts"}, max_resources=0)
    hosts = [Resource.objects.get(pk=resources.register(root, "hosts", {"name": name}).id) for name in ("h1", "h2")]
    blueprint(config={**BASE, **LATER}, min_ready=4, max_outdated=1)
    while Resource.objects.filter(type="fake", state="active").exclude(blueprint__name="hosts").count() < 4:
        due()
    cards = list(Resource.objects.filter(blueprint__name="pool").order_by("pk"))
    for number, card in enumerate(cards):
        Resource.objects.filter(pk=card.pk).update(part_of=hosts[number % 2])
    change({**BLUE, **LATER})
    seen = set()
    for _ in range(40):
        due()
        going = Run.objects.filter(phase="update").values_list("resource__part_of", flat=True)
        assert len(set(going)) <= 1
        seen |= {(host, count) for host, count in Counter(going).items()}
        if not Resource.objects.filter(blueprint__name="pool", generation=1).exists():
            break
    assert set(Resource.objects.filter(blueprint__name="pool").values_list("generation", flat=True)) == {2}
    assert {(host.pk, 2) for host in hosts} <= seen


def test_no_update_begins_where_none_may(blueprint, ask, change, until):
    blueprint(config=BASE, max_outdated=0)
    lease = until(ask(), state="active")
    change(MILD)
    settled()
    lease.resource.refresh_from_db()
    assert lease.resource.generation == 1


def test_a_lease_is_not_transferred_during_a_forced_update(lease, root, change, django_user_model):
    django_user_model.objects.create_user("eve")
    change({**slots(BLUE), **LATER})
    resources.update(root, lease.resource_id, reason=WHY)
    settled()
    with pytest.raises(Busy):
        leases.transfer(root, lease.pk, to="eve")


def forced_life(owner: int) -> None:
    """Lease, change the config so that leases are disturbed, force the update, and end: in one process."""
    root = Caller(id=owner, name="root", operator=True)
    with hints.collected():
        asked = read({"type": "fake_activated", "idempotency_key": "once"})
        lease_id = request.request(asked, owner, actor="root").id
        _settle_while(lambda: Lease.objects.filter(pk=lease_id, state__in=["pending", "acquired"]).exists())
        pool = Blueprint.objects.get()
        if pool.config == BASE:
            blueprints.change(root, "pool", BlueprintChange(config=BLUE))
        resource = Resource.objects.get(gone_at=None)
        if resource.generation == 1:
            resources.update(root, resource.pk, reason=WHY)
        _settle_while(lambda: Resource.objects.filter(generation=1).exists())
        _settle_while(lambda: Lease.objects.filter(state="active").exclude(reason=Reason.READY).exists())


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(3))
def test_a_worker_may_die_anywhere_in_a_forced_update(blueprint, root, settings, tmp_path, part):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"step_token_seconds": 0.15})
    log = tmp_path / "points"

    def live():
        with log.open("a", buffering=1) as file:
            database.hook(lambda name: print(name, file=file) and None)
            forced_life(root.id)

    blueprint(kind="fake_activated", config=BASE)
    assert in_child(live) == 0
    passed = log.read_text().split()
    for number in range(part + 1, len(passed) + 1, 3):
        _reset()

        def die(number=number):
            database.hook(kill_at(number, passed[number - 1]))
            forced_life(root.id)

        assert in_child(die) == -signal.SIGKILL, f"it passed point {number} of {len(passed)}"
        forced_life(root.id)
        lease, resource = Lease.objects.get(), Resource.objects.get()
        when = f"killed at {number} ({passed[number - 1]})"
        assert (lease.state, resource.state, resource.generation, resource.in_maintenance) == (
            "active",
            "active",
            2,
            False,
        ), when
        assert accounts() == [(specs.key("l", lease.pk), "access"), (specs.key("l", lease.pk), "account")], when
        assert not Run.objects.exists(), when


def _reset():
    for model in (Run, Share, Event, Lease, Resource, FormerConfig):
        model.objects.all().delete()
    Blueprint.objects.update(config=BASE, generation=1)
    Cloud("t").forget()


class Careful(Fake):
    """Is not updated while leases hold it."""

    name = "careful"
    resource_type = "careful"
    forcible = False


class Other(FakeActivated):
    """Another kind of the same resource type."""

    name = "fake_other"


class Silent(Fake):
    """Does not say how a change disturbs leases, as it should."""

    name = "silent"
    resource_type = "silent"

    def __init__(self, said):
        self.said = said

    def disruption(self, before, after):
        if self.said is not None:
            raise self.said
        return self.said


class Skips(FakeActivated):
    """Begins each of its plans with a step that does not apply."""

    name = "skips"
    resource_type = "skips"

    def update(self):
        return (NEVER, *super().update())

    def activate(self):
        return (NEVER, *super().activate())

    def deactivate(self):
        return (NEVER, *super().deactivate())


NEVER = Step(name="never", act=lambda spec, memo: Ready(), applies=lambda config: False)
