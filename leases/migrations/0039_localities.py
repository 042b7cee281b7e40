"""The positions of resources inside the trees that they belong to."""

import django.contrib.postgres.fields
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("leases", "0038_quota_classes"),
    ]

    operations = [
        migrations.AddField(
            model_name="resource",
            name="locality",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(max_length=100), blank=True, db_default=[], default=list, size=None
            ),
        ),
    ]
