"""The time of the last wake of a run by a watch, so that a flapping object does not wake it again and again."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("leases", "0061_watches"),
    ]

    operations = [
        migrations.AddField(
            model_name="run",
            name="woken_at",
            field=models.DateTimeField(blank=True, editable=False, null=True),
        ),
    ]
