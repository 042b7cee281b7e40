"""Groups in one host: the host and the devices in it are granted together or not at all."""

from __future__ import annotations

import random

import pytest

from chaos.proof import tree_violations
from drydock.core.errors import InvalidRequest
from leases.engine.lifecycle import release
from leases.engine.scheduling import request
from leases.messaging.inline import settle
from leases.models import Event, Lease, Resource, Share
from leases.operations import callers, leases
from leases.reasons import Reason
from leases.validation.requests import read

HOST = {"type": "fake", "exclusive": True}
GPU = {"type": "fake_activated", "requirements": {"color": "gpu"}}
VF = {"type": "fake_activated", "requirements": {"color": "vf"}}


@pytest.fixture(autouse=True)
def _rules_hold():
    yield
    assert tree_violations() == []


@pytest.fixture
def tree(blueprint):
    """Make a host with GPUs and VFs of a card: `tree("host", gpus=2, vfs=1)`."""
    hosts = blueprint("hosts", kind="fake", max_builds=0)
    parts = blueprint("parts", kind="fake_activated", max_builds=0)

    def part(name: str, whole: Resource, **given: object) -> Resource:
        return Resource.objects.create(
            blueprint=parts, type="fake_activated", name=name, state="active", part_of=whole, origin="discovered",
            **given,
        )  # fmt: skip

    def make(name: str = "host", *, gpus: int = 2, vfs: int = 0, slots: int = 4) -> Resource:
        host = Resource.objects.create(
            blueprint=hosts, type="fake", name=name, state="active", total_slots=slots, origin="discovered"
        )
        for n in range(1, gpus + 1):
            part(f"{name}-gpu-{n}", host, attributes={"color": "gpu"})
        if vfs:
            card = part(f"{name}-card", host, total_slots=0)
            for n in range(1, vfs + 1):
                part(f"{name}-vf-{n}", card, attributes={"color": "vf"})
        return host

    return make


@pytest.fixture
def group(owner):
    def make(*asked: dict, same: str = "host", **given: object) -> list[Lease]:
        requests = [read(one) for one in asked]
        _, ids = request.request_group(requests, owner.pk, actor="ada", same=same, **given)
        settle()
        return list(Lease.objects.filter(pk__in=ids).order_by("id"))

    return make


def names(found: list[Lease]) -> list[str]:
    """The names of the resources that leases hold, in order; empty for those that hold none."""
    held = dict(Share.objects.filter(lease__in=found).values_list("lease", "resource__name"))
    return [held.get(one.pk, "") for one in found]


def states(found: list[Lease]) -> set[str]:
    return set(Lease.objects.filter(pk__in=[one.pk for one in found]).values_list("state", flat=True))


def said(lease: Lease) -> str:
    """What its owner is told about a waiting lease."""
    waiting = leases.get(callers.caller(lease.owner), lease.pk).waiting
    assert waiting is not None
    return waiting.message


def free(*pks: int) -> None:
    for pk in pks:
        release.release(pk, actor="ada")
    settle()


@pytest.mark.parametrize("host", [HOST, {"type": "fake"}], ids=["whole", "slot"])
@pytest.mark.parametrize("backwards", [False, True], ids=["host first", "host last"])
def test_a_host_its_gpus_and_a_vf_of_it_are_one_request(tree, group, host, backwards):
    tree("poor", gpus=1, vfs=1)
    tree("rich", gpus=3, vfs=1)
    asked = [host, GPU, GPU, VF]
    found = names(group(*(asked[::-1] if backwards else asked)))
    assert sorted(found) == ["rich", "rich-gpu-1", "rich-gpu-2", "rich-vf-1"]


def test_without_the_host_itself_devices_of_one_host_are_found(tree, group):
    for n in range(3):
        tree(f"host-{n}", gpus=1 + n)
    assert names(group(GPU, GPU, GPU)) == ["host-2-gpu-1", "host-2-gpu-2", "host-2-gpu-3"]


def test_a_group_waits_whole_and_says_what_is_missing_where(tree, group, ask):
    tree("lab", gpus=2, vfs=1)
    one = ask("fake_activated", requirements={"color": "gpu"})
    found = group({"type": "fake"}, GPU, GPU, VF)
    assert names(found) == ["", "", "", ""]
    assert said(found[1]) == (
        "The 4 leases of the group are granted together in one host. "
        "lab has only 1 of 2 fake_activated (color=gpu) free."
    )
    assert {one.reason for one in found} == {Reason.WAITING_GROUP}
    free(one.pk)
    assert states(found) == {"active"}


def test_what_no_host_has_is_waited_for_until_it_is_there(tree, group):
    tree("lab", gpus=2)
    found = group(HOST, GPU, GPU, GPU)
    assert said(found[0]) == (
        "The 4 leases of the group are granted together in one host. "
        "No host has everything that they request; lab has only 2 of 3 fake_activated (color=gpu)."
    )
    for _ in range(2):
        Lease.objects.filter(pk__in=[one.pk for one in found]).update(due_at=None)
        settle()
    kinds = Event.objects.filter(lease=found[0], kind__startswith="lease.waiting").values_list("kind", flat=True)
    assert list(kinds) == ["lease.waiting_group"], "every look says the same"
    tree("large", gpus=3)
    settle()
    settle()
    Lease.objects.filter(pk__in=[one.pk for one in found]).update(due_at=None)
    settle()
    assert names(found)[0] == "large"


