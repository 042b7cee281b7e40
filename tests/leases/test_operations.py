"""What one can ask of the engine, and who may."""

from __future__ import annotations

import datetime as dt

import pytest
from django.contrib.auth.models import Group, User

from blueprints.models import Blueprint, RememberedError
from drydock.core.errors import Conflict, InvalidRequest, NotAllowed, NotFound, NotSupported
from drydock_client.values import BlueprintChange, to_json
from leases.engine.core.transitions import StaleTransition
from leases.messaging import handlers, hints, inline
from leases.messaging.handlers import HANDLERS
from leases.messaging.inline import settle
from leases.models import Event, Lease, Resource
from leases.operations import blueprints, events, installation, leases, lifetimes, permissions, resources
from leases.operations.callers import caller


@pytest.fixture
def ada(owner):
    return caller(owner)


@pytest.fixture
def eve():
    return caller(User.objects.create_user("eve"))


@pytest.fixture
def root():
    return caller(User.objects.create_superuser("root"))


def ask(who, **given):
    pk = leases.request(who, {"type": "fake", **given})
    settle()
    return leases.get(who, pk)


class TestExplain:
    def test_it_says_what_would_come_and_writes_nothing(self, blueprint, ada):
        blueprint(config={"capacity": {"slots": 2}}, max_resources=1)
        explained = leases.explain(ada, {"type": "fake"})
        assert (explained.outcome, explained.message) == ("build", "pool would build one.")
        ask(ada)
        explained = leases.explain(ada, {"type": "fake"})
        assert (explained.outcome, explained.resource) == ("granted", Resource.objects.get().pk)
        ask(ada)
        explained = leases.explain(ada, {"type": "fake"})
        assert (explained.outcome, explained.reason) == ("wait", "waiting_room")
        full = f"{Resource.objects.get().name} is full (2 of 2 slots in use)"
        assert explained.verdicts[0].sentence == f"{full}; none of its leases has an end"
        refused = leases.explain(ada, {"type": "fake", "slots": 3})
        assert refused.outcome == "refuse"
        assert Lease.objects.count() == 2
        assert Resource.objects.get().used_slots == 2

    def test_a_quota_and_older_waiters_are_seen(self, blueprint, ada, root):
        blueprint(max_resources=1, config={"capacity": {"slots": 2}})
        ask(ada, slots=1)
        ask(ada, slots=2)
        explained = leases.explain(ada, {"type": "fake"})
        assert explained.waiting_before == 1
        permissions.set_quota(root, user="ada", limits={"max_leases": 1})
        assert leases.explain(ada, {"type": "fake"}).reason == "waiting_quota"

    def test_the_answer_is_json(self, blueprint, ada):
        blueprint()
        assert to_json(leases.explain(ada, {"type": "fake"}))["verdicts"][0]["answer"] == "build"


class TestOwners:
    def test_others_neither_see_nor_touch(self, blueprint, ada, eve):
        blueprint()
        lease = ask(ada)
        assert leases.list_(eve) == []
        for act in (leases.get, leases.release, leases.heartbeat, leases.hold, leases.unhold, leases.retry):
            with pytest.raises(NotFound):
                act(eve, lease.id)
        assert events.list_(eve) == []
        assert [e.to_state for e in events.list_(ada, kind="lease.") if e.to_state][-1] == "active"

    def test_operators_see_all_and_act_under_their_name(self, blueprint, ada, root):
        blueprint()
        lease = ask(ada)
        assert [found.id for found in leases.list_(root)] == [lease.id]
        leases.release(root, lease.id)
        settle()
        found = Event.objects.get(lease=lease.id, to_state="released")
        assert (found.actor, found.reason) == ("root", "released_by_operator")

    def test_only_operators_operate(self, blueprint, ada):
        blueprint()
        lease = ask(ada)
        assert [found.id for found in resources.list_(ada)] == [lease.resource]
        for act in (
            lambda: resources.drain(ada, lease.resource),
            lambda: resources.force_destroy(ada, lease.resource, reason="x"),
            lambda: blueprints.add(ada, "x", "fake"),
            lambda: blueprints.disable(ada, "pool"),
            lambda: permissions.authorize(ada, "pool", user="ada"),
            lambda: permissions.set_quota(ada, user="ada", limits={}),
            lambda: installation.reclaim(ada),
            lambda: installation.sweep_now(ada),
            lambda: leases.request(ada, {"type": "fake"}, owner="root"),
        ):
            with pytest.raises(NotAllowed):
                act()

    def test_an_operator_asks_for_somebody(self, blueprint, ada, root):
        blueprint()
        pk = leases.request(root, {"type": "fake"}, owner="ada")
        assert leases.get(ada, pk).owner == "ada"


