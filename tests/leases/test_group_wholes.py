"""Groups with `same: whole`: a host and what is built on its devices, granted together once everything is built."""

from __future__ import annotations

import pytest

from blueprints.fake.cloud import Cloud
from blueprints.models import RememberedError
from chaos.proof import tree_violations
from drydock.core.errors import InvalidRequest
from leases.engine.core import workers
from leases.engine.lifecycle import release
from leases.engine.resources import retirement
from leases.engine.scheduling import request
from leases.engine.upkeep import sweep
from leases.messaging.inline import settle
from leases.models import Event, Lease, Resource, Run, Share
from leases.operations import callers, leases, resources
from leases.reasons import Reason
from leases.validation.requests import read

PAST = "2020-01-01T00:00Z"
HOST = {"type": "fake", "exclusive": True}
DPU = {"type": "fake_reported"}
CARRIER = {"name": "card", "type": "fake_activated"}


@pytest.fixture(autouse=True)
def _rules_hold():
    yield
    assert tree_violations() == []


def maintenance(action, at):
    return {"does": "need_maintenance", "at": at, "relation": "card.host", "action": action}


VACATE, CYCLE = maintenance("vacate", "build.create"), maintenance("power_cycle", "build.verify")


@pytest.fixture
def hosts(blueprint, django_user_model, until):
    """Make a host with cards: `hosts("lab", cards=2)`. Its provider counts its power cycles."""
    workers.seen("elsewhere:1")
    root = callers.caller(django_user_model.objects.create_superuser("root"))
    config = {"provider": "hosts", "capacity": {"slots": 4}, "poll_seconds": 0}
    blueprint("hosts", config=config, max_resources=0)
    pool = blueprint("cards", kind="fake_activated", config={"provider": "cards", "poll_seconds": 0}, max_resources=0)

    def make(name="lab", *, cards=1):
        host = until(Resource.objects.get(pk=resources.register(root, "hosts", {"name": name}).id), state="active")
        for n in range(1, cards + 1):
            Resource.objects.create(
                blueprint=pool, type="fake_activated", name=f"{name}-card-{n}", state="active", part_of=host,
                origin="discovered",
            )  # fmt: skip
        return host

    return make


@pytest.fixture
def dpus(blueprint):
    """A blueprint that builds each DPU on a card: it vacates the host of the card, and power-cycles it."""

    def make(*faults, name="dpus", **columns):
        config = {"provider": name, "carrier": CARRIER, "poll_seconds": 0, "faults": list(faults)}
        return blueprint(name, kind="fake_reported", config=config, **columns)

    return make


@pytest.fixture
def group(owner):
    def make(*asked, same="whole", by=None, **given):
        _, ids = request.request_group([read(one) for one in asked], (by or owner).pk, actor="ada", same=same, **given)
        return list(Lease.objects.filter(pk__in=ids).order_by("id"))

    return make


def names(found):
    held = dict(Share.objects.filter(lease__in=found).values_list("lease", "resource__name"))
    return [held.get(one.pk, "") for one in found]


def states(found):
    return list(Lease.objects.filter(pk__in=[one.pk for one in found]).order_by("pk").values_list("state", flat=True))


def messages(found):
    return set(Lease.objects.filter(pk__in=[one.pk for one in found]).values_list("message", flat=True))


def carried(name_of_card):
    """The name of the resource that is built on a card and still exists."""
    return list(Resource.objects.filter(part_of__name=name_of_card, gone_at=None).values_list("name", flat=True))


def cycles():
    return sum(one.cycles for one in Cloud("hosts").instances())


def finish(rounds=12):
    """Carry out everything, also what waits for later."""
    for _ in range(rounds):
        if not Run.objects.exists() and not Lease.objects.filter(state="pending").exists():
            return
        Run.objects.filter(waits_for="", due_at__isnull=False).update(due_at=PAST)
        Lease.objects.filter(state="pending").update(due_at=None)
        settle()


def test_a_host_and_a_dpu_that_is_built_on_its_card_are_one_request(hosts, dpus, group):
    hosts()
    dpus()
    found = group(HOST, DPU)
    finish(4)
    (dpu,) = carried("lab-card-1")
    assert names(found) == ["lab", dpu]
    assert states(found) == ["active", "active"]
    assert not Resource.objects.exclude(reserved_for=None).exists()


