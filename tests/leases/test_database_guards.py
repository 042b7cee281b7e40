"""What the database itself refuses: double use, transitions that the tables do not have, changes without an event."""

from __future__ import annotations

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction

from leases.engine.core.database import InsideTransaction
from leases.engine.core.transitions import StaleTransition, move_lease
from leases.engine.lifecycle import release
from leases.engine.scheduling import allocate
from leases.messaging.inline import settle
from leases.models import Event, Resource
from leases.reasons import Reason
from leases.states import LEASE, RESOURCE, LeaseState

LONG_AGO = "2020-01-01T00:00Z"


def test_the_database_refuses_what_the_code_must_not_do(blueprint, ask, until):
    blueprint(config={"capacity": {"slots": 2}})
    lease = until(ask(), state="active")
    for sql in (
        "UPDATE leases_resource SET used_slots = 0",
        "UPDATE leases_share SET slots = 2",
        "UPDATE leases_lease SET state = 'pending'",
        "UPDATE leases_resource SET state = 'destroyed'",
        "UPDATE leases_capacity SET used = used + 1",
        f"INSERT INTO leases_share (lease_id, resource_id, slots) SELECT id, {lease.resource_id}, 2 FROM leases_lease",
    ):
        if sql.startswith("UPDATE leases_capacity"):
            lease.resource.capacities.create(name="gpu", total=1)
        with pytest.raises((DatabaseError, IntegrityError)), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(sql)


def test_a_total_may_shrink_below_what_is_used_and_then_only_stops_growth(blueprint, ask, until):
    blueprint(config={"capacity": {"slots": 3}}, max_resources=1)
    leases = [until(ask(), state="active") for _ in range(2)]
    Resource.objects.update(total_slots=1)
    late = ask()
    settle()
    late.refresh_from_db()
    assert late.state == "pending"
    release.release(leases[0].pk, actor="ada")
    assert Resource.objects.get().used_slots == 1


def test_a_transition_from_the_wrong_state_is_an_error(blueprint, ask, until):
    blueprint()
    lease = until(ask(), state="active")
    with pytest.raises(StaleTransition):
        move_lease(lease.pk, LeaseState.PENDING, reason=Reason.NONE)


def test_the_triggers_hold_the_tables_of_the_code():
    with connection.cursor() as cursor:
        cursor.execute("SELECT tgname, encode(tgargs, 'escape') FROM pg_trigger WHERE tgname LIKE '%_transition'")
        found = {
            name: set(arguments.removesuffix("\\000").strip("{}").split(",")) for name, arguments in cursor.fetchall()
        }
    assert found == {
        "lease_transition": {f"{a}>{b}" for a, b in LEASE.pairs()},
        "resource_transition": {f"{a}>{b}" for a, b in RESOURCE.pairs()},
    }


def test_no_state_changes_without_an_event(blueprint, ask, until):
    blueprint(kind="fake_activated")
    lease = until(ask("fake_activated"), state="active")
    release.release(lease.pk, actor="ada")
    until(lease, state="destroyed")
    told = Event.objects.filter(lease=lease).exclude(to_state="").order_by("id")
    assert [(e.from_state, e.to_state) for e in told] == [
        ("", "pending"),
        ("pending", "acquired"),
        ("acquired", "active"),
        ("active", "released"),
        ("released", "destroyed"),
    ]
    assert all(e.actor and e.duration is not None for e in told if e.from_state)


def test_waiting_inside_a_transaction_is_a_clear_error():
    with transaction.atomic(), pytest.raises(InsideTransaction):
        allocate.build(1, 1, None, [])  # type: ignore[arg-type]