class TestHolding:
    def test_no_lease_outlives_its_resource(self, blueprint, ada):
        blueprint(max_lifetime=dt.timedelta(hours=3))
        lease = ask(ada, ttl="1h")
        lifetimes.extend(ada, lease.id, ttl="2h")
        with pytest.raises(Conflict, match="no lease on it can last longer"):
            lifetimes.extend(ada, lease.id, ttl="4h")

    def test_a_held_lease_keeps_its_resource_until_the_hold_ends(self, blueprint, ada):
        blueprint(kind="fake_activated")
        pk = leases.request(ada, {"type": "fake_activated"})
        settle()
        leases.hold(ada, pk, ttl="1h", reason="a look at it")
        leases.release(ada, pk)
        settle()
        assert (leases.get(ada, pk).state, leases.get(ada, pk).reason) == ("released", "held")
        leases.unhold(ada, pk)
        settle()
        assert leases.get(ada, pk).state == "destroyed"

    def test_the_end_of_a_hold_leaves_a_lease_that_goes_on_to_its_owner(self, blueprint, ada):
        blueprint()
        lease = ask(ada)
        leases.hold(ada, lease.id, ttl="1h")
        with hints.collected() as sent:
            leases.unhold(ada, lease.id)
        for hint, args in sent:
            HANDLERS[hint](*args)
        assert leases.get(ada, lease.id).state == "active"
        leases.release(ada, lease.id)
        settle()
        assert leases.get(ada, lease.id).state == "destroyed"

    def test_an_owner_holds_for_a_week_at_most(self, blueprint, ada):
        blueprint()
        lease = ask(ada)
        with pytest.raises(InvalidRequest):
            leases.hold(ada, lease.id, ttl="30d")

    def test_lists_are_narrowed_by_label_name_state_and_group(self, blueprint, ada):
        blueprint()
        one = ask(ada, labels={"team": "a"}, name="one")
        two = ask(ada, labels={"team": "b"})
        assert [f.id for f in leases.list_(ada)] == [two.id, one.id]
        assert [f.id for f in leases.list_(ada, label="team=a")] == [one.id]
        assert len(leases.list_(ada, label="team")) == 2
        assert [f.id for f in leases.list_(ada, name="one")] == [one.id]
        assert leases.list_(ada, states=["broken"]) == []

    def test_what_another_lease_holds_is_not_released_alone(self, blueprint, ada):
        blueprint()
        lease = ask(ada)
        Lease.objects.filter(pk=lease.id).update(for_lease=lease.id, need="x")
        with pytest.raises(Conflict, match=r"belongs to lease .* and ends with it"):
            leases.release(ada, lease.id)

    def test_the_generated_key_is_shown_to_the_owner_alone_and_recorded(self, blueprint, ada, root):
        blueprint()
        lease = ask(ada)
        with pytest.raises(NotFound, match="no generated key"):
            leases.private_key(ada, lease.id)
        row = Lease.objects.get(pk=lease.id)
        row.secrets = {"private_key": "hush"}
        row.save(update_fields=["secrets"])
        with pytest.raises(NotFound):
            leases.private_key(root, lease.id)
        assert leases.private_key(ada, lease.id) == "hush"
        assert Event.objects.filter(kind="lease.key_shown", actor="ada").count() == 1
        assert "hush" not in str(list(Event.objects.values()))


