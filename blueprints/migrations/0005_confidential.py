"""Confidential offers by price; without stopping a write."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [
        ("blueprints", "0004_allowances"),
    ]

    operations = [
        AddIndexConcurrently(
            "listing",
            models.Index(
                fields=["price"],
                condition=models.Q(available=True) & ~models.Q(confidential=[]),
                name="listing_confidential",
            ),
        ),
    ]
