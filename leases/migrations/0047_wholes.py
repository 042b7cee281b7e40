"""A search for a whole does not meet those with something in use in or below them; without stopping a write."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [
        ("leases", "0046_near"),
    ]

    operations = [
        AddIndexConcurrently(
            "resource",
            models.Index(
                fields=["type", "id"],
                condition=models.Q(("busy_below", 0), ("claimable", True), ("closed_by", []))
                & models.Q(("idle_since", None), _negated=True),
                name="resource_whole",
            ),
        ),
    ]