def test_the_host_is_granted_only_once_the_dpu_is_built_and_is_kept_for_the_group_until_then(hosts, dpus, group, ask):
    hosts()
    dpus({"does": "slow", "at": "build.verify", "polls": 1, "after": 600})
    found = group(HOST, DPU)
    settle()
    (dpu,) = carried("lab-card-1")
    assert states(found) == ["pending", "pending"]
    said = f"The leases of the group are granted together in lab, where {dpu} on lab-card-1 is being built."
    assert messages(found) == {said}
    assert ask().state == "pending", "the host is kept"
    assert ask("fake_activated").state == "pending", "and so are its cards"
    for _ in range(3):
        Lease.objects.filter(group__isnull=False).update(due_at=None)
        settle()
    assert Resource.objects.filter(type="fake_reported").count() == 1, "it is built once"
    kinds = Event.objects.filter(lease=found[0], kind__startswith="lease.waiting").values_list("kind", flat=True)
    assert list(kinds) == ["lease.waiting_group"]
    finish(2)
    assert states(found) == ["active", "active"]


def test_what_the_build_does_to_the_host_waits_for_nobody_in_the_group_and_reboots_it_once(hosts, dpus, group):
    host = hosts(cards=2)
    both = {"does": "slow", "at": "build.flash", "polls": 1, "after": 600, "each": True}
    dpus(VACATE, both, CYCLE)
    found = group(HOST, DPU, DPU)
    settle()
    settle()
    assert set(Run.objects.filter(phase="build").values_list("step", flat=True)) == {"flash"}
    assert set(states(found)) == {"pending"}
    finish()
    assert names(found) == ["lab", *carried("lab-card-1"), *carried("lab-card-2")]
    assert set(states(found)) == {"active"}
    assert cycles() == 1
    host.refresh_from_db()
    assert not host.in_maintenance


def test_an_idle_dpu_on_a_card_of_the_host_is_taken_with_the_whole_host(hosts, dpus, group, ask, until):
    hosts()
    dpus(VACATE)
    first = until(ask("fake_reported"), state="active")
    dpu = carried("lab-card-1")
    assert Resource.objects.get(name=dpu[0]).part_of.name == "lab-card-1"
    free(first)
    found = group(HOST, DPU)
    settle()
    assert names(found) == ["lab", *dpu]
    assert Resource.objects.filter(type="fake_reported").count() == 1


def free(*found):
    for one in found:
        release.release(one.pk, actor="ada")
    settle()


def test_a_dpu_in_a_host_that_is_held_whole_serves_nobody_else(hosts, dpus, group, ask):
    hosts()
    dpus(max_resources=1)
    found = group(HOST, DPU)
    finish(3)
    free(found[1])
    assert states(found) == ["active", "destroyed"]
    other = ask("fake_reported")
    settle()
    other.refresh_from_db()
    assert other.state == "pending", "a stranger on the DPU would be in the host that is held whole"
    assert "lab is held whole by another lease" in other.message
    free(found[0])
    finish(2)
    assert states([other]) == ["active"]


def test_an_idle_dpu_serves_nobody_while_its_host_is_about_to_be_rebooted(hosts, dpus, ask, until):
    hosts(cards=2)
    pool = dpus()
    first = until(ask("fake_reported"), state="active")
    idle = first.resource
    free(first)
    slow = {"does": "slow", "at": "build.flash", "polls": 1, "after": 600}
    config = pool.config | {"faults": [VACATE, slow, CYCLE], "provider": "others", "attributes": {"color": "red"}}
    type(pool).objects.create(
        name="others", kind="fake_reported", resource_type="fake_reported", config=config, audience="everyone"
    )
    red = ask("fake_reported", requirements={"color": "red"})
    settle()
    settle()
    assert Resource.objects.get(name="lab").in_maintenance
    late = ask("fake_reported")
    settle()
    late.refresh_from_db()
    assert late.resource_id != idle.pk
    finish()
    assert states([red, late]) == ["active", "active"]
    assert cycles() == 1


def test_a_release_in_mid_build_frees_the_host_and_ends_the_build(hosts, dpus, group, ask, until):
    hosts()
    dpus(VACATE, {"does": "slow", "at": "build.boot", "polls": 1, "after": 600})
    found = group(HOST, DPU)
    settle()
    assert carried("lab-card-1")
    free(found[1])
    finish(4)
    settle()
    assert states(found) == ["destroyed", "destroyed"]
    assert carried("lab-card-1") == []
    assert not Resource.objects.exclude(reserved_for=None).exists()
    assert not Resource.objects.get(name="lab").in_maintenance
    until(ask(exclusive=True), state="active")


@pytest.mark.parametrize("same", ["whole", "host"])
def test_two_groups_that_want_one_host_get_it_one_after_the_other(hosts, dpus, group, django_user_model, same):
    hosts()
    dpus(VACATE, CYCLE)
    first, second = group(HOST, DPU), group(HOST, DPU, same=same, by=django_user_model.objects.create_user("bob"))
    finish(6)
    assert states(first) == ["active", "active"]
    assert states(second) == ["pending", "pending"]
    assert "lab has only 0 of 1 fake (exclusive), 0 of 1 fake_reported free" in messages(second).pop()
    free(*first)
    finish(3)
    assert names(second) == ["lab", *carried("lab-card-1")]
    assert cycles() == 1, "the DPU was built once"


