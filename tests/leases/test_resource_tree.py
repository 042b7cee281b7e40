"""The resource tree: a lease on a whole and leases on its parts exclude each other, unless they belong together."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, connection, transaction

from chaos.proof import tree_violations
from drydock.core import clock
from leases.engine.core.database import rows
from leases.engine.lifecycle import release
from leases.engine.scheduling import request
from leases.engine.upkeep import lease_checks
from leases.messaging.inline import settle
from leases.models import Lease, Resource, Share
from leases.operations import callers, leases
from leases.operations import resources as operations
from leases.validation.requests import read


@pytest.fixture(autouse=True)
def _rules_hold():
    yield
    assert tree_violations() == []


@pytest.fixture
def tree(blueprint):
    """Make a host with cards, and slices of them: `tree("host", cards=2, slices=1)`."""
    hosts = blueprint("hosts", kind="fake", max_resources=0)
    parts = blueprint("parts", kind="fake_activated", max_resources=0)

    def make(name: str = "host", *, cards: int = 2, slices: int = 0, slots: int = 4) -> Resource:
        host = Resource.objects.create(
            blueprint=hosts, type="fake", name=name, state="active", total_slots=slots, origin="discovered"
        )
        for n in range(1, cards + 1):
            card = part(parts, f"{name}-gpu-{n}", host)
            for m in range(1, slices + 1):
                part(parts, f"{name}-gpu-{n}-slice-{m}", card)
        return host

    return make


def part(blueprint, name: str, whole: Resource) -> Resource:
    return Resource.objects.create(
        blueprint=blueprint, type=blueprint.resource_type, name=name, state="active", part_of=whole, origin="discovered"
    )


def named(name: str) -> Resource:
    return Resource.objects.get(name=name)


def gpu(ask, **given) -> Lease:
    return ask("fake_activated", **given)


def holds(lease: Lease) -> str:
    """The name of the resource that a lease holds, or an empty string."""
    lease.refresh_from_db()
    return lease.resource.name if Share.objects.filter(lease=lease).exists() else ""


def test_a_lease_on_a_part_refuses_the_whole_and_its_end_makes_room_for_it(tree, ask):
    tree(cards=1)
    card, whole = gpu(ask), ask(exclusive=True)
    assert (holds(card), holds(whole)) == ("host-gpu-1", "")
    release.release(card.pk, actor="ada")
    settle()
    assert holds(whole) == "host"


def test_a_lease_on_a_whole_takes_its_parts_and_its_end_returns_them(tree, ask):
    tree(cards=1, slices=1)
    whole = ask(exclusive=True)
    card = gpu(ask)
    assert (holds(whole), holds(card)) == ("host", "")
    assert {len(r.closed_by) for r in Resource.objects.exclude(part_of=None)} == {1}
    release.release(whole.pk, actor="ada")
    settle()
    assert holds(card)


def test_all_slots_of_a_resource_are_the_whole_and_some_slots_are_not(tree, ask):
    tree(cards=1, slots=4)
    some = ask(slots=3)
    assert holds(gpu(ask)) == "host-gpu-1", "a shared lease on the host does not touch its cards"
    release.release(some.pk, actor="ada")
    settle()
    assert holds(ask(slots=4)) == "", "its card is leased"
    assert holds(ask(slots=3)) == "host"


def test_the_whole_is_found_among_hosts_with_leased_parts(tree, ask):
    for n in range(3):
        tree(f"host-{n}", cards=1)
    for _ in range(2):
        gpu(ask)
    assert holds(ask(exclusive=True)) == "host-2"


def test_parts_of_all_levels_exclude_their_wholes(tree, ask):
    tree(cards=1, slices=2)
    card = named("host-gpu-1")
    on_slice = gpu(ask, requirements={})
    taken = Resource.objects.get(pk=Lease.objects.get(pk=on_slice.pk).resource_id)
    assert taken == card, "the card has the lowest id"
    assert holds(gpu(ask)) == "", "both slices belong to the leased card"
    assert named("host").busy_below == 1


@pytest.mark.parametrize(
    "column", ["drained", "quarantined", "in_maintenance", "suspect_since", "reserved_for_id", "state"]
)
def test_a_part_of_something_out_of_service_is_not_leased(tree, ask, column):
    tree(cards=1)
    other = ask(exclusive=True, slots=1, requirements={"size": 99})
    changed = {"suspect_since": "2020-01-01T00:00Z", "reserved_for_id": other.pk, "state": "broken"}.get(column, True)
    Resource.objects.filter(name="host").update(**{column: changed})
    card = gpu(ask)
    assert holds(card) == ""
    if column != "state":
        Resource.objects.filter(name="host").update(**{column: False if changed is True else None})
        settle()
        assert holds(card) == "host-gpu-1"


@pytest.mark.parametrize("column", ["drained", "quarantined", "in_maintenance"])
def test_a_whole_with_a_part_out_of_service_is_not_leased_whole(tree, ask, column):
    tree(cards=1)
    Resource.objects.filter(name="host-gpu-1").update(**{column: True})
    whole = ask(exclusive=True)
    assert (holds(whole), named("host").busy_below) == ("", 1)
    release.release(whole.pk, actor="ada")
    assert holds(ask(slots=2)) == "host"


@pytest.mark.parametrize("order", [("host", "gpu"), ("gpu", "host")])
def test_a_group_holds_a_whole_and_its_parts_in_either_order(tree, owner, order):
    tree(cards=2)
    asked = {"host": read({"type": "fake", "exclusive": True}), "gpu": read({"type": "fake_activated"})}
    _, ids = request.request_group([asked[name] for name in order] + [asked["gpu"]], owner.pk, actor="ada")
    settle()
    held = {holds(Lease.objects.get(pk=pk)) for pk in ids}
    assert held == {"host", "host-gpu-1", "host-gpu-2"}


def test_a_member_of_a_group_that_lost_its_part_finds_it_again_below_its_whole(tree, owner, ask):
    tree(cards=1)
    asked = [read({"type": "fake", "exclusive": True}), read({"type": "fake_activated"})]
    _, (_, card) = request.request_group(asked, owner.pk, actor="ada")
    settle()
    stranger = gpu(ask)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("DELETE FROM leases_run")
        cursor.execute("DELETE FROM leases_share WHERE lease_id = %s", (card,))
        cursor.execute(
            "INSERT INTO leases_lease (group_id, type, slots, state, owner_id, shape, rank) SELECT group_id, type,"
            " slots, 'pending', owner_id, shape, rank FROM leases_lease WHERE id = %s RETURNING id",
            (card,),
        )
        again = cursor.fetchone()[0]
    Lease.objects.filter(pk=card).update(group=None)
    settle()
    assert (holds(Lease.objects.get(pk=again)), holds(stranger)) == ("host-gpu-1", "")


def test_waiters_of_other_types_are_served_when_a_relative_makes_room(tree, ask, monkeypatch):
    tree(cards=1)
    whole = ask(exclusive=True)
    card = gpu(ask)
    settle()
    monkeypatch.setattr(lease_checks, "waiting", lambda: 0)
    release.release(whole.pk, actor="ada")
    settle()
    assert holds(card) == "host-gpu-1"


def test_undraining_a_whole_serves_its_parts(tree, ask):
    host = tree(cards=1)
    root = callers.caller(User.objects.create_superuser("root"))
    operations.drain(root, host.pk)
    card = gpu(ask)
    settle()
    assert holds(card) == ""
    operations.drain(root, host.pk, drained=False)
    settle()
    assert holds(card) == "host-gpu-1"


def give(lease: Lease, resource: Resource, *, exclusive: bool = False, slots: int = 1) -> None:
    """Insert a share as a person in psql would."""
    with transaction.atomic():
        Share.objects.create(lease=lease, resource=resource, slots=slots, exclusive=exclusive)


@pytest.fixture
def waiting(ask):
    """Pending leases that no resource suits."""
    return lambda: ask("fake", requirements={"size": 99})


def refused(act, *given, **named):
    with pytest.raises(IntegrityError) as raised, transaction.atomic():
        act(*given, **named)
    assert raised.value.__cause__.diag.constraint_name == "resource_tree"
    return str(raised.value)


@pytest.mark.parametrize("how", [{"exclusive": True, "slots": 4}, {"slots": 4}])
def test_the_database_refuses_a_part_of_a_held_whole_and_the_whole_of_a_held_part(tree, waiting, how):
    host = tree(cards=1, slices=1)
    tiny = named("host-gpu-1-slice-1")
    one, two, three = waiting(), waiting(), waiting()
    give(one, host, **how)
    said = refused(give, two, tiny)
    assert f"resource {tiny.pk} is part of resource {host.pk}, which lease {one.pk} holds whole" in said
    Share.objects.filter(lease=one).delete()
    give(two, tiny)
    assert f"what is below resource {host.pk} is leased by others" in refused(give, three, host, **how)
    give(one, host, slots=3)


def test_the_database_refuses_to_move_a_leased_part_under_a_held_whole(tree, waiting):
    host, other = tree("host", cards=1), tree("other", cards=0)
    card = named("host-gpu-1")
    give(waiting(), other, exclusive=True, slots=4)
    holder = waiting()
    give(holder, card)
    said = refused(Resource.objects.filter(pk=card.pk).update, part_of=other)
    assert f"resource {card.pk} is leased and cannot become part of resource {other.pk}" in said
    Share.objects.filter(lease=holder).delete()
    Resource.objects.filter(pk=card.pk).update(part_of=other)
    card.refresh_from_db()
    host.refresh_from_db()
    assert (card.closed_by, host.child_count) == ([other.pk], 0)


def test_a_part_that_appears_below_a_held_whole_is_closed_at_once(tree, waiting, ask):
    host = tree(cards=1)
    give(waiting(), host, exclusive=True, slots=4)
    late = part(named("host-gpu-1").blueprint, "late", named("host-gpu-1"))
    late.refresh_from_db()
    assert late.closed_by == [host.pk]
    assert holds(gpu(ask)) == ""


def test_the_database_refuses_circles_and_more_than_four_levels(tree):
    host = tree(cards=1, slices=1)
    card, tiny = named("host-gpu-1"), named("host-gpu-1-slice-1")
    refused(Resource.objects.filter(pk=host.pk).update, part_of=tiny)
    refused(Resource.objects.filter(pk=host.pk).update, part_of=host)
    third = part(card.blueprint, "third", tiny)
    fourth = part(card.blueprint, "fourth", third)
    refused(part, card.blueprint, "fifth", fourth)
    rack = Resource.objects.create(blueprint=host.blueprint, type="fake", name="rack")
    refused(Resource.objects.filter(pk=host.pk).update, part_of=rack)


def test_a_moved_resource_takes_everything_below_it_along(tree, waiting):
    first, second = tree("first", cards=1, slices=1), tree("second", cards=0)
    card = named("first-gpu-1")
    give(waiting(), named("first-gpu-1-slice-1"))
    Resource.objects.filter(pk=second.pk).update(drained=True)
    Resource.objects.filter(pk=card.pk).update(part_of=second)
    assert (named("first").busy_below, named("second").busy_below) == (0, 1)
    assert named("first-gpu-1-slice-1").closed_by == [second.pk]
    Resource.objects.filter(pk=card.pk).update(part_of=None)
    assert named("first-gpu-1-slice-1").closed_by == []
    assert first.busy_below == 0


@pytest.mark.parametrize("change", ["busy_below = 3", "child_count = 0", "closed_by = ARRAY[7]", "whole_lease_id = 1"])
def test_what_the_triggers_keep_is_changed_by_nothing_else(tree, change):
    tree(cards=1)
    with pytest.raises(IntegrityError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"UPDATE leases_resource SET {change}")


def test_what_was_locked_is_closed_by_the_next_sweep(tree, waiting, ask):
    host = tree(cards=2)
    card = named("host-gpu-1")
    with other_session() as other:
        other.execute("SELECT 1 FROM leases_resource WHERE id = %s FOR NO KEY UPDATE", (card.pk,))
        give(waiting(), host, exclusive=True, slots=4)
        assert (named("host-gpu-1").closed_by, named("host-gpu-2").closed_by) == ([], [host.pk])
        other.rollback()
    assert named("host").tree_stale
    assert holds(gpu(ask)) == "", "the card looks open, but its host is found to be held"
    assert lease_checks.stale_trees() == 1
    assert (named("host-gpu-1").closed_by, named("host").tree_stale) == ([host.pk], False)


def test_a_search_that_may_not_wait_passes_over_a_part_whose_whole_is_locked(tree, ask):
    first = tree("first", cards=1)
    tree("second", cards=1)
    with other_session() as other:
        other.execute("SELECT 1 FROM leases_resource WHERE id = %s FOR NO KEY UPDATE", (first.pk,))
        began = clock.monotonic()
        assert holds(gpu(ask)) == "second-gpu-1"
        assert clock.monotonic() - began < 10
        other.rollback()


def other_session():
    import psycopg

    given = connection.get_connection_params()
    return psycopg.connect(
        **{key: given[key] for key in ("host", "port", "user", "password", "dbname") if given.get(key)}
    )


def test_two_heads_of_queues_that_reserved_a_whole_and_its_part_do_not_wait_for_each_other(tree, ask):
    tree(cards=1)
    blocker = ask(slots=1)
    small = gpu(ask)
    whole, card = ask(exclusive=True), gpu(ask)
    Resource.objects.filter(name="host").update(reserved_for=whole)
    Resource.objects.filter(name="host-gpu-1").update(reserved_for=card)
    settle()
    assert named("host-gpu-1").reserved_for is None
    release.release(blocker.pk, actor="ada")
    release.release(small.pk, actor="ada")
    settle()
    assert holds(whole) == "host"


def test_resources_without_relatives_are_claimed_without_another_statement(blueprint, ask):
    blueprint(max_resources=1, min_ready=1)
    settle()
    assert rows("SELECT count(*) FROM leases_resource WHERE child_count > 0 OR part_of_id IS NOT NULL") == [(0,)]
    with connection.execute_wrapper(_refuse_relatives):
        assert holds(ask())


def _refuse_relatives(execute, sql, params, many, context):
    assert "drydock_tree_permits" not in sql
    return execute(sql, params, many, context)


def said(lease: Lease) -> str:
    settle()
    lease.refresh_from_db()
    return lease.message


def test_the_verdict_names_the_relative_that_is_in_the_way(tree, ask, owner):
    tree("host-3", cards=1)
    card = gpu(ask)
    whole = ask(exclusive=True)
    assert said(whole) == (
        "hosts: its only suitable resource cannot be leased now"
        " (host-3: host-3-gpu-1 below it is leased by another lease)"
    )
    own = callers.caller(owner)
    shown = leases.get(own, whole.pk).waiting.message
    assert f"host-3 cannot be leased now: host-3-gpu-1 below it is leased by lease {card.pk}" in shown
    release.release(card.pk, actor="ada")
    settle()
    assert holds(whole) == "host-3"
    late = gpu(ask, by=User.objects.create_user("bob"))
    assert said(late) == (
        "parts: its only suitable resource cannot be leased now (host-3-gpu-1: host-3 is held whole by another lease)"
    )
    shown = leases.get(callers.caller(User.objects.get(username="bob")), late.pk).waiting.message
    assert "host-3 is held whole by another lease" in shown
    shown = leases.get(callers.caller(User.objects.create_superuser("root")), late.pk).waiting.message
    assert f"host-3 is held whole by lease {whole.pk}" in shown


def test_the_verdict_counts_the_resources_that_relatives_close(tree, ask):
    tree("host-1", cards=2)
    tree("host-2", cards=1)
    ask(exclusive=True)
    gpu(ask)
    late = gpu(ask)
    assert "cannot be leased now (host-1-gpu-1: host-1 is held whole by another lease)" in said(late)
