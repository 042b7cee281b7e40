"""Rows in bulk: resources, waiting leases and a long history, written by the database itself.

Triggers are off while rows are made, as they would write an event for each. For databases of a bench only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.db import ProgrammingError, transaction

from leases.engine.core.database import rows, run

_RESOURCES = """
    INSERT INTO leases_resource (blueprint_id, type, name, origin, generation, state, attributes, traits, total_slots,
        missed, check_failures)
    SELECT %(blueprint)s, %(type)s, 'bench-' || n, 'built', 1, 'active',
        jsonb_build_object('size', n %% 7, 'color', CASE WHEN n = %(count)s THEN 'gold' ELSE 'grey' END),
        ARRAY[CASE WHEN n = %(count)s THEN 'quick' ELSE 'usual' END]::varchar[], %(slots)s, 0, 0
    FROM generate_series(1, %(count)s) n"""
_LEASES = """
    INSERT INTO leases_lease (type, owner_id, state, reason, shape, rank, slots, ttl, requirements, due_at, since,
        created_at, ended_at, bounces)
    SELECT %(type)s, %(owner)s, %(state)s, 'bench', md5((n %% %(shapes)s)::text), n, %(slots)s, NULL,
        %(requirements)s::jsonb, CASE WHEN %(state)s = 'pending' THEN now() + interval '1 day' END, now(),
        now() - n * interval '1 s', CASE WHEN %(state)s <> 'pending' THEN now() - n * interval '1 s' END, 0
    FROM generate_series(1, %(count)s) n"""
_FULL = "UPDATE leases_resource SET used_slots = total_slots, idle_since = NULL WHERE type = %s"
_EMPTY = "UPDATE leases_resource SET used_slots = 0 WHERE type = %s"
_TABLES = ("leases_lease", "leases_resource")


@contextmanager
def _without_triggers() -> Iterator[None]:
    with transaction.atomic():
        for table in _TABLES:
            run(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        yield
        run("SET CONSTRAINTS ALL IMMEDIATE")
        for table in _TABLES:
            run(f"ALTER TABLE {table} ENABLE TRIGGER USER")
    for table in _TABLES:
        run(f"VACUUM ANALYZE {table}")
    with suppress(ProgrammingError):  # without the right to, what was made is still being written while we measure
        run("CHECKPOINT")


def resources(blueprint: int, resource_type: str, count: int, *, slots: int = 8) -> None:
    """`count` idle resources; the last one is the only one that is gold, and the only one with the trait `quick`."""
    with _without_triggers():
        run(_RESOURCES, {"blueprint": blueprint, "type": resource_type, "count": count, "slots": slots})


def registered(blueprint: int, hosts: list[tuple[Any, dict[str, Any]]]) -> None:
    """Idle hosts that are off, from their drafts and registrations. No check of them is due."""
    from leases.models import Resource

    with _without_triggers():
        Resource.objects.bulk_create(
            Resource(
                blueprint_id=blueprint,
                type="host",
                name=f"bench-{number}",
                origin="registered",
                state="active",
                identity=draft.identity,
                attributes=draft.attributes,
                facts={**draft.facts, "hardware": {}},
                registration=stored,
                power="off",
                total_slots=1,
            )
            for number, (draft, stored) in enumerate(hosts)
        )


_WHOLES = """
    INSERT INTO leases_resource (blueprint_id, type, name, origin, generation, state, total_slots, child_count, missed,
        check_failures)
    SELECT %(wholes)s, %(type)s, 'host-' || n, 'discovered', 1, 'active', 8, %(parts)s, 0, 0
    FROM generate_series(1, %(count)s) n"""
_PARTS = """
    INSERT INTO leases_resource (blueprint_id, type, name, origin, generation, state, total_slots, part_of_id, missed,
        check_failures)
    SELECT %(pieces)s, %(part_type)s, h.name || '-' || n, 'discovered', 1, 'active', 1, h.id, 0, 0
    FROM leases_resource h CROSS JOIN generate_series(1, %(parts)s) n WHERE h.blueprint_id = %(wholes)s"""
_CLOSE = """
    WITH held AS (SELECT id FROM leases_resource WHERE blueprint_id = %(wholes)s ORDER BY id LIMIT %(count)s)
    UPDATE leases_resource r SET drained = drained OR r.id IN (SELECT id FROM held),
        closed_by = CASE WHEN r.part_of_id IS NULL THEN '{}' ELSE ARRAY[r.part_of_id] END
    WHERE r.id IN (SELECT id FROM held) OR r.part_of_id IN (SELECT id FROM held)"""


def remove(blueprints: list[int]) -> None:
    """Take the resources of blueprints away, with their leases."""
    with _without_triggers():
        run(
            "DELETE FROM leases_lease WHERE resource_id IN"
            " (SELECT id FROM leases_resource WHERE blueprint_id = ANY(%s))",
            (blueprints,),
        )
        run(
            "DELETE FROM leases_sensorreport WHERE resource_id IN"
            " (SELECT id FROM leases_resource WHERE blueprint_id = ANY(%s))",
            (blueprints,),
        )
        run("DELETE FROM leases_resource WHERE blueprint_id = ANY(%s)", (blueprints,))


def trees(wholes: int, pieces: int, whole_type: str, part_type: str, count: int, *, parts: int) -> None:
    """`count` hosts of 8 slots, each with `parts` parts."""
    given = {
        "wholes": wholes,
        "pieces": pieces,
        "type": whole_type,
        "part_type": part_type,
        "count": count,
        "parts": parts,
    }
    with _without_triggers():
        run(_WHOLES, given)
        run(_PARTS, given)


def close_wholes(wholes: int, count: int) -> None:
    """Close the first `count` hosts and everything below them, as leases on the wholes or an operator would."""
    with _without_triggers():
        run(_CLOSE, {"wholes": wholes, "count": count})


_POSITIONS = """
    UPDATE leases_resource r SET attributes = r.attributes || '{"color": "gpu"}', locality = ARRAY['NUMA node 0',
        'root port ' || (p.n - 1) / 4, 'switch ' || (p.n - 1) / 2]
    FROM (SELECT id, row_number() OVER (PARTITION BY part_of_id ORDER BY id) AS n FROM leases_resource
        WHERE blueprint_id = %(pieces)s) p WHERE r.id = p.id"""
_NICS = """
    INSERT INTO leases_resource (blueprint_id, type, name, origin, generation, state, total_slots, part_of_id, missed,
        check_failures, attributes, locality)
    SELECT %(pieces)s, %(part_type)s, h.name || '-nic', 'discovered', 1, 'active', 1, h.id, 0, 0, '{"color": "nic"}',
        ARRAY['NUMA node 0', 'root port 0', 'switch 0']
    FROM leases_resource h WHERE h.blueprint_id = %(wholes)s"""
_BUSY = """
    UPDATE leases_resource SET busy_below = 1 WHERE blueprint_id = %(wholes)s
        AND id < (SELECT max(id) FROM leases_resource WHERE blueprint_id = %(wholes)s)"""


def positions(wholes: int, pieces: int, part_type: str) -> None:
    """Make the parts of each host GPUs, two at a switch and four at a root port, and add a NIC at the first switch."""
    with _without_triggers():
        run(_POSITIONS, {"pieces": pieces})
        run(_NICS, {"wholes": wholes, "pieces": pieces, "part_type": part_type})
        run("UPDATE leases_resource SET child_count = child_count + 1 WHERE blueprint_id = %s", (wholes,))


def occupy(wholes: int) -> None:
    """Let all hosts but the last appear to have a leased part."""
    with _without_triggers():
        run(_BUSY, {"wholes": wholes})


def fill(resource_type: str, *, full: bool = True) -> None:
    """Make all resources of a type full, or empty again."""
    with _without_triggers():
        run(_FULL if full else _EMPTY, (resource_type,))


def waiters(owner: int, resource_type: str, count: int, *, shapes: int, slots: int, requirements: str = "{}") -> None:
    """`count` leases of so many shapes that wait."""
    _leases(owner, resource_type, "pending", count, shapes, slots, requirements)


def history(owner: int, resource_type: str, count: int) -> None:
    """`count` leases that have ended."""
    _leases(owner, resource_type, "destroyed", count, 1, 1, "{}")


def _leases(owner: int, resource_type: str, state: str, count: int, shapes: int, slots: int, needs: str) -> None:
    given = {"type": resource_type, "owner": owner, "state": state, "count": count, "shapes": shapes, "slots": slots}
    with _without_triggers():
        run(_LEASES, given | {"requirements": needs})


def forget(resource_type: str, states: tuple[str, ...] = ("pending",)) -> None:
    """Take the waiting leases of a type away again."""
    with _without_triggers():
        rows("DELETE FROM leases_lease WHERE type = %s AND state = ANY(%s)", (resource_type, list(states)))
