"""A search does not meet resources that are closed from above; without stopping a write."""

from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [
        ("leases", "0036_tree_rows"),
    ]

    operations = [
        AddIndexConcurrently(
            "resource",
            models.Index(
                fields=["type", "id"],
                condition=models.Q(("claimable", True), ("closed_by", [])),
                name="resource_open",
            ),
        ),
        AddIndexConcurrently(
            "resource",
            models.Index(fields=["id"], condition=models.Q(("tree_stale", True)), name="resource_tree_stale"),
        ),
        RemoveIndexConcurrently("resource", "resource_claimable"),
    ]