def test_a_host_with_a_leased_part_says_which_keeps_it_from_a_group(tree, group, ask):
    tree("lab", gpus=2)
    other = ask("fake_activated", requirements={"color": "gpu"})
    found = group(HOST, GPU)
    assert said(found[0]).endswith(
        "lab has only 0 of 1 fake (exclusive) free: lab-gpu-1 below it is leased by another lease."
    )
    free(other.pk)
    assert states(found) == {"active"}


def test_a_group_of_one_type_that_must_wait_is_not_refused(tree, group, ask):
    tree("lab", gpus=2)
    one = ask("fake_activated", requirements={"color": "gpu"})
    found = group(GPU, GPU)
    for _ in range(3):
        settle()
    assert states(found) == {"pending"}
    free(one.pk)
    assert states(found) == {"active"}


def test_a_host_fills_for_a_group_that_has_waited_for_long(tree, group, ask, settings):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"head_reservation_seconds": 0.0})
    tree("lab", gpus=2)
    small = [ask("fake_activated", requirements={"color": "gpu"}) for _ in range(2)]
    found = group(HOST, GPU, GPU)
    assert Resource.objects.get(name="lab").reserved_for_id == found[0].pk
    free(small[0].pk)
    late = ask("fake_activated", requirements={"color": "gpu"})
    assert late.state == "pending", "the host fills for the group alone"
    free(small[1].pk)
    assert names(found) == ["lab", "lab-gpu-1", "lab-gpu-2"]
    assert not Resource.objects.exclude(reserved_for=None).exists()
    free(*(one.pk for one in found))
    assert states([late]) == {"active"}


def test_others_are_kept_out_of_the_host_of_a_group(tree, group, ask):
    tree("lab", gpus=2)
    found = group(HOST, GPU)
    assert names(found) == ["lab", "lab-gpu-1"]
    assert ask("fake_activated", requirements={"color": "gpu"}).state == "pending"
    assert ask().state == "pending"


def test_a_member_that_nothing_could_serve_refuses_the_group(tree, group):
    tree("lab", gpus=2)
    found = group(HOST, GPU, {"type": "fake_activated", "requirements": {"size": 99}})
    settle()
    assert states(found) <= {"broken", "destroyed"}


def test_a_host_is_built_for_a_group_if_none_could_serve_it(blueprint, tree, group):
    blueprint("cloud", kind="fake", config={"capacity": {"slots": 4}}, max_resources=3)
    tree("lab", gpus=1)
    found = group({"type": "fake"}, GPU, GPU)
    for _ in range(3):
        settle()
    assert states(found) == {"pending"}
    assert Resource.objects.filter(blueprint__name="cloud").count() == 1
    assert not Share.objects.exists()


@pytest.mark.parametrize("seed", range(12))
def test_groups_in_small_trees_are_granted_exactly_if_a_host_has_room(tree, group, ask, seed):
    chance = random.Random(seed)
    there = {f"host-{n}": (chance.randint(0, 3), chance.randint(0, 2)) for n in range(3)}
    for name, (gpus, vfs) in there.items():
        tree(name, gpus=gpus, vfs=vfs)
    for color in chance.choices(["gpu", "vf"], k=3):
        ask("fake_activated", requirements={"color": color})
    settle()
    whole, gpus, vfs = chance.random() < 0.5, chance.randint(0, 3), chance.randint(0, 2)
    held = list(Share.objects.values_list("resource__name", flat=True))

    def has_room(name: str) -> bool:
        used = [one for one in held if one.startswith(f"{name}-")]
        left = [n - sum(f"-{what}-" in one for one in used) for n, what in zip(there[name], ("gpu", "vf"), strict=True)]
        return left[0] >= gpus and left[1] >= vfs and not (whole and used)

    found = group(HOST if whole else {"type": "fake"}, *[GPU] * gpus, *[VF] * vfs)
    granted = names(found)
    assert all(granted) or not any(granted)
    assert all(granted) == any(map(has_room, there))
    assert len({"-".join(one.split("-")[:2]) for one in granted}) == 1


def test_one_request_stands_for_several_leases(tree, owner):
    tree("lab", gpus=3)
    who = callers.caller(owner)
    ids = leases.request_group(who, [HOST, GPU | {"count": 3, "name": "gpu"}], same="host", idempotency_key="once")
    settle()
    found = list(Lease.objects.filter(pk__in=ids).order_by("id"))
    assert names(found) == ["lab", "lab-gpu-1", "lab-gpu-2", "lab-gpu-3"]
    assert [one.name for one in found] == ["", "gpu-1", "gpu-2", "gpu-3"]
    again = [HOST, *({**GPU, "name": f"gpu-{n}"} for n in (1, 2, 3))]
    assert leases.request_group(who, again, same="host", idempotency_key="once") == ids


@pytest.mark.parametrize("count", [0, -1, 101, True, "2", 1.5])
def test_a_count_that_is_no_number_of_leases_is_refused(tree, owner, count):
    with pytest.raises(InvalidRequest) as refused:
        leases.request_group(callers.caller(owner), [GPU | {"count": count}], same="host")
    assert refused.value.problems[0].field == "count"
    assert not Lease.objects.exists()
