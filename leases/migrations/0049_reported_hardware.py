from django.db import migrations, models
from django.db.models.functions import Now


class Migration(migrations.Migration):
    dependencies = [
        ("leases", "0048_agent_endpoints"),
    ]

    operations = [
        migrations.CreateModel(
            name="ReportedHardware",
            fields=[
                (
                    "sync",
                    models.OneToOneField(
                        on_delete=models.deletion.CASCADE,
                        primary_key=True,
                        related_name="hardware",
                        serialize=False,
                        to="leases.sync",
                    ),
                ),
                ("digest", models.CharField(max_length=64)),
                ("content", models.BinaryField(null=True)),
                ("size", models.PositiveIntegerField(help_text="Bytes of the report, unpacked.")),
                ("counts", models.JSONField(blank=True, db_default=models.Value({}, models.JSONField()), default=dict)),
                ("unready", models.PositiveIntegerField(db_default=0, default=0)),
                (
                    "changed_at",
                    models.DateTimeField(
                        db_default=Now(), help_text="Since when the reports have said the same.", verbose_name="changed"
                    ),
                ),
            ],
            options={"verbose_name": "reported hardware", "verbose_name_plural": "reported hardware"},
        ),
    ]
