"""Trees of resources and leases that an upgrade meets: its migration counts them, as the triggers would have."""

from __future__ import annotations

import importlib

from django.apps import apps
from django.db import connection, transaction

from chaos.proof import tree_violations
from leases.models import Lease, Resource

recount = importlib.import_module("leases.migrations.0036_tree_rows").recount


def test_the_migration_counts_trees_and_wholes_that_are_there(blueprint, ask):
    pool = blueprint(max_resources=0)
    there = {"blueprint": pool, "type": "fake", "state": "active", "origin": "discovered"}
    host, other = (Resource.objects.create(name=name, total_slots=4, **there) for name in ("host", "other"))
    single = Resource.objects.create(name="single", **there)
    cards = [Resource.objects.create(name=f"gpu-{n}", part_of=whole, **there) for n, whole in enumerate((host, other))]
    leases = [ask(requirements={"size": 99}) for _ in range(3)]
    shares = ((leases[0], host, 4), (leases[1], cards[1], 1), (leases[2], single, 1))
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "ALTER TABLE leases_resource DISABLE TRIGGER USER; ALTER TABLE leases_share DISABLE TRIGGER USER"
        )
        for lease, resource, slots in shares:
            cursor.execute(
                "INSERT INTO leases_share (lease_id, resource_id, slots) VALUES (%s, %s, %s)",
                (lease.pk, resource.pk, slots),
            )
            cursor.execute("UPDATE leases_resource SET used_slots = %s WHERE id = %s", (slots, resource.pk))
        cursor.execute("UPDATE leases_resource SET child_count = 0, drained = name = 'gpu-0'")
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        for table in ("leases_resource", "leases_share"):
            cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")
    assert tree_violations()
    recount(apps, None)
    assert tree_violations() == []
    found = {one.name: (one.whole_lease_id, one.busy_below, one.child_count) for one in Resource.objects.all()}
    assert found == {
        "host": (leases[0].pk, 1, 1), "other": (None, 1, 1), "single": (leases[2].pk, 0, 0), "gpu-0": (None, 0, 0),
        "gpu-1": (leases[1].pk, 0, 0),
    }  # fmt: skip
    assert Resource.objects.get(name="gpu-0").closed_by == [host.pk]
    assert Lease.objects.count() == 3
