"""A search does not meet degraded resources; without stopping a write."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [
        ("leases", "0044_health"),
    ]

    operations = [
        AddIndexConcurrently(
            "resource",
            models.Index(
                fields=["type", "id"],
                condition=models.Q(("claimable", True), ("closed_by", []), ("health", "ok")),
                name="resource_healthy",
            ),
        ),
        AddIndexConcurrently(
            "resource",
            models.Index(
                fields=["type", "id"],
                condition=models.Q(models.Q(("health", "ok"), _negated=True), ("gone_at", None)),
                name="resource_unhealthy",
            ),
        ),
    ]
