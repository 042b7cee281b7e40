"""Indexes for the console's search and lists.

Each is partial: a lease without name, labels, hold or failure writes to none of them, and none of these columns
changes on the way of a lease.
"""

from __future__ import annotations

from django.db import migrations

INDEXES = {
    "lease_name_begins": "leases_lease (lower(name) text_pattern_ops) WHERE name <> ''",
    "lease_label_values": "leases_lease USING gin (jsonb_path_query_array(labels, '$.*') jsonb_path_ops)"
    " WHERE labels <> '{}'",
    "lease_broken": "leases_lease (id) WHERE state = 'broken'",
    "lease_held": "leases_lease (id) WHERE held",
    "resource_name_begins": "leases_resource (lower(name) text_pattern_ops) WHERE name <> ''",
    "resource_identity_begins": "leases_resource (lower(identity) text_pattern_ops) WHERE identity IS NOT NULL",
    "resource_quarantined": "leases_resource (id) WHERE quarantined AND gone_at IS NULL",
    "resource_sick": "leases_resource (id) WHERE check_failures > 0 AND gone_at IS NULL",
    "resource_broken": "leases_resource (id) WHERE state = 'broken' AND gone_at IS NULL",
}


class Migration(migrations.Migration):
    # CONCURRENTLY: no write waits while an index is built, and that cannot be inside a transaction.
    atomic = False
    dependencies = [("leases", "0006_scale")]
    operations = [
        migrations.RunSQL(
            f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {name} ON {on}", f"DROP INDEX CONCURRENTLY IF EXISTS {name}"
        )
        for name, on in INDEXES.items()
    ]
