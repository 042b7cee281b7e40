"""What of the acts on resources keeps failing: a new table."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("leases", "0019_parked"),
    ]

    operations = [
        migrations.CreateModel(
            name="Failure",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("act", models.CharField(max_length=16)),
                ("code", models.CharField(blank=True, db_default="", default="", max_length=128)),
                ("message", models.TextField()),
                ("attempts", models.PositiveIntegerField(db_default=1, default=1)),
                ("since", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "lease",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="leases.lease",
                    ),
                ),
                (
                    "resource",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="failure", to="leases.resource"
                    ),
                ),
            ],
        ),
    ]
