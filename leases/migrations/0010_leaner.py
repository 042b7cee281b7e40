"""Fewer indexes on the way of a lease: a row goes into each that covers it, five times from request to end.

What is mostly empty gets a partial index; what another index begins with needs none; events are found by time through
the summary of their pages. First the new ones, then the old ones go, each without stopping a write.
"""

from __future__ import annotations

import django.contrib.postgres.indexes
import django.db.models.deletion
from django.conf import settings
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models.functions import Now

GONE = {
    "leases_event_at_64c08289": "leases_event (at)",
    "leases_event_blueprint_id_7984899b": "leases_event (blueprint_id)",
    "leases_lease_charged_group_id_e6938700": "leases_lease (charged_group_id)",
    "leases_lease_for_lease_id_c48ec4a1": "leases_lease (for_lease_id)",
    "leases_lease_for_resource_id_ad993897": "leases_lease (for_resource_id)",
    "leases_lease_group_id_561c01f1": "leases_lease (group_id)",
    "leases_lease_owner_id_1023d9a6": "leases_lease (owner_id)",
    "leases_lease_replaced_by_id_9cd5bc83": "leases_lease (replaced_by_id)",
    "leases_lease_root_id_44b3aa82": "leases_lease (root_id)",
}


def _refers(to, **options):
    """A foreign key of a lease without an index of its own."""
    given = {"null": True, "on_delete": django.db.models.deletion.PROTECT, "db_index": False, "related_name": "+"}
    return models.ForeignKey(**{**given, **options, "to": to})


FIELDS = [
    ("event", "at", models.DateTimeField(db_default=Now())),
    (
        "event",
        "blueprint",
        models.ForeignKey(
            db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING,
            related_name="events", to="blueprints.blueprint",
        ),
    ),
    ("lease", "charged_group", _refers("auth.group", blank=True)),
    ("lease", "for_lease", _refers("leases.lease", blank=True, related_name="holds")),
    ("lease", "for_resource", _refers("leases.resource", blank=True, related_name="holds")),
    ("lease", "group", _refers("leases.leasegroup", blank=True, related_name="leases")),
    ("lease", "owner", _refers(settings.AUTH_USER_MODEL, related_name="leases")),
    (
        "lease",
        "replaced_by",
        _refers(
            "leases.lease", blank=True, related_name="replaces", on_delete=django.db.models.deletion.SET_NULL
        ),
    ),
    ("lease", "root", _refers("leases.lease", blank=True)),
]  # fmt: skip


def _partial(column, name):
    return models.Index(fields=[column], condition=~models.Q(**{column: None}), name=name)


class Migration(migrations.Migration):
    atomic = False
    dependencies = [
        ("leases", "0009_job_input"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("blueprints", "0001_initial"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]
    operations = [
        AddIndexConcurrently("lease", _partial("root", "lease_of_root")),
        AddIndexConcurrently("lease", _partial("replaced_by", "lease_replaced_by")),
        AddIndexConcurrently("lease", _partial("charged_group", "lease_charged")),
        AddIndexConcurrently("event", _partial("blueprint", "event_of_blueprint")),
        AddIndexConcurrently(
            "event", django.contrib.postgres.indexes.BrinIndex(fields=["at"], autosummarize=True, name="event_at")
        ),
        migrations.SeparateDatabaseAndState(
            state_operations=[migrations.AlterField(model, name, field) for model, name, field in FIELDS],
            database_operations=[
                migrations.RunSQL(
                    f"DROP INDEX CONCURRENTLY IF EXISTS {name}",
                    f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {name} ON {on}",
                )
                for name, on in GONE.items()
            ],
        ),
    ]
