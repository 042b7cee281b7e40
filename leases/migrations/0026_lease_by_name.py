"""Find an owner's live lease by its name; without stopping a write."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [
        ("leases", "0025_registration"),
    ]

    operations = [
        AddIndexConcurrently(
            "lease",
            models.Index(
                fields=["owner", "name"],
                condition=models.Q(state__in=["pending", "acquired", "active"]) & ~models.Q(name=""),
                name="lease_by_name",
            ),
        ),
    ]
