"""What stands on others, when those are lost: chains of resources and of leases, down to the last one."""

from __future__ import annotations

import datetime as dt

import pytest
from django.db import transaction

from blueprints import registry
from blueprints.contract import CatalogueStale
from blueprints.fake.cloud import Cloud
from blueprints.fake.kind import Fake, FakeActivated
from blueprints.models import Blueprint
from blueprints.specs import Draft
from leases.engine.resources import provision, retirement
from leases.messaging.inline import settle
from leases.models import Debt, Event, Lease, Resource, Run, Share
from leases.reasons import Reason
from tests.leases import kinds


class Host(FakeActivated):
    """Registered by hand, with an account for every lease."""

    name = "bare"
    resource_type = "bare"

    def drafts(self, config, asked):
        raise CatalogueStale("none can be built")


class Disk(Fake):
    """Stands on a host: its destruction sees the host as its lease last had it."""

    name = "disk"
    resource_type = "disk"
    gone_with_needs = True
    seen: list = []

    def destroy(self):
        first, *rest = super().destroy()

        def look(spec, memo):
            self.seen.append({name: dict(view.facts) for name, view in spec.resource.parents.items()})
            return first.act(spec, memo)

        return (type(first)(name=first.name, act=look), *rest)


class Site(Fake):
    """Stands on a disk."""

    name = "site"
    resource_type = "site"
    gone_with_needs = True


class Volume(Fake):
    """Leases a host, and exists at a provider of its own."""

    name = "volume"
    resource_type = "volume"


@pytest.fixture(autouse=True)
def _kinds():
    Disk.seen.clear()
    with kinds.installed(Host(), Disk(), Site(), Volume()):
        yield


@pytest.fixture(autouse=True)
def _two_tries(settings):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"step_retry_limit": 2})


def faulty(provider, *faults, **config):
    return {"provider": provider, "poll_seconds": 0.01, "faults": list(faults), "capacity": {"slots": 4}, **config}


def on(need, kind):
    return {"does": "need_leases", "at": "build.create", "leases": [{"name": need, "type": kind}]}


def never(at, **given):
    return {"does": "fail", "at": at, "scope": "step", "times": None, "message": "no route to host", **given}


def register(made, name="rack-7"):
    with transaction.atomic():
        draft = Draft(identity=name, name=name, capacity=made.config and _capacity(made))
        room = provision.insert(made, draft, actor="op", message="Registered.", origin="registered")
    return Resource.objects.get(pk=room.resource_id)


def _capacity(made):
    kind = registry.kind(made.kind)
    return kind.register(kind.Config.model_validate(made.config), kind.Registration(name="x")).capacity


@pytest.fixture
def chain(blueprint, ask, until):
    """A lease on a site, on a disk, on a host: (host, disk, site, lease)."""

    def make(**given):
        below = blueprint("hosts", kind="bare", config=faulty("h"))
        host = until(register(below), state="active")
        blueprint("disks", kind="disk", config=faulty("d", on("host", "bare")))
        blueprint("sites", kind="site", config=faulty("s", on("disk", "disk")))
        lease = until(ask("site", **given), state="active")
        return host, Resource.objects.get(type="disk"), lease.resource, lease

    return make


def test_what_exists_at_a_provider_of_its_own_is_destroyed_there_when_its_host_is_lost(blueprint, ask, until):
    host = until(register(blueprint("hosts", kind="bare", config=faulty("h"))), state="active")
    busy = never("destroy.*") | {"times": 4}
    blueprint("volumes", kind="volume", config=faulty("v", on("host", "bare"), busy))
    lease = until(ask("volume"), state="active")
    retirement.lose(host.pk, reason=Reason.LOST, message="it burns")
    until(lease, state="broken", reason=Reason.LOST)
    until(lease.resource, state="broken", reason=Reason.LOST)
    for _ in range(200):
        if not Cloud("v").instances():
            return
        settle()
    pytest.fail("its instance stays")


def falls_ill(host):
    sick = [never(at) for at in ("check.look", "deactivate.*", "clean.*")]
    Blueprint.objects.filter(name="hosts").update(
        config=faulty("h", *sick), check_interval=dt.timedelta(milliseconds=1)
    )
    Resource.objects.filter(pk=host.pk).update(check_at="2020-01-01T00:00Z")


def test_what_stands_on_a_host_that_is_destroyed_is_gone_with_it(chain, until):
    host, disk, site, lease = chain()
    retirement.lose(host.pk, reason=Reason.LOST, message="it burns")
    until(lease, state="broken", reason=Reason.LOST)
    until(disk, state="broken")
    until(site, state="broken")
    for one in (host, disk, site):
        one.refresh_from_db()
        assert one.gone_at is not None
    assert Event.objects.filter(kind="resource.gone_with_parents", resource=disk).exists()
    settle()
    assert not Run.objects.exists()
    assert not Share.objects.exists()
    assert not Lease.objects.filter(state__in=["pending", "acquired", "active", "released"]).exists()


