"""What a cloud, or a proxy before it, answers in nonsense costs nobody a machine; what is really gone is noticed."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Callable
from dataclasses import replace

import pytest
from django.contrib.auth.models import User
from django.db.models import F

from blueprints import registry
from blueprints.cloud.client import Client
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Underway
from blueprints.models import Reading, RememberedError
from drydock.core import clock
from leases.engine.sync import poll
from leases.lifecycle import with_state
from leases.messaging.inline import settle
from leases.models import Event, Lease, Resource
from leases.operations import attention, callers, resources
from leases.signals import interruption_announced
from tests.leases.emulated import Emulated, gone, interface, look, ready

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may make accounts for leases"),
    pytest.mark.timeout(400),
]
HTML = b"<html><head><title>Welcome</title></head><body><p>Please log in.</p></body></html>"
_EC2 = "http://ec2.amazonaws.com/doc/2016-11-15/"
EMPTY = {
    "ec2": (
        "text/xml",
        f'<DescribeInstancesResponse xmlns="{_EC2}"><requestId>r</requestId><reservationSet/>'
        "</DescribeInstancesResponse>",
    ),
    "gce": ("application/json", json.dumps({"kind": "compute#instanceAggregatedList", "id": "i", "items": {}})),
    "azure": ("application/json", json.dumps({"value": []})),
}
LISTS: dict[str, Callable[[str], bool]] = {
    "ec2": lambda call: call == "DescribeInstances",
    "gce": lambda call: call.endswith("/aggregated/instances"),
    "azure": lambda call: call.startswith("GET") and call.endswith("/virtualMachines"),
}
READS: dict[str, Callable[[str], bool]] = {
    "ec2": lambda call: call.startswith("Describe"),
    "gce": lambda call: call.startswith("GET"),
    "azure": lambda call: call.startswith("GET"),
}


@pytest.fixture
def served(cloud: Emulated, ask, until) -> Lease:
    """A lease on a machine that is old enough for 'not found' to prove something."""
    cloud.blueprint()
    look()
    lease = ready(ask("host", exclusive=True), until)
    _age()
    return lease


def _age() -> None:
    Resource.objects.update(created_at=F("created_at") - dt.timedelta(minutes=10))


def glance() -> str:
    """One status reading, whatever comes of it; what it says went wrong."""
    (one,) = Reading.objects.filter(what="status")
    Reading.objects.filter(pk=one.pk).update(due_at="2020-01-01T00:00Z")
    assert poll.read(one.pk)
    settle()
    one.refresh_from_db()
    return one.message


def _answers(cloud: Emulated) -> list[tuple[Callable[[str], bool], int, str, bytes]]:
    sort, empty = EMPTY[cloud.kind]
    listing, every = LISTS[cloud.kind], READS[cloud.kind]
    return [
        (listing, 200, sort, empty.encode()),
        (listing, 200, "application/json", b'{"message": "ok"}'),
        (listing, 200, "text/html", HTML),
        (every, 200, "application/json", b'{"message": "ok"}'),
        (every, 200, "application/json", b"[]"),
        (every, 200, "text/html", HTML),
        (every, 404, "text/html", HTML),
        (every, 502, "text/html", HTML),
    ]


def test_no_nonsense_of_a_cloud_costs_a_machine(served, cloud, machines):
    for spoils, status, sort, body in _answers(cloud):
        cloud.double.spoils = lambda call, s=spoils, a=(status, sort, body): a if s(call) else None
        wrong = [glance() for _ in range(3)]
        assert all(wrong), (status, sort, body)
        served.refresh_from_db()
        assert served.state == "active", (status, sort, body, served.message)
        assert "<" not in served.message
        assert not [one for one in wrong if "<" in one]
        assert len(machines.running) == 1
        cloud.double.spoils = lambda call: None
        assert glance() == ""
        served.refresh_from_db()
        assert (served.state, served.reason) == ("active", "ready")
    assert interface(served, "command").check(["echo", "here"]).text == "here\n"
    gone()
    assert cloud.double.objects() == {}


def test_a_tag_that_somebody_removed_is_put_back(served, cloud, machines):
    before = cloud.tags(machines.running[0])
    cloud.untag(machines.running[0], "drydock-installation")
    for _ in range(3):
        glance()
    served.refresh_from_db()
    assert (served.state, served.reason) == ("active", "ready")
    assert cloud.tags(machines.running[0]) == before
    assert Event.objects.filter(kind="resource.tags_restored", resource=served.resource_id).count() == 1
    gone()
    assert cloud.double.objects() == {}


def test_a_machine_that_is_really_gone_is_noticed_and_the_other_stays(served, cloud, machines, ask, until):
    other = ready(ask("host", exclusive=True), until)
    _age()
    served.refresh_from_db()
    cloud.remove(cloud.key(served))
    for _ in range(3):
        glance()
    served.refresh_from_db()
    other.refresh_from_db()
    assert (served.state, served.reason, other.state) == ("broken", "lost", "active")
    assert cloud.words in served.message
    gone()
    assert cloud.double.objects() == {}


def test_when_everything_of_an_account_is_gone_nothing_is_given_up(served, cloud, machines, django_user_model):
    chief = callers.caller(django_user_model.objects.create_superuser("chief"))
    cloud.remove(cloud.key(served), trace=False)
    for _ in range(3):
        assert "disappeared at once" in glance()
    served.refresh_from_db()
    assert (served.state, served.reason) == ("active", "suspected")
    assert "disappeared together with everything else" in served.message
    assert served.resource.__class__.objects.get(pk=served.resource_id).observed == "vanished"
    assert Event.objects.filter(kind="resource.vanished").count() == 1
    (needed,) = [one for one in attention.needed(chief) if one.what == "vanished"]
    assert needed.mend.endswith(f"drydock resources destroy {served.resource_id}")
    Resource.objects.update(facts={**served.resource.facts, "made_at": "2020-01-01T00:00:00+00:00"})
    resources.retire(chief, served.resource_id)
    served.refresh_from_db()
    assert (served.state, served.reason) == ("broken", "lost")
    gone()
    assert cloud.double.objects() == {}, "what belonged to it is swept, as after any other destruction"


@pytest.fixture
def client(cloud) -> type[Client]:
    return type(registry.kind(cloud.kind).client(cloud.secrets))


def test_what_another_account_does_not_know_is_not_gone(served, cloud, machines, client, ask, until, monkeypatch):
    other = ready(ask("host", exclusive=True), until)
    _age()
    served.refresh_from_db()
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(client, "account", lambda self: "projects/of-somebody-else")
        reads, here = client.instance, served.resource_id
        elsewhere.setattr(
            client, "instance",
            lambda self, place, zone, key, id: None if key == cloud.key(served) else reads(self, place, zone, key, id),
        )  # fmt: skip
        cloud.untag(cloud.key(served), "drydock-installation")
        for _ in range(2):
            glance()
        served.refresh_from_db()
        assert (served.state, served.reason) == ("active", "suspected")
        assert "was created in" in served.message
        Lease.objects.filter(pk=served.pk).update(release_wanted="released")
        Resource.objects.filter(pk=here).update(drained=True)
        for _ in range(20):
            settle()
            clock.sleep(0.1)
        assert Resource.objects.get(pk=here).gone_at is None
        assert with_state(Lease.objects.filter(pk=served.pk)).get().instance_state == "terminating"
        assert attention.needed(callers.caller(User.objects.create_superuser("chief")))
    assert len(machines.running) == 2
    gone()
    other.refresh_from_db()
    assert cloud.double.objects() == {}


@pytest.mark.parametrize("cloud", ["azure", "gce"], indirect=True)
def test_a_machine_of_others_that_has_the_name_of_ours_is_left_alone(cloud, client, ask, monkeypatch):
    cloud.blueprint()
    look()
    prepares, names = client.prepare, list[str]()

    def prepare(self, order):
        stands_on = prepares(self, order)
        if not names and not isinstance(stands_on, Underway):
            names.append(order.key)
            others = replace(order, tags={"team": "others"}, token="of-others")
            while isinstance(below := prepares(self, replace(others, key="of-others")), Underway):
                clock.sleep(0.05)
            self.create(others, below)
        return stands_on

    monkeypatch.setattr(client, "prepare", prepare)
    lease = ask("host", exclusive=True)
    end = clock.monotonic() + 30
    while lease.state != "active" and clock.monotonic() < end:
        settle()
        look("status")
        lease.refresh_from_db()
    assert lease.state == "active"
    assert Resource.objects.filter(state="broken").exclude(gone_at=None).exists()
    assert cloud.tags(names[0])["team"] == "others"
    gone()
    assert cloud.tags(names[0])["team"] == "others"


def test_a_machine_that_was_taken_back_says_so(cloud, ask, until):
    cloud.blueprint(markets=["spot"])
    look()
    lease = ready(ask("host", exclusive=True), until)
    cloud.preempt(cloud.key(lease))
    until_lost(lease)
    assert "reclaimed by the provider" in lease.message
    gone()
    assert cloud.double.objects() == {}


def until_lost(lease: Lease) -> None:
    """Status readings, until it has lost its machine."""
    end = clock.monotonic() + 30
    while lease.state == "active" and clock.monotonic() < end:
        glance()
        lease.refresh_from_db()
    assert lease.state == "broken"


def test_a_credential_that_was_mended_needs_nobody_s_forget(amazon, ask):
    amazon.blueprint()
    look()
    keys = set(amazon.double.keys)
    amazon.double.keys.clear()
    lease = ask("host")
    settle()
    lease.refresh_from_db()
    assert (lease.state, lease.reason) == ("pending", "needs_operator")
    assert RememberedError.objects.get().scope == "operator"
    amazon.double.keys.update(keys)
    RememberedError.objects.update(created_at=F("created_at") - dt.timedelta(minutes=1))
    glance()
    assert not RememberedError.objects.exists()
    lease.refresh_from_db()
    assert lease.state == "acquired"
    gone()


def test_a_clock_that_is_wrong_is_named_with_what_to_do():
    for code, said in (
        ("RequestExpired", "Request has expired."),
        ("SignatureDoesNotMatch", "Signature not yet current: 20261122T230000Z is still later than 20261122T220000Z"),
        ("noToken", "('invalid_grant: Invalid JWT: Token must be a short-lived token and in a reasonable timeframe')"),
        ("invalid_client", "AADSTS700024: Client assertion is not within its valid time range."),
    ):
        error = CloudError(Meaning.CREDENTIALS, said, provider_code=code)
        assert "clock of this machine" in error.message
        assert said in error.message
    assert "clock" not in CloudError(Meaning.CREDENTIALS, "Not authorized.", provider_code="AuthFailure").message


def test_a_machine_that_is_to_be_taken_back_is_announced_before(amazon, ask, until):
    amazon.blueprint(markets=["spot"])
    look()
    lease = ready(ask("host"), until)
    heard = []

    def hear(sender, **about):
        heard.append((about["lease_id"], about["resource_id"]))

    interruption_announced.connect(hear)
    for request in amazon.double.spot_requests.values():
        request["InstanceId"] = lease.resource.facts["instance_id"]
        request["Status"] = {"Code": "marked-for-termination", "Message": "It is marked for termination."}
    for _ in range(2):
        glance()
    interruption_announced.disconnect(hear)
    lease.refresh_from_db()
    assert lease.state == "active"
    assert heard == [(lease.pk, lease.resource_id)]
    told = Event.objects.get(kind="lease.interruption", lease=lease)
    assert "marked-for-termination" in told.message
    gone()
