"""Resources that do not answer: leases go elsewhere at once, everybody sees it, and recovery is noticed."""

from __future__ import annotations

import datetime as dt

import pytest
from django.contrib.auth.models import User

from blueprints.fake.cloud import Cloud
from blueprints.models import Blueprint
from leases.engine.core import specs
from leases.engine.lifecycle import release
from leases.messaging.inline import settle
from leases.models import Debt, Event, Lease, Resource
from leases.operations import attention, resources
from leases.operations.blueprints import add
from leases.operations.callers import caller
from leases.reasons import Reason

LONG_AGO = "2020-01-01T00:00Z"


@pytest.fixture
def operator():
    return caller(User.objects.create_superuser("root"))


@pytest.fixture
def cloud():
    return Cloud("default")


@pytest.fixture
def hosts(blueprint, operator, until):
    """Registered hosts of a kind that makes an account for every lease."""
    blueprint("lab", kind="fake_activated", resource_type="fake_activated")

    def make(*names: str) -> list[Resource]:
        found = [resources.register(operator, "lab", {"name": name}).id for name in names]
        Blueprint.objects.update(max_resources=len(names))
        return [until(Resource.objects.get(pk=pk), state="active") for pk in found]

    return make


def cut_off(cloud: Cloud, host: Resource) -> None:
    cloud.cut_off(specs.name_of(host))


def sweep_once(host: Resource, **columns) -> None:
    """The next check is due."""
    Resource.objects.filter(pk=host.pk).update(check_at=LONG_AGO, **columns)
    settle()
    host.refresh_from_db()


def test_a_lease_on_a_host_that_does_not_answer_is_tried_on_the_next_one_at_once(hosts, ask, cloud, operator):
    alpha, beta = hosts("alpha", "beta")
    cut_off(cloud, alpha)
    lease = ask("fake_activated")
    settle()
    lease.refresh_from_db()
    assert (lease.state, lease.resource_id, lease.bounces) == ("active", beta.pk, 0)
    assert not Event.objects.filter(kind="step.failed", resource=alpha, details__step="account").exists()
    alpha.refresh_from_db()
    assert (alpha.state, alpha.observed, alpha.used_slots) == ("active", "unreachable", 0)
    assert alpha.suspect_since is not None
    assert "does not answer" in alpha.message
    assert Event.objects.filter(kind="resource.unreachable", resource=alpha).count() == 1
    shown = {(one.what, one.id) for one in attention.needed(operator) if one.kind == "resource"}
    assert ("unreachable", alpha.pk) in shown
    others = [ask("fake_activated") for _ in range(3)]
    settle()
    assert not Lease.objects.filter(resource=alpha).exists(), "nobody is given a suspect host"
    assert {one.state for one in Lease.objects.filter(pk__in=[o.pk for o in others])} == {"pending"}


def test_a_host_that_answers_again_serves_at_its_next_check(hosts, ask, cloud, until):
    (alpha,) = hosts("alpha")
    cut_off(cloud, alpha)
    lease = ask("fake_activated")
    settle()
    lease.refresh_from_db()
    assert lease.state == "pending"
    cloud.connect(specs.name_of(alpha))
    sweep_once(alpha)
    assert alpha.suspect_since is None
    until(lease, state="active", resource_id=alpha.pk)
    assert Event.objects.filter(kind="resource.reachable", resource=alpha).exists()
    assert not Debt.objects.exists()


def test_why_a_lease_waits_says_that_its_host_does_not_answer(hosts, ask, cloud):
    (alpha,) = hosts("alpha")
    cut_off(cloud, alpha)
    lease = ask("fake_activated")
    settle()
    Lease.objects.filter(pk=lease.pk).update(parked=False, due_at=LONG_AGO)
    settle()
    lease.refresh_from_db()
    assert "does not answer (unreachable)" in str(lease.verdicts)


