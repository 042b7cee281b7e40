"""Groups whose devices are near one another: the choice within a host and between hosts, waiting, and what is shown."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from blueprints.amounts import CLASSES, Amounts
from blueprints.localities import LEVELS, Locality
from chaos.proof import tree_violations
from drydock.core.errors import Conflict, InvalidRequest
from leases.engine.lifecycle import release
from leases.engine.placement.assignment import Option, Rule, distance_between, goes, nearest, vicinities
from leases.engine.placement.constraints import PlacementRequest
from leases.messaging.inline import settle
from leases.models import Lease, LeaseGroup, Resource, Share
from leases.operations import callers, leases
from leases.reasons import Reason

A: Locality = ("node 0", "port 1", "switch 1")
B: Locality = ("node 0", "port 1", "switch 2")
C: Locality = ("node 0", "port 2", "switch 3")
D: Locality = ("node 1", "port 3", "switch 4")


def device(pk: int, locality: Locality, *, slots: int = 1) -> Option:
    free = dict.fromkeys(CLASSES, 0) | {"slots": slots}
    return Option(resource_id=pk, parent_id=1000, free=free, locality=locality)


HOST = Option(resource_id=1000, parent_id=None, free=dict.fromkeys(CLASSES, 0) | {"slots": 8})


def solved(groups: list[tuple[list[Option], int, int]], rule: Rule) -> list[Option] | None:
    """Solve for groups of (options, number of members, slots of each)."""
    options = [one for one, n, _ in groups for _ in range(n)]
    requests = [PlacementRequest(type="x", amounts=Amounts(slots=slots)) for _, n, slots in groups for _ in range(n)]
    return nearest(options, requests, rule, vicinities(options, requests, rule))


def by_force(groups: list[tuple[list[Option], int, int]], rule: Rule) -> int | None:
    """Return the farness of the nearest of all possible sets."""
    options = [one for one, n, _ in groups for _ in range(n)]
    requests = [PlacementRequest(type="x", amounts=Amounts(slots=slots)) for _, n, slots in groups for _ in range(n)]
    return min((farness(chosen, rule) for chosen in sets(options, requests, rule)), default=None)


def sets(options, requests, rule: Rule, chosen: tuple[Option, ...] = ()) -> Iterator[tuple[Option, ...]]:
    """Yield every set that the rule allows."""
    n = len(chosen)
    if n == len(options):
        yield chosen
        return
    for one in options[n]:
        if goes(one, requests[n], chosen, requests[:n], rule):
            yield from sets(options, requests, rule, (*chosen, one))


def farness(chosen, rule: Rule) -> int:
    apart = distance_between(chosen, rule)
    return -1 if apart is None else apart.farness


@st.composite
def positions(draw) -> Locality:
    """Draw a position that is consistent with all others: a switch has one port, and a port has one node."""
    switch = draw(st.integers(0, 7))
    full = (f"node {switch // 4}" if draw(st.booleans()) else "", f"port {switch // 2}", f"switch {switch}")
    depth = draw(st.sampled_from([0, 1, 2, 3, 3, 3]))
    names = full[:depth]
    while names and not names[-1]:
        names = names[:-1]
    return names


@st.composite
def hosts(draw):
    there = [
        device(pk, place, slots=slots)
        for pk, (place, slots) in enumerate(
            draw(st.lists(st.tuples(positions(), st.sampled_from([1, 1, 1, 2, 3])), min_size=1, max_size=6))
        )
    ]
    subset = st.lists(st.sampled_from(there), unique_by=lambda one: one.resource_id, max_size=6)
    group = st.tuples(subset, st.integers(1, 3), st.sampled_from([1, 1, 2]))
    groups = draw(st.lists(group, min_size=1, max_size=2))
    if draw(st.booleans()):
        groups.insert(draw(st.integers(0, len(groups))), ([HOST], 1, 1))
    different = draw(st.sampled_from(["", "", "resource"]))
    held = tuple(draw(st.lists(st.sampled_from(there), max_size=1))) if draw(st.booleans()) else ()
    return groups, different, held


@hypothesis_settings(deadline=None)
@given(hosts())
@example(([([device(1, A), device(2, A)], 1, 1), ([device(1, A)], 1, 1)], "", ()))
def test_the_choice_is_as_near_as_the_nearest_of_all_sets(case):
    groups, different, held = case
    for near in ("prefer", "require"):
        rule = Rule(same="host", near=near, different=different, held=held)
        wanted, found = by_force(groups, rule), solved(groups, rule)
        if wanted is None or (near == "require" and wanted == LEVELS):
            assert found is None
            continue
        assert found is not None
        assert farness(found, rule) == wanted
        requests = [PlacementRequest(type="x", amounts=Amounts(slots=s)) for _, n, s in groups for _ in range(n)]
        options = [one for one, n, _ in groups for _ in range(n)]
        for n, one in enumerate(found):
            assert one in options[n]
            assert goes(one, requests[n], found[:n], requests[:n], rule)


def test_a_large_host_is_searched_in_few_steps():
    """16 GPUs, 8 NICs and 64 VFs; more members than devices, which a search of all sets would not survive."""
    gpus = [device(n, (f"node {n // 8}", f"port {n // 4}", f"switch {n // 2}")) for n in range(16)]
    nics = [device(100 + n, (f"node {n // 4}", f"port {n // 2}", f"switch {n}")) for n in range(8)]
    vfs = [device(200 + n, nics[n // 8].locality) for n in range(64)]
    rule = Rule(same="host", near="require")
    found = solved([([HOST], 1, 1), (gpus, 8, 1), (nics, 1, 1), (vfs, 4, 1)], rule)
    assert found is not None
    assert str(distance_between(found, rule)) == "all at node 0, 2 levels up"
    found = solved([(gpus, 2, 1), (nics, 1, 1), (vfs, 8, 1)], rule)
    assert found is not None
    assert str(distance_between(found, rule)) == "all at switch 0"
    assert solved([(gpus, 9, 1), (gpus[:], 8, 1)], Rule(same="host", near="prefer")) is None
    assert solved([(gpus, 9, 1), (nics, 8, 1)], rule) is None
    assert solved([(gpus, 9, 1), (nics, 8, 1)], Rule(same="host", near="prefer")) is not None


def test_the_smaller_of_two_places_is_used_first():
    """Larger places stay whole for groups that need them."""
    options = [*[device(n, A) for n in range(4)], device(10, C), device(11, C)]
    found = solved([(options, 2, 1)], Rule(same="host", near="prefer"))
    assert found is not None
    assert [one.resource_id for one in found] == [10, 11]


def test_a_member_gets_a_device_near_those_that_the_others_hold():
    options = [device(1, A), device(2, A), device(3, D), device(4, C)]
    for there, wanted in ((D, 3), (C, 4), (B, 1)):
        found = solved([(options, 1, 1)], Rule(same="host", near="require", held=(HOST, device(9, there))))
        assert found is not None
        assert [one.resource_id for one in found] == [wanted]


# From here on, through the engine.

GPU = {"type": "fake_activated", "requirements": {"color": "gpu"}}
NIC = {"type": "fake_activated", "requirements": {"color": "nic"}}
WHOLE = {"type": "fake", "exclusive": True}


@pytest.fixture
def tree(blueprint):
    """Make a host with devices at positions: `tree("lab", gpu=[A, B], nic=[A])`."""
    wholes = blueprint("hosts", kind="fake", max_builds=0)
    parts = blueprint("parts", kind="fake_activated", max_builds=0)

    def make(name: str, **there: list[Locality]) -> Resource:
        host = Resource.objects.create(
            blueprint=wholes, type="fake", name=name, state="active", total_slots=4, origin="discovered"
        )
        for color, places in there.items():
            for n, place in enumerate(places, 1):
                Resource.objects.create(
                    blueprint=parts, type="fake_activated", name=f"{name}-{color}-{n}", state="active", part_of=host,
                    origin="discovered", attributes={"color": color}, locality=list(place),
                )  # fmt: skip
        return host

    yield make
    assert tree_violations() == []


@pytest.fixture
def group(owner):
    def make(*asked: dict, near: str = "", **given) -> list[Lease]:
        ids = leases.request_group(callers.caller(owner), list(asked), near=near, **given)
        settle()
        return list(Lease.objects.filter(pk__in=ids).order_by("id"))

    return make


def names(found: list[Lease]) -> list[str]:
    held = dict(Share.objects.filter(lease__in=found).values_list("lease", "resource__name"))
    return [held.get(one.pk, "") for one in found]


def info(lease: Lease):
    return leases.get(callers.caller(lease.owner), lease.pk)


def said(lease: Lease) -> str:
    waiting = info(lease).waiting
    assert waiting is not None
    return waiting.message


def free(*pks: int) -> None:
    for pk in pks:
        release.release(pk, actor="ada")
    settle()


@pytest.mark.parametrize("near", ["prefer", "require"])
def test_devices_at_one_switch_are_chosen_and_shown(tree, group, near):
    tree("lab", gpu=[D, A, C, C], nic=[A, C])
    found = group(WHOLE, GPU, GPU, NIC, near=near)
    assert names(found) == ["lab", "lab-gpu-3", "lab-gpu-4", "lab-nic-2"]
    assert {info(one).distance for one in found} == {"all at switch 3"}
    assert LeaseGroup.objects.get().distance == "all at switch 3"


def test_the_console_shows_the_distance_with_the_lease_and_with_its_group(tree, group, admin_client):
    tree("lab", gpu=[("node 0", "<b>port"), ("node 0", "<b>port", "switch 1")])
    (first, _) = group(GPU, GPU, near="prefer")
    for page in (f"leases/lease/{first.pk}/change/", f"leases/leasegroup/{first.group_id}/change/"):
        shown = admin_client.get(f"/admin/{page}").content.decode()
        assert "all at &lt;b&gt;port, 1 level up" in shown
        assert "<b>port" not in shown
    assert "prefer" in shown


def test_the_host_with_the_shorter_distance_is_preferred(tree, group):
    tree("far", gpu=[A, D], nic=[D])
    tree("wide", gpu=[A, C], nic=[C])
    tree("near", gpu=[A, B], nic=[A])
    tree("wide-too", gpu=[A, C], nic=[C])
    assert names(group(GPU, GPU, NIC, near="prefer")) == ["near-gpu-1", "near-gpu-2", "near-nic-1"]
    assert names(group(GPU, GPU, NIC, near="prefer")) == ["wide-gpu-1", "wide-gpu-2", "wide-nic-1"]
    found = group(GPU, GPU, NIC, near="require")
    assert names(found) == ["wide-too-gpu-1", "wide-too-gpu-2", "wide-too-nic-1"]
    assert info(found[0]).distance == "all at node 0, 2 levels up"


def test_a_preference_never_waits_for_nearer_devices(tree, group, ask):
    tree("lab", gpu=[A, A, D], nic=[A])
    one = ask("fake_activated", requirements={"color": "gpu"})
    assert names([one]) == ["lab-gpu-1"]
    found = group(GPU, GPU, NIC, near="prefer")
    assert names(found) == ["lab-gpu-2", "lab-gpu-3", "lab-nic-1"]
    assert {info(one).distance for one in found} == {"no place in common"}


def test_a_requirement_waits_and_says_which_host_comes_closest_and_how_near_it_is(tree, group, ask):
    tree("lab", gpu=[A, B, D], nic=[A])
    one = ask("fake_activated", requirements={"color": "gpu"})
    assert names([one]) == ["lab-gpu-1"]
    found = group({"type": "fake"}, GPU, GPU, NIC, near="require")
    assert names(found) == [""] * 4
    assert {one.reason for one in found} == {Reason.WAITING_GROUP}
    assert said(found[1]) == (
        "The 4 leases of the group are granted together in one host, with devices near one another. "
        "lab comes closest: its devices would be all at port 1, 1 level up, but "
        "lab has room for all of them only in devices with no place in common."
    )
    assert info(found[1]).distance == ""
    free(one.pk)
    assert names(found) == ["lab", "lab-gpu-1", "lab-gpu-2", "lab-nic-1"]
    assert info(found[1]).distance == "all at port 1, 1 level up"


def test_a_requirement_that_lacks_devices_says_which(tree, group, ask):
    tree("lab", gpu=[A, A], nic=[B])
    one = ask("fake_activated", requirements={"color": "gpu"})
    found = group(GPU, GPU, NIC, near="require")
    assert said(found[0]).endswith(
        "lab comes closest: its devices would be all at port 1, 1 level up, but "
        "lab has only 1 of 2 fake_activated (color=gpu) free."
    )
    free(one.pk)
    assert all(names(found))


def test_a_requirement_that_no_host_can_meet_waits_until_one_can(tree, group):
    tree("lab", gpu=[A, D])
    found = group(GPU, GPU, near="require")
    assert said(found[0]) == (
        "The 2 leases of the group are granted together in one host, with devices near one another. "
        "No host has everything that they request; "
        "lab has room for all of them only in devices with no place in common."
    )
    tree("new", gpu=[A, A])
    Lease.objects.filter(pk__in=[one.pk for one in found]).update(due_at=None)
    settle()
    assert names(found) == ["new-gpu-1", "new-gpu-2"]


def test_a_device_without_a_known_position_is_near_to_none(tree, group):
    tree("lab", gpu=[A], nic=[()])
    found = group(GPU, NIC, near="require")
    assert names(found) == ["", ""]
    assert said(found[0]).endswith("lab has room for all of them only in devices with no place in common.")
    free(*(one.pk for one in found))
    assert names(group(GPU, NIC, near="prefer")) == ["lab-gpu-1", "lab-nic-1"]


def test_one_device_with_its_host_is_near_by_itself(tree, group):
    tree("lab", gpu=[()])
    found = group(WHOLE, GPU, near="require")
    assert names(found) == ["lab", "lab-gpu-1"]
    assert info(found[0]).distance == ""


def test_a_host_is_kept_for_a_requirement_that_has_waited_for_long(tree, group, ask, settings):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"head_reservation_seconds": 0.0})
    tree("apart", gpu=[A, D])
    tree("lab", gpu=[A, A])
    small = [ask("fake_activated", requirements={"color": "gpu"}) for _ in range(4)]
    found = group(GPU, GPU, near="require")
    assert Resource.objects.get(name="lab").reserved_for_id == found[0].pk
    held = dict(zip(names(small), small, strict=True))
    free(held["apart-gpu-1"].pk, held["apart-gpu-2"].pk)
    assert names(found) == ["", ""]
    free(held["lab-gpu-1"].pk, held["lab-gpu-2"].pk)
    assert names(found) == ["lab-gpu-1", "lab-gpu-2"]


def degrade(name: str) -> None:
    Resource.objects.filter(name=name).update(health="degraded", health_reason="It is worn.")


@pytest.mark.parametrize("near", ["prefer", "require"])
def test_degraded_devices_serve_a_group_only_if_the_healthy_ones_do_not_suffice(tree, group, near):
    tree("lab", gpu=[A, A, A, D], nic=[A, D])
    degrade("lab-gpu-1")
    assert names(group(GPU, GPU, NIC, near=near)) == ["lab-gpu-2", "lab-gpu-3", "lab-nic-1"]


def test_of_the_devices_at_one_place_a_last_resort_takes_the_healthy_ones(tree, group):
    """The NIC is degraded, so that the whole group may use degraded devices."""
    tree("lab", gpu=[A, B, B], nic=[B])
    degrade("lab-gpu-1")
    degrade("lab-nic-1")
    assert names(group(GPU, GPU, NIC, near="require")) == ["lab-gpu-2", "lab-gpu-3", "lab-nic-1"]
    tree("new", gpu=[A, B, C], nic=[D])
    degrade("new-gpu-1")
    degrade("new-nic-1")
    assert names(group(GPU, GPU, NIC, near="prefer")) == ["new-gpu-2", "new-gpu-3", "new-nic-1"]


@pytest.mark.parametrize(
    "near", ["Prefer", "required", " ", None, True, 1, ["prefer"], {"prefer": 1}, "x" * 10_000, "\0"]
)
def test_other_values_are_refused(tree, owner, near):
    with pytest.raises(InvalidRequest) as refused:
        leases.request_group(callers.caller(owner), [GPU, GPU], near=near)
    assert refused.value.problems[0].field == "near"
    assert not Lease.objects.exists()


@pytest.mark.parametrize("same", ["resource", "parent"])
def test_it_cannot_be_combined_with_another_rule(tree, owner, same):
    with pytest.raises(InvalidRequest) as refused:
        leases.request_group(callers.caller(owner), [GPU, GPU], same=same, near="prefer")
    assert refused.value.problems[0].field == "near"


def test_it_is_part_of_what_an_idempotency_key_stands_for(tree, owner):
    tree("lab", gpu=[A, A])
    who = callers.caller(owner)
    ids = leases.request_group(who, [GPU, GPU], near="prefer", idempotency_key="once")
    assert leases.request_group(who, [GPU, GPU], same="host", near="prefer", idempotency_key="once") == ids
    for near in ("", "require"):
        with pytest.raises(Conflict):
            leases.request_group(who, [GPU, GPU], same="host", near=near, idempotency_key="once")


def explained(owner, *asked: dict, **given):
    found = leases.explain_group(callers.caller(owner), list(asked), **given)
    return found, [(one.blueprint, one.answer, one.sentence) for one in found.verdicts]


def test_a_group_is_explained_host_by_host_and_nothing_is_written(tree, owner):
    tree("poor", gpu=[A])
    tree("wide", gpu=[A, D], nic=[D])
    tree("near", gpu=[A, B], nic=[A])
    found, verdicts = explained(owner, GPU, GPU, NIC, near="prefer")
    assert (found.outcome, found.message) == (
        "granted",
        "Granted at once: there is room for all 3 leases of the group; "
        "their devices would be all at port 1, 1 level up.",
    )
    assert verdicts == [
        ("near", "granted", "near has room for all of them; their devices would be all at port 1, 1 level up."),
        ("wide", "granted", "wide has room for all of them; their devices would have no place in common."),
        ("poor", "no", "poor has only 1 of 2 fake_activated (color=gpu), 0 of 1 fake_activated (color=nic)."),
    ]
    assert not Lease.objects.exists()
    assert not LeaseGroup.objects.exists()

    found, verdicts = explained(owner, {**GPU, "count": 2}, NIC, near="require")
    assert found.outcome == "granted"
    assert verdicts[1:] == [
        ("wide", "no", "wide has room for all of them only in devices with no place in common."),
        ("poor", "no", "poor has only 1 of 2 fake_activated (color=gpu), 0 of 1 fake_activated (color=nic)."),
    ]


def test_a_group_that_waits_is_explained_by_what_each_host_lacks(tree, ask, owner):
    tree("lab", gpu=[A, B], nic=[A])
    ask("fake_activated", requirements={"color": "gpu"})
    found, verdicts = explained(owner, GPU, GPU, NIC, same="host")
    assert (found.outcome, found.reason) == ("wait", Reason.WAITING_GROUP)
    assert found.message.endswith("lab has only 1 of 2 fake_activated (color=gpu) free.")
    assert verdicts == [
        ("lab", "wait", "lab has only 1 of 2 fake_activated (color=gpu) free. Once nothing is leased there, their "
         "devices would be all at port 1, 1 level up."),
    ]  # fmt: skip
    found, verdicts = explained(owner, GPU, {"type": "fake_activated", "requirements": {"size": 99}}, same="host")
    assert found.outcome == "refuse"
    assert {"lab", "parts"} == {host for host, _, _ in verdicts}
    found, _ = explained(owner, GPU, GPU, same="resource")
    assert found.outcome in ("wait", "refuse")
    with pytest.raises(InvalidRequest):
        explained(owner, GPU, near="closest")