class TestResources:
    def test_draining_gives_up_and_undraining_wakes(self, blueprint, ada, root):
        blueprint(max_resources=1)
        lease = ask(ada)
        resources.drain(root, lease.resource)
        leases.release(ada, lease.id)
        settle()
        assert Resource.objects.get().state == "destroyed"

    def test_quarantine_needs_a_note_and_its_end_wakes(self, blueprint, ada, root):
        blueprint(max_resources=1)
        lease = ask(ada)
        with pytest.raises(InvalidRequest):
            resources.quarantine(root, lease.resource, message=" ")
        assert resources.quarantine(root, lease.resource, message="odd noises").quarantined
        leases.release(ada, lease.id)
        second = ask(ada)
        assert second.state == "pending"
        resources.unquarantine(root, lease.resource)
        settle()
        assert leases.get(ada, second.id).state == "active"

    def test_a_held_resource_is_not_retired(self, blueprint, ada, root):
        blueprint()
        lease = ask(ada)
        with pytest.raises(Conflict, match="is leased or busy"):
            resources.retire(root, lease.resource)
        leases.release(ada, lease.id)
        resources.retire(root, lease.resource)
        settle()
        assert resources.list_(root) == []
        assert resources.list_(root, gone=True)[0].state == "destroyed"

    def test_force_closes_the_row_whatever_the_provider_says(self, blueprint, ada, root):
        blueprint(config={"faults": [{"does": "fail", "at": "destroy.delete", "times": None}]})
        lease = ask(ada)
        with pytest.raises(InvalidRequest):
            resources.force_destroy(root, lease.resource, reason="")
        forced = resources.force_destroy(root, lease.resource, reason="the account was closed")
        assert forced.gone_at is not None
        settle()
        assert leases.get(ada, lease.id).state == "broken"
        assert "the account was closed" in leases.get(ada, lease.id).message

    def test_power_and_checks_are_runs(self, blueprint, ada, root):
        blueprint(check_interval=dt.timedelta(hours=1))
        lease = ask(ada)
        resources.power(root, lease.resource, "cycle")
        with pytest.raises(Conflict, match="busy with power"):
            resources.check(root, lease.resource)
        settle()
        resources.check(root, lease.resource)
        settle()
        assert resources.get(root, lease.resource).observed == "ok"
        with pytest.raises(InvalidRequest):
            resources.power(root, lease.resource, "up")

    def test_registering_by_hand(self, blueprint, ada, root):
        blueprint()
        with pytest.raises(InvalidRequest) as wrong:
            resources.register(root, "pool", {"identity": "a"})
        assert wrong.value.field == "name"
        made = resources.register(root, "pool", {"name": "own"})
        settle()
        assert resources.get(root, made.id).state == "active"
        with pytest.raises(Conflict, match="already registered"):
            resources.register(root, "pool", {"name": "own"})


class TestBlueprints:
    def test_a_bad_config_is_refused_with_its_field(self, root):
        with pytest.raises(InvalidRequest) as wrong:
            blueprints.add(root, "pool", "fake", {"boot_polls": -1})
        assert wrong.value.field == "config.boot_polls"
        with pytest.raises(InvalidRequest) as wrong:
            blueprints.add(root, "Not A Name", "fake")
        assert wrong.value.field == "name"
        with pytest.raises(NotFound, match="Kind 'nothing' does not exist"):
            blueprints.add(root, "pool", "nothing")

    def test_one_is_added_checked_and_serves(self, root):
        made = blueprints.add(
            root, "pool", "fake", {"faults": [{"does": "fail", "at": "nowhere"}]},
            change=BlueprintChange(max_resources=3, idle_timeout="10m", audience="everyone"),
        )  # fmt: skip
        assert (made.enabled, made.type, made.idle_timeout) == (True, "fake", dt.timedelta(minutes=10))
        assert made.problems[0]["field"] == "faults.0.at"
        with pytest.raises(Conflict, match="already"):
            blueprints.add(root, "pool", "fake")
        assert leases.explain(root, {"type": "fake"}).outcome == "build"

    def test_another_config_is_another_generation_and_wakes_who_waits(self, blueprint, ada, root):
        blueprint(config={"catalogue": "stale"})
        lease = ask(ada)
        assert lease.reason == "waiting_catalogue"
        assert blueprints.change(root, "pool", BlueprintChange(note="x")).generation == 1
        changed = blueprints.change(root, "pool", BlueprintChange(config={}))
        assert (changed.generation, changed.config) == (2, {})
        settle()
        assert leases.get(ada, lease.id).state == "active"

    def test_columns_are_emptied_by_name(self, blueprint, root):
        blueprint(max_resources=1)
        assert blueprints.change(root, "pool", BlueprintChange(clear=["max_resources"])).max_resources is None
        with pytest.raises(InvalidRequest):
            blueprints.change(root, "pool", BlueprintChange(clear=["name"]))

    def test_its_owner_side_shows_no_config(self, blueprint, ada):
        blueprint(config={"boot_polls": 1})
        assert blueprints.get(ada, "pool").config == {}

    def test_what_kinds_understand(self):
        fake = blueprints.schema("fake")
        assert "boot_polls" in fake.config["properties"]
        assert {"builds", "registers", "powers"} <= set(fake.capabilities)


