"""What lost leases left on a resource that goes on is cleaned before anybody else gets it."""

from __future__ import annotations

import datetime as dt

import pytest
from django.db import transaction

from blueprints import registry
from blueprints.contract import CatalogueStale
from blueprints.fake.cloud import Cloud
from blueprints.fake.kind import FakeActivated
from blueprints.models import Blueprint
from blueprints.specs import Draft
from leases.engine.lifecycle import release
from leases.engine.resources import provision, retirement
from leases.messaging.inline import settle
from leases.models import Debt, Event, Lease, Resource, Run, Share
from leases.operations import resources
from leases.operations.callers import caller
from leases.reasons import Reason
from tests.leases import kinds


class Rack(FakeActivated):
    """Registered by hand only: never built, never destroyed."""

    name = "rack"
    resource_type = "rack"

    def drafts(self, config, asked):
        raise CatalogueStale("none can be built")


class Spoiling(Rack):
    """Its leases may change it for good."""

    name = "spoiling"
    resource_type = "spoiling"
    reusable = False


@pytest.fixture(autouse=True)
def _kinds():
    with kinds.installed(Rack(), Spoiling()):
        yield


@pytest.fixture(autouse=True)
def _two_tries(settings):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"step_retry_limit": 2})


@pytest.fixture
def cloud():
    return Cloud("t")


@pytest.fixture
def operator(django_user_model):
    return caller(django_user_model.objects.create_superuser("root"))


def faulty(*faults, **config):
    return {"provider": "t", "poll_seconds": 0.01, "faults": list(faults), "capacity": {"slots": 4}, **config}


def sick(name="sick"):
    """Checks fail, and so does everything on it, as long as the blueprint says so."""
    return [
        {"does": "fail", "at": at, "scope": "step", "times": None, "message": "no route to host", "name": f"{name}{n}"}
        for n, at in enumerate(("check.look", "deactivate.*", "clean.*", "activate.access"))
    ]


def register(made: Blueprint, name="rack-7") -> Resource:
    draft = Draft(identity=name, name=name, capacity=registry.kind(made.kind).register(
        registry.kind(made.kind).Config.model_validate(made.config),
        registry.kind(made.kind).Registration(name=name)).capacity)  # fmt: skip
    with transaction.atomic():
        room = provision.insert(made, draft, actor="op", message="Registered.", origin="registered")
    return Resource.objects.get(pk=room.resource_id)


def falls_ill(made: Blueprint) -> None:
    Blueprint.objects.filter(pk=made.pk).update(config=faulty(*sick()), check_interval=dt.timedelta(milliseconds=1))
    Resource.objects.update(check_at="2020-01-01T00:00Z")


def recovers(made: Blueprint) -> None:
    Blueprint.objects.filter(pk=made.pk).update(config=faulty())


@pytest.fixture
def evicted(blueprint, ask, until):
    """A registered host whose lease was lost: (blueprint, host, lease)."""

    def make(kind="rack", **given):
        made = blueprint(kind=kind, config=faulty())
        host = until(register(made), state="active")
        lease = until(ask(kind, **given), state="active")
        falls_ill(made)
        until(lease, state="broken")
        until(host, quarantined=True)
        return made, host, lease

    return make


def test_what_an_evicted_lease_left_is_cleaned_when_the_host_answers_again(evicted, until, cloud):
    made, host, lease = evicted()
    assert {one.what for one in cloud.left()} == {"account", "access"}
    host.refresh_from_db()
    assert (host.claimable, host.used_slots, host.reason) == (False, 0, Reason.CLEANING)
    assert Debt.objects.get().lease_id == lease.pk
    recovers(made)
    until(host, in_maintenance=False, reason=Reason.READY)
    assert not cloud.left()
    assert not Debt.objects.exists()
    assert Event.objects.filter(kind="resource.cleaned", resource=host, lease=lease).exists()


def test_a_quarantine_that_is_lifted_early_gives_the_host_to_nobody_before_it_is_clean(
    evicted, ask, until, cloud, operator
):
    made, host, _ = evicted()
    settle()
    shown = resources.unquarantine(operator, host.pk)
    assert (shown.quarantined, shown.in_maintenance, shown.reason) == (False, True, Reason.CLEANING)
    assert "The resource is cleaned up after a lost lease before it is leased again" in shown.message
    other = ask("rack")
    for _ in range(3):
        settle()
        other.refresh_from_db()
        assert other.state == "pending"
    until(host, reason=Reason.CLEANING, in_maintenance=True)
    assert "no route to host" in Resource.objects.get().message
    recovers(made)
    resources.unquarantine(operator, host.pk)
    until(other, state="active")
    assert {one.lease for one in cloud.left()} == {f"{other_key(other)}"}