def test_the_next_check_of_a_silent_host_is_due_though_its_blueprint_asks_for_none(hosts, ask, cloud):
    (alpha,) = hosts("alpha")
    cut_off(cloud, alpha)
    sweep_once(alpha)
    assert alpha.suspect_since is None, "nobody asked, and no check is wanted"
    ask("fake_activated")
    settle()
    alpha.refresh_from_db()
    assert alpha.check_at - alpha.observed_at <= dt.timedelta(seconds=10.1)


def test_leases_on_a_silent_host_say_so_and_go_on(hosts, ask, cloud, until):
    (alpha,) = hosts("alpha")
    lease = until(ask("fake_activated"), state="active")
    cut_off(cloud, alpha)
    Blueprint.objects.update(check_interval=dt.timedelta(minutes=5))
    sweep_once(alpha)
    lease.refresh_from_db()
    assert (lease.state, lease.reason) == ("active", Reason.SUSPECTED)
    sweep_once(alpha)
    assert Event.objects.filter(kind="lease.suspected", lease=lease).count() == 1
    cloud.connect(specs.name_of(alpha))
    sweep_once(alpha)
    lease.refresh_from_db()
    assert (lease.state, lease.reason) == ("active", Reason.READY)


def test_leases_are_lost_after_the_limit_and_the_host_serves_again_once_it_answers(hosts, ask, cloud, until):
    (alpha,) = hosts("alpha")
    lease = until(ask("fake_activated"), state="active")
    cut_off(cloud, alpha)
    Blueprint.objects.update(check_interval=dt.timedelta(minutes=5))
    sweep_once(alpha)
    sweep_once(alpha, suspect_since=LONG_AGO)
    lease.refresh_from_db()
    assert (lease.state, alpha.quarantined) == ("broken", False)
    assert "Not reachable since 2020-01-01" in lease.message
    assert {one.what for one in cloud.left()} == {"account", "access"}
    cloud.connect(specs.name_of(alpha))
    sweep_once(alpha)
    until(alpha, in_maintenance=False, suspect_since=None)
    assert not cloud.left(), "what the lost lease had there is cleaned first"
    until(ask("fake_activated"), state="active")


def test_what_was_built_is_replaced_after_the_limit(blueprint, ask, cloud, until):
    made = blueprint("pool", kind="fake_activated", check_interval=dt.timedelta(minutes=5), max_resources=1)
    lease = until(ask("fake_activated"), state="active")
    host = Resource.objects.get(blueprint=made)
    cut_off(cloud, host)
    sweep_once(host)
    assert host.state == "active"
    sweep_once(host, suspect_since=LONG_AGO)
    until(lease, state="broken")
    until(host, state="broken")


def test_a_lease_that_ends_on_a_silent_host_is_cleaned_when_it_answers(hosts, ask, cloud, until):
    (alpha,) = hosts("alpha")
    lease = until(ask("fake_activated"), state="active")
    cut_off(cloud, alpha)
    release.release(lease.pk, actor="ada")
    until(lease, state="destroyed")
    alpha.refresh_from_db()
    assert (alpha.quarantined, alpha.in_maintenance, alpha.suspect_since is None) == (False, True, False)
    cloud.connect(specs.name_of(alpha))
    sweep_once(alpha)
    until(alpha, in_maintenance=False)
    assert not cloud.left()


def test_a_silent_host_is_reserved_for_nobody(hosts, ask, cloud, settings):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"head_reservation_seconds": 0.0})
    (alpha,) = hosts("alpha")
    cut_off(cloud, alpha)
    ask("fake_activated", exclusive=True)
    settle()
    settle()
    alpha.refresh_from_db()
    assert alpha.reserved_for_id is None


def test_new_blueprints_check_as_often_as_their_kind_says(operator):
    assert add(operator, "silent", "fake").check_interval is None
    from blueprints.models import Credential

    Credential.objects.create(name="k", secrets={"private_key": "x"})
    made = add(operator, "lab", "ssh_host", {"credential": "k"})
    assert made.check_interval == dt.timedelta(seconds=20)