class TestAccess:
    def test_an_authorization_is_asked_for_approved_and_wakes(self, blueprint, ada, root):
        blueprint(audience=Blueprint.Audience.AUTHORIZED)
        asked = permissions.ask(ada, "pool", message="please")
        lease = ask(ada)
        assert lease.reason == "waiting_authorization"
        permissions.authorize(root, asked.blueprint, user=asked.user)
        settle()
        assert leases.get(ada, lease.id).state == "active"
        assert permissions.decline(root, "pool", user="ada").state == "declined"
        assert ask(ada).state == "broken"

    def test_a_group_is_authorized(self, blueprint, owner, ada, root):
        blueprint(audience=Blueprint.Audience.AUTHORIZED)
        owner.groups.add(Group.objects.create(name="crew"))
        permissions.authorize(root, "pool", group="crew")
        assert ask(ada).state == "active"
        assert [found.group for found in permissions.authorizations(ada)] == ["crew"]

    def test_raising_a_quota_serves_who_waits_for_it(self, blueprint, ada, root):
        blueprint()
        permissions.set_quota(root, user="ada", limits={"max_leases": 1})
        ask(ada)
        second = ask(ada)
        assert (second.state, second.reason) == ("pending", "waiting_quota")
        permissions.set_quota(root, user="ada", limits={"max_leases": None})
        settle()
        assert leases.get(ada, second.id).state == "active"
        with pytest.raises(InvalidRequest) as wrong:
            permissions.set_quota(root, user="ada", limits={"max_wishes": 3})
        assert wrong.value.field == "max_wishes"

    def test_limits_of_further_classes_are_set_one_by_one(self, ada, root):
        permissions.set_quota(root, user="ada", limits={"max_extra": {"gpu": 2, "fpga": 1}})
        quota = permissions.set_quota(root, user="ada", limits={"max_extra": {"gpu": None}})
        assert quota.max_extra == {"fpga": 1}
        for bad in (3, {"gpu": -1}, {"gpu": "many"}, {"slots": 2}, {"": 1}, {"x y": 1}):
            with pytest.raises(InvalidRequest):
                permissions.set_quota(root, user="ada", limits={"max_extra": bad})
        assert permissions.set_quota(root, user="ada", limits={"max_extra": None}).max_extra == {}


class TestUpkeep:
    def test_reclaiming_gives_up_what_is_idle(self, blueprint, ada, root):
        blueprint()
        kept = ask(ada)
        other = ask(ada)
        leases.release(ada, other.id)
        assert installation.reclaim(root) == [other.resource]
        settle()
        assert [found.id for found in resources.list_(root)] == [kept.resource]

    def test_a_forgotten_error_is_tried_again(self, blueprint, ada, root):
        pool = blueprint()
        RememberedError.objects.create(blueprint=pool, scope="blueprint", message="broke", until=None)
        lease = ask(ada)
        assert lease.state == "pending"
        assert blueprints.get(root, "pool").errors[0]["message"] == "broke"
        assert installation.clear_errors(root, blueprint="pool") == 1
        settle()
        assert leases.get(ada, lease.id).state == "active"

    def test_a_held_step_goes_on_when_its_person_is_done(self, blueprint, ada, root):
        blueprint(config={"faults": [{"does": "hold", "at": "build.boot", "who": "the hands", "what": "Plug it in."}]})
        lease = ask(ada)
        assert (lease.progress.waits_for, lease.progress.who) == ("operator", "the hands")
        with pytest.raises(NotFound):
            installation.resolve(root, lease_id=lease.id)
        installation.resolve(root, resource_id=lease.resource, message="plugged in")
        assert Event.objects.filter(kind="step.resolved", actor="root").exists()

    def test_a_sweep_that_meets_others_at_work_goes_on(self, blueprint, ada, root, monkeypatch):
        blueprint()
        leases.request(ada, {"type": "fake"})

        def race(resource_type):
            raise StaleTransition("another was faster")

        monkeypatch.setitem(handlers.HANDLERS, "serve", race)
        assert installation.sweep_now(root) > 0
        with pytest.raises(ExceptionGroup):
            inline.settle()

    def test_a_sweep_without_workers_carries_out_what_is_due(self, blueprint, ada, root):
        blueprint()
        pk = leases.request(ada, {"type": "fake"})
        assert installation.sweep_now(root) > 0
        assert leases.get(ada, pk).state == "active"