def test_two_groups_build_in_two_hosts_at_the_same_time(hosts, dpus, group, django_user_model):
    hosts("one")
    hosts("two")
    dpus(VACATE, {"does": "slow", "at": "build.boot", "polls": 1, "after": 600, "each": True}, CYCLE)
    both = group(HOST, DPU), group(HOST, DPU, by=django_user_model.objects.create_user("bob"))
    settle()
    settle()
    assert Run.objects.filter(phase="build", step="boot").count() == 2
    finish(8)
    assert [states(one) for one in both] == [["active", "active"]] * 2
    assert sorted(names(both[0])[:1] + names(both[1])[:1]) == ["one", "two"]


def test_a_failed_build_frees_the_host_and_the_group_goes_to_another_one(hosts, dpus, group, ask):
    hosts("one")
    hosts("two")
    fail = {"does": "fail", "at": "build.create", "scope": "offer", "message": "bad flash"}
    dpus(fail)
    found = group(HOST, DPU)
    for _ in range(3):
        settle()
    assert states(found) == ["pending", "pending"]
    assert "bad flash" in Lease.objects.get(pk=found[1].pk).message
    assert not Resource.objects.exclude(reserved_for=None).exists()
    assert ask(exclusive=True).state == "active", "host one is free again"
    RememberedError.objects.all().delete()
    finish(4)
    assert names(found) == ["two", *carried("two-card-1")]


def test_after_a_failed_build_another_card_is_tried_first(hosts, dpus, group):
    hosts(cards=2)
    dpus({"does": "fail", "at": "build.create", "scope": "offer"})
    found = group(HOST, DPU)
    for _ in range(3):
        settle()
    RememberedError.objects.all().delete()
    finish(4)
    assert names(found) == ["lab", *carried("lab-card-2")]


def test_an_idle_dpu_of_another_blueprint_makes_room_on_its_card(hosts, dpus, group, ask, until):
    hosts()
    old = dpus(name="old")
    free(until(ask("fake_reported"), state="active"))
    old.enabled = False
    old.save()
    dpus(name="new")
    found = group(HOST, DPU)
    finish(6)
    (dpu,) = carried("lab-card-1")
    assert (names(found), dpu.startswith("new")) == (["lab", dpu], True)


def test_a_group_waits_for_a_host_that_could_serve_it_and_says_what_it_lacks(hosts, dpus, group, ask, until):
    hosts()
    dpus()
    tenant = until(ask("fake_activated"), state="active")
    found = group(HOST, DPU)
    settle()
    said = messages(found).pop()
    lacks = "lab has only 0 of 1 fake (exclusive), 0 of 1 fake_reported free: lab-card-1 below it is leased"
    assert said == f"The 2 leases of the group are granted together in one host. {lacks} by another lease."
    assert not Resource.objects.filter(type="fake_reported").exists(), "nothing is built in vain"
    free(tenant)
    finish(4)
    assert states(found) == ["active", "active"]


def test_hosts_without_a_card_or_with_a_drained_one_are_left_out(hosts, dpus, group):
    hosts("bare", cards=0)
    hosts("drained")
    Resource.objects.filter(name="drained-card-1").update(drained=True)
    hosts("lab")
    dpus()
    found = group(DPU, {"type": "fake"})
    finish(4)
    assert names(found) == [*carried("lab-card-1"), "lab"]


def test_explain_says_what_would_be_built_in_which_host_and_writes_nothing(hosts, dpus, owner):
    hosts()
    hosts("bare", cards=0)
    dpus()
    told = leases.explain_group(callers.caller(owner), [HOST, DPU], same="whole")
    assert (told.outcome, told.message) == (
        "build",
        "The 2 leases of the group are granted together once everything is built in one host. dpus would build what is "
        "missing.",
    )
    assert [(one.blueprint, one.answer, one.sentence) for one in told.verdicts][:2] == [
        ("lab", "build", "lab has room for all of them once resources are built on lab-card-1."),
        ("bare", "no", "bare has only 0 of 1 fake_reported."),
    ]
    assert not Lease.objects.exists()


def test_a_group_that_lost_its_dpu_before_the_grant_builds_another(hosts, dpus, group):
    hosts(cards=2)
    dpus({"does": "slow", "at": "build.boot", "polls": 1, "after": 600})
    found = group({"type": "fake"}, DPU)
    settle()
    Resource.objects.filter(name="lab-card-1").update(drained=True)
    (dpu,) = Resource.objects.filter(type="fake_reported")
    retirement.lose(dpu.pk, reason=Reason.LOST, message="pulled out")
    finish(6)
    assert names(found) == ["lab", *carried("lab-card-2")]


