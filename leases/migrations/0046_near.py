"""Groups whose devices are near one another; and an index of free wholes, without stopping a write."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [
        ("leases", "0043_resolutions"),
    ]

    operations = [
        migrations.AddField(
            model_name="leasegroup",
            name="near",
            field=models.CharField(blank=True, db_default="", default="", max_length=16),
        ),
        migrations.AddField(
            model_name="leasegroup",
            name="distance",
            field=models.CharField(blank=True, db_default="", default="", max_length=200),
        ),
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