def other_key(lease: Lease) -> str:
    from leases.engine.core import specs

    return specs.key("l", lease.pk)


def test_an_evicted_lease_that_was_being_set_up_goes_elsewhere_and_leaves_nothing_behind(blueprint, ask, until, cloud):
    fault = {"does": "slow", "at": "activate.access", "polls": 9, "after": 60, "keys": "*"}
    made = blueprint(kind="rack", config=faulty(fault))
    first = until(register(made), state="active")
    lease = ask("rack")
    settle()
    assert Run.objects.get(lease=lease).step == "access"
    second = until(register(made, "rack-8"), state="active")
    Blueprint.objects.update(config=faulty(*sick()), check_interval=dt.timedelta(milliseconds=1))
    Resource.objects.filter(pk=first.pk).update(check_at="2020-01-01T00:00Z")
    Resource.objects.filter(pk=second.pk).update(check_at=None)
    until(first, quarantined=True)
    recovers(made)
    until(lease, state="active")
    assert lease.resource_id == second.pk
    until(first, in_maintenance=False)
    assert {one.lease for one in cloud.left()} == {other_key(lease)}
    assert len({one.key for one in cloud.left()}) == 1


def test_a_released_lease_whose_cleaning_was_under_way_is_cleaned_later(blueprint, ask, until, cloud):
    made = blueprint(kind="rack", config=faulty())
    host = until(register(made), state="active")
    lease = until(ask("rack"), state="active")
    slow = {"does": "slow", "at": "clean.wipe", "polls": 9, "after": 60}
    remove = {"does": "fail", "at": "deactivate.account", "scope": "step", "times": 1}
    Blueprint.objects.update(config=faulty(slow, remove))
    release.release(lease.pk, actor="ada")
    settle()
    falls_ill(made)
    until(lease, state="destroyed")
    until(host, quarantined=True)
    assert Debt.objects.exists()
    recovers(made)
    until(host, in_maintenance=False)
    assert not cloud.left()


def test_handing_the_host_back_pays_what_it_owes(evicted, until, cloud):
    made, host, _ = evicted()
    recovers(made)
    Debt.objects.update(due_at="2100-01-01T00:00Z")
    retirement.retire_idle(host.pk, reason=Reason.OPERATOR, message="enough")
    until(host, state="destroyed")
    assert not Debt.objects.exists()
    assert not Run.objects.exists()
    assert not cloud.left()


def test_what_cannot_be_cleaned_after_a_lease_is_cleaned_before_the_quarantine_ends(
    blueprint, ask, until, cloud, operator
):
    made = blueprint(kind="rack", config=faulty())
    host = until(register(made), state="active")
    lease = until(ask("rack"), state="active")
    Blueprint.objects.update(config=faulty(*sick()))
    release.release(lease.pk, actor="ada")
    until(lease, state="destroyed")
    until(host, quarantined=True)
    assert cloud.left()
    resources.unquarantine(operator, host.pk)
    other = ask("rack")
    settle()
    other.refresh_from_db()
    assert other.state == "pending"
    recovers(made)
    resources.unquarantine(operator, host.pk)
    until(other, state="active")
    assert {one.lease for one in cloud.left()} == {other_key(other)}


def test_a_host_that_its_lease_could_spoil_waits_for_its_operator_after_the_cleaning(evicted, until, operator):
    made, host, _ = evicted("spoiling")
    resources.unquarantine(operator, host.pk)
    recovers(made)
    Debt.objects.update(due_at="2020-01-01T00:00Z")
    until(host, in_maintenance=False, quarantined=True)
    assert "re-imaged" in host.note


def test_a_check_that_succeeds_makes_debts_due_at_once(evicted, until, cloud):
    made, host, _ = evicted()
    settle()
    Debt.objects.update(due_at="2100-01-01T00:00Z")
    recovers(made)
    until(host, in_maintenance=False, observed="ok")
    assert not cloud.left()
    assert not Share.objects.exists()