def test_a_group_in_one_host_is_refused_with_near_if_things_are_built(owner):
    with pytest.raises(InvalidRequest) as refused:
        leases.request_group(callers.caller(owner), [HOST, DPU], same="whole", near="prefer")
    assert (refused.value.problems[0].field, refused.value.hint) == ("near", "Omit near, or set same to host.")


def test_an_unknown_rule_is_refused_with_those_that_are_allowed(owner):
    with pytest.raises(InvalidRequest) as refused:
        leases.request_group(callers.caller(owner), [HOST, DPU], same="whale")
    assert (refused.value.problems[0].field, refused.value.hint) == (
        "same",
        "Choose one of: resource, parent, host, whole.",
    )


def test_limits_that_do_not_allow_all_builds_allow_none(hosts, dpus, group):
    hosts(cards=2)
    pool = dpus(max_resources=1)
    found = group(DPU, DPU)
    settle()
    assert messages(found) == {
        "The leases of the group wait until limits of blueprint dpus allow all that they lack to be built."
    }
    assert not Resource.objects.filter(type="fake_reported").exists()
    assert not Resource.objects.exclude(reserved_for=None).exists()
    pool.max_resources = 2
    pool.save()
    finish(4)
    assert states(found) == ["active", "active"]


def test_a_group_stays_with_a_host_that_does_not_answer_for_a_moment_after_the_build(hosts, dpus, group):
    host = hosts("one")
    hosts("two")
    dpus({"does": "slow", "at": "build.verify", "polls": 1, "after": 600})
    found = group(HOST, DPU)
    settle()
    Resource.objects.filter(pk=host.pk).update(suspect_since=PAST, check_at="2099-01-01T00:00Z")
    finish(3)
    assert messages(found) == {"The leases of the group are granted together in one, which does not answer."}
    assert Resource.objects.filter(type="fake_reported").count() == 1
    Resource.objects.filter(pk=host.pk).update(suspect_since=None)
    finish(2)
    assert names(found) == ["one", *carried("one-card-1")]


def test_a_build_for_a_group_without_this_rule_goes_on_when_the_group_ends(hosts, dpus, group):
    hosts()
    dpus({"does": "slow", "at": "build.verify", "polls": 1, "after": 600}, max_resources=1)
    found = group(DPU, DPU, same="")
    settle()
    (dpu,) = carried("lab-card-1")
    free(found[0])
    for _ in range(2):
        sweep.sweep()
        settle()
    finish(3)
    assert states(found) == ["destroyed", "destroyed"]
    assert Resource.objects.get(name=dpu).state == "active"


@pytest.mark.parametrize("same", ["host", ""])
def test_only_a_group_in_one_host_leases_a_host_whole_around_an_idle_dpu(hosts, dpus, group, ask, until, same):
    hosts()
    dpus()
    free(until(ask("fake_reported"), state="active"))
    found = group(HOST, DPU, same=same)
    finish(2)
    assert states(found) == (["active"] * 2 if same else ["pending"] * 2)


def test_a_step_that_blames_the_carrier_quarantines_it_and_not_another_one(hosts, dpus, ask):
    hosts(cards=2)
    blamed = {"does": "fail", "at": "build.create", "scope": "offer", "quarantines_carrier": True, "message": "Broken."}
    dpus({**blamed, "remember": 0})
    ask("fake_reported")
    settle()
    bad = Resource.objects.get(type="fake_activated", quarantined=True)
    assert bad.note == "Broken."
    assert Event.objects.filter(kind="resource.quarantined", resource=bad).count() == 1
    assert Resource.objects.get(type="fake_activated", quarantined=False).part_of_id == bad.part_of_id


def test_a_step_tells_the_health_of_the_carrier_which_the_next_build_may_take_back(hosts, dpus, ask, until):
    hosts()
    dpus(
        {"does": "carrier_sick", "at": "destroy.*"},
        {"does": "carrier_sick", "at": "build.verify", "state": "ok", "skip": 1},
    )
    lease = until(ask("fake_reported"), state="active")
    card = Resource.objects.get(type="fake_activated")
    assert card.health == "ok"
    release.release(lease.pk, actor="ada")
    settle()
    retirement.retire_idle(lease.resource_id, reason=Reason.OPERATOR, message="The test says so.")
    settle()
    until(card, health="degraded")
    assert card.health_reason == "The fault plan has left something on it."
    until(ask("fake_reported"), state="active")
    until(card, health="ok")