def test_events_are_followed_by_their_ids(blueprint, ada):
    blueprint()
    lease = ask(ada)
    seen = []
    for event in events.follow(ada, lease_id=lease.id, after=0, every=0, stop=lambda: len(seen) >= 3):
        seen.append(event.to_state or event.kind)
        if len(seen) == 3:
            break
    assert seen[0] == "pending"
    assert len({e.id for e in events.list_(ada)}) == len(events.list_(ada))


def test_power_is_refused_where_the_kind_has_none(blueprint, ada, root):
    blueprint(config={"lacks": ["powers"]})
    lease = ask(ada)
    with pytest.raises(NotSupported):
        resources.power(root, lease.resource, "on")


def test_a_kind_that_has_only_so_many_resources_is_the_limit_of_its_blueprints(root):
    made = blueprints.add(root, "here", "local_host", enabled=False)
    assert made.max_resources == 1
    with pytest.raises(InvalidRequest, match="at most 1 resource, not 2") as refused:
        blueprints.add(root, "there", "local_host", change=BlueprintChange(max_resources=2), enabled=False)
    assert refused.value.field == "max_resources"
    with pytest.raises(InvalidRequest, match="at most 1 resource, not 3"):
        blueprints.change(root, "here", BlueprintChange(max_resources=3))
    assert blueprints.change(root, "here", BlueprintChange(clear=("max_resources",))).max_resources == 1
    assert blueprints.change(root, "here", BlueprintChange(max_resources=0)).max_resources == 0


def test_no_face_tells_an_owner_the_ids_of_others_leases(blueprint, ada, eve, root):
    """Their leases have ids that nothing else has by chance."""
    from django.db import connection

    from leases.operations import attention

    with connection.cursor() as cursor:
        cursor.execute("SELECT setval(pg_get_serial_sequence('leases_lease', 'id'), 987654321)")
    blueprint(config={"capacity": {"slots": 3}}, max_resources=1)
    others = [ask(ada).id, ask(ada).id]
    with connection.cursor() as cursor:
        cursor.execute("SELECT setval(pg_get_serial_sequence('leases_lease', 'id'), 500)")
    own = ask(eve)
    waiting = ask(eve)
    with connection.cursor() as cursor:
        cursor.execute("SELECT setval(pg_get_serial_sequence('leases_lease', 'id'), 987655555)")
    others.append(ask(ada).id)
    assert all(str(pk).startswith("98765") for pk in others)
    Resource.objects.update(
        reserved_for_id=others[0], facts={"aside": [f"/srv/homes/dd-1-l{others[0]}"], "os": "linux"}
    )
    told = [
        resources.get(eve, own.resource), resources.list_(eve), leases.get(eve, own.id), leases.get(eve, waiting.id),
        leases.list_(eve), events.list_(eve), leases.explain(eve, {"type": "fake"}), attention.needed(eve),
    ]  # fmt: skip
    assert resources.get(eve, own.resource).leases == (own.id,)
    assert resources.get(eve, own.resource).reserved_for is None
    assert resources.get(eve, own.resource).facts == {"os": "linux"}
    assert "aside" in resources.get(root, own.resource).facts
    assert "98765" not in repr([to_json(one) for one in told])
    assert set(others[:2]) < set(resources.get(root, own.resource).leases)
