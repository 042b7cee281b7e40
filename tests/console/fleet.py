"""Many leases at once, written as rows: what a busy installation has after some weeks."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import connection

from blueprints.models import Blueprint
from leases.models import Worker

STATES = ("destroyed",) * 14 + ("active",) * 3 + ("pending", "broken", "released")
"""Of twenty leases, so many are in each state."""
_RESOURCES = """
    INSERT INTO leases_resource (blueprint_id, type, name, state, origin, identity, generation, total_slots,
        total_ram_mib, quarantined, note, gone_at)
    SELECT b.id, 'fake', b.name || '-' || n, CASE WHEN n %% 10 < 8 THEN 'active' ELSE 'destroyed' END, 'built',
        'id-' || n, 1, 8, 65536, n %% 500 = 3, CASE WHEN n %% 500 = 3 THEN 'odd noises' ELSE '' END,
        CASE WHEN n %% 10 < 8 THEN NULL ELSE now() END
    FROM generate_series(0, %(things)s - 1) n JOIN blueprints_blueprint b ON b.name = (%(pools)s::text[])[n %% 3 + 1]"""
_LEASES = """
    INSERT INTO leases_lease (type, name, labels, owner_id, state, reason, message, shape, rank, since, resource_id,
        until, acquired_at, active_at, ended_at)
    SELECT 'fake', CASE WHEN n %% 2 = 0 THEN '' ELSE 'nightly-' || n END,
        jsonb_build_object('team', CASE WHEN n %% 3 = 0 THEN 'red' ELSE 'blue' END),
        (%(owners)s::bigint[])[n %% 10 + 1],
        state, CASE WHEN waits THEN 'waiting_room' ELSE '' END, CASE WHEN waits THEN 'All are full.' ELSE '' END,
        's' || n %% 5, n, begun, CASE WHEN waits THEN NULL ELSE r.id END, now() + interval '1 h',
        CASE WHEN waits THEN NULL ELSE begun END, CASE WHEN waits THEN NULL ELSE begun END,
        CASE WHEN state IN ('destroyed', 'broken') THEN now() END
    FROM (SELECT n, (%(states)s::text[])[n %% 20 + 1] AS state, (%(states)s::text[])[n %% 20 + 1] = 'pending' AS waits,
        now() - n %% 4000 * interval '1 min' AS begun FROM generate_series(0, %(number)s - 1) n) l
    JOIN (SELECT id, row_number() OVER (ORDER BY id) - 1 AS at FROM leases_resource) r ON r.at = n %% %(things)s"""
_SHARES = """
    INSERT INTO leases_share (lease_id, resource_id, slots)
    SELECT id, resource_id, 1 FROM leases_lease WHERE state IN ('active', 'released')"""
_EVENTS = """
    INSERT INTO leases_event (kind, lease_id, resource_id, from_state, to_state, duration, actor, message)
    SELECT 'lease.' || w.later, l.id, l.resource_id, w.before, w.later, interval '7 s', 'drydock', 'It is ' || w.later
    FROM leases_lease l,
        (VALUES ('pending', 'acquired'), ('acquired', 'active'), ('active', 'released')) AS w (before, later)"""


def fleet(number: int) -> None:
    """`number` leases of ten owners on a third as many resources of three blueprints, each with its events."""
    Worker.objects.create(name="worker-1", queues=["claims"])
    pools = [
        Blueprint.objects.create(name=name, kind="fake", resource_type="fake", audience="everyone").name
        for name in ("rack", "cloud", "lab")
    ]
    owners = [one.pk for one in User.objects.bulk_create([User(username=f"owner-{n}") for n in range(10)])]
    given = {
        "number": number, "things": max(number // 3, 1), "pools": pools, "owners": owners, "states": list(STATES)
    }  # fmt: skip
    with connection.cursor() as cursor:
        if number:
            for statement in (_RESOURCES, _LEASES, _SHARES, _EVENTS):
                cursor.execute(statement, given)
        cursor.execute("ANALYZE")
