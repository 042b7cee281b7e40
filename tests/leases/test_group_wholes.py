"""Groups with `same: whole`: a host and what is built on its devices, granted together once everything is built."""

from __future__ import annotations

import pytest

from blueprints.fake.cloud import Cloud
from blueprints.models import RememberedError
from chaos.proof import tree_violations
from leases.engine.lifecycle import release
from leases.engine.scheduling import request
from leases.messaging.inline import settle
from leases.models import Event, Lease, Resource, Run, Share
from leases.operations import callers, leases
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
def hosts(blueprint):
    """Make a host with cards: `hosts("lab", cards=2)`."""
    pool = blueprint("hosts", config={"provider": "hosts"}, max_builds=0)
    cards = blueprint("cards", kind="fake_activated", max_builds=0)

    def make(name="lab", *, cards_=1, slots=4):
        host = Resource.objects.create(
            blueprint=pool, type="fake", name=name, state="active", total_slots=slots, origin="discovered"
        )
        for n in range(1, cards_ + 1):
            Resource.objects.create(
                blueprint=cards, type="fake_activated", name=f"{name}-card-{n}", state="active", part_of=host,
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
        _, ids = request.request_group(
            [read(one) for one in asked], (by or owner).pk, actor="ada", same=same, **given
        )
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
    for _ in range(rounds):
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
