"""Who is parked for a quota or budget, in the order of the queue; without stopping a write."""

from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [
        ("leases", "0018_watches"),
    ]

    operations = [
        AddIndexConcurrently(
            "lease",
            models.Index(
                fields=["owner", "rank", "id"],
                condition=models.Q(state="pending", parked=True),
                name="lease_parked_owner",
            ),
        ),
        AddIndexConcurrently(
            "lease",
            models.Index(
                fields=["charged_group", "rank", "id"],
                condition=models.Q(state="pending", parked=True) & ~models.Q(charged_group=None),
                name="lease_parked_charged",
            ),
        ),
        RemoveIndexConcurrently("lease", "lease_parked"),
        RemoveIndexConcurrently("lease", "lease_parked_group"),
    ]
