"""Columns and triggers by which a lease on a whole and leases on its parts exclude each other."""

from pathlib import Path

import django.contrib.postgres.fields
from django.db import migrations, models

_HERE = Path(__file__).parent
_SQL = (_HERE / "tree.sql").read_text()
_BEFORE = (_HERE / "usage.sql").read_text()
_SHARE = _BEFORE[_BEFORE.index("CREATE OR REPLACE FUNCTION drydock_share()") : _BEFORE.index("-- What is held already")]
_UNDO = (
    _SHARE
    + """
DROP TRIGGER resource_recounted ON leases_resource;
DROP TRIGGER resource_joins ON leases_resource;
DROP TRIGGER resource_moves ON leases_resource;
DROP TRIGGER resource_tree ON leases_resource;
DROP TRIGGER resource_leaves ON leases_resource;
DROP TRIGGER resource_tree_kept ON leases_resource;
DROP TRIGGER resource_unheld ON leases_resource;
DROP FUNCTION drydock_tree_permits(bigint, bigint, bigint[], boolean, bigint, boolean);
DROP FUNCTION drydock_tree();
DROP FUNCTION drydock_join();
DROP FUNCTION drydock_recount();
DROP FUNCTION drydock_spread(bigint);
DROP FUNCTION drydock_obstacle(bigint, boolean);
DROP FUNCTION drydock_climb(bigint, bigint, int, bigint);
DROP FUNCTION drydock_permits(bigint, bigint[], bigint);
DROP FUNCTION drydock_related(bigint, bigint);
DROP FUNCTION drydock_below(bigint);
DROP FUNCTION drydock_above(bigint);
DROP FUNCTION drydock_obstructs(leases_resource);
DROP FUNCTION drydock_closes(leases_resource);
"""
)


class Migration(migrations.Migration):
    dependencies = [
        ("leases", "0034_identities"),
    ]

    operations = [
        migrations.AddField(
            model_name="resource",
            name="whole_lease_id",
            field=models.BigIntegerField(blank=True, editable=False, null=True),
        ),
        migrations.AddField(
            model_name="resource",
            name="closed_by",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.BigIntegerField(), db_default=[], default=list, editable=False, size=None
            ),
        ),
        migrations.AddField(
            model_name="resource",
            name="busy_below",
            field=models.IntegerField(db_default=0, default=0, editable=False),
        ),
        migrations.AddField(
            model_name="resource",
            name="child_count",
            field=models.IntegerField(db_default=0, default=0, editable=False),
        ),
        migrations.AddField(
            model_name="resource",
            name="tree_stale",
            field=models.BooleanField(db_default=False, default=False, editable=False),
        ),
        migrations.RunSQL(_SQL, _UNDO),
    ]