def test_what_stands_on_a_dead_host_is_destroyed_through_its_last_facts_when_it_answers_again(chain, until):
    host, disk, _, lease = chain()
    held = Lease.objects.get(for_resource=disk)
    Blueprint.objects.filter(name="disks").update(config=faulty("d", never("destroy.delete")))
    falls_ill(host)
    until(lease, state="broken")
    until(disk, state="broken", gone_at=None)
    for _ in range(5):
        settle()
    disk.refresh_from_db()
    assert disk.gone_at is None, "it may still be there, and is tried again and again"
    assert Disk.seen[-1] == {"host": held.facts}
    assert Debt.objects.get(lease=held), "the account stays until the disk is gone"
    Blueprint.objects.filter(name="disks").update(config=faulty("d"))
    Blueprint.objects.filter(name="hosts").update(config=faulty("h"))
    until(host, in_maintenance=False)
    disk.refresh_from_db()
    assert disk.gone_at is not None
    assert not Cloud("d").instances()
    assert not Cloud("h").left()
    assert not Debt.objects.exists()


def test_what_cannot_be_destroyed_is_gone_with_its_host_when_that_is_handed_back(chain, until):
    host, disk, _, lease = chain()
    Blueprint.objects.filter(name="disks").update(config=faulty("d", never("destroy.delete")))
    falls_ill(host)
    until(lease, state="broken")
    until(disk, state="broken", gone_at=None)
    Blueprint.objects.filter(name="hosts").update(config=faulty("h"), check_interval=None)
    retirement.retire_idle(host.pk, reason=Reason.OPERATOR, message="enough")
    until(host, state="destroyed")
    settle()
    disk.refresh_from_db()
    assert disk.gone_at is not None
    assert not Debt.objects.exists()


def test_a_lease_that_lost_what_it_needs_is_broken_and_served_again(blueprint, ask, until):
    below = blueprint("below", kind="bare", config=faulty("h"))
    first = until(register(below), state="active")
    needs = {"does": "need_leases", "at": "activate.account", "leases": [{"name": "port", "type": "bare"}]}
    blueprint("above", kind="fake_activated", config=faulty("t", needs), max_resources=1)
    lease = until(ask("fake_activated", serve_again=True), state="active")
    second = until(register(below, "rack-8"), state="active")
    on_it = lease.resource
    retirement.lose(first.pk, reason=Reason.LOST, message="it burns")
    until(lease, state="broken", reason=Reason.LOST)
    assert "it burns" in lease.message
    again = until(lease.replaced_by, state="active")
    assert again.resource_id == on_it.pk
    assert Lease.objects.get(for_lease=again, state="active").resource_id == second.pk
    settle()
    assert {one.lease for one in Cloud("t").left()} == {key(again)}
    assert not Debt.objects.exists()


def key(lease):
    from leases.engine.core import specs

    return specs.key("l", lease.pk)


def test_an_orphaned_lease_that_is_not_wanted_again_is_broken_too(blueprint, ask, until):
    below = blueprint("below", kind="bare", config=faulty("h"))
    first = until(register(below), state="active")
    needs = {"does": "need_leases", "at": "activate.account", "leases": [{"name": "port", "type": "bare"}]}
    blueprint("above", kind="fake_activated", config=faulty("t", needs), max_resources=1)
    lease = until(ask("fake_activated"), state="active")
    retirement.lose(first.pk, reason=Reason.LOST, message="it burns")
    until(lease, state="broken", reason=Reason.LOST)
    assert lease.replaced_by is None
    until(lease.resource, in_maintenance=False)
    assert not Cloud("t").left()


def test_what_an_activation_that_failed_may_have_used_is_cleaned_before_its_share_is_returned(blueprint, ask, until):
    fault = {"does": "fail", "at": "activate.access", "scope": "offer", "times": 1}
    blueprint(kind="fake_activated", config=faulty("t", fault))
    lease = until(ask("fake_activated"), state="active")
    done = Event.objects.filter(lease=lease, kind="step.done", message="clean: wipe").values_list("id", flat=True)
    back = Event.objects.get(lease=lease, to_state="pending", from_state="acquired")
    assert [one < back.pk for one in done] == [True]


def test_what_its_owner_gave_back_in_the_same_instant_is_not_asked_for_again(blueprint, ask, until):
    blueprint()
    lease = until(ask(serve_again=True), state="active")
    Lease.objects.filter(pk=lease.pk).update(release_wanted="released")
    retirement.lose(lease.resource_id, reason=Reason.LOST, message="Gone.")
    settle()
    lease.refresh_from_db()
    assert (lease.state, lease.replaced_by) == ("broken", None)
    assert Lease.objects.count() == 1
