"""A report of sensors finds the usage of its resource; without stopping a write."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [
        ("leases", "0055_energy"),
    ]

    operations = [
        AddIndexConcurrently(
            "usage",
            models.Index(
                fields=["resource_id", "ended_at"],
                condition=models.Q(("energy_wh", None), _negated=True),
                name="usage_energy",
            ),
        ),
    ]
