"""The progress that a watch reports, so that a step that only displays it needs no request."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("leases", "0062_woken_at"),
    ]

    operations = [
        migrations.AddField(
            model_name="run",
            name="progress",
            field=models.JSONField(blank=True, editable=False, null=True),
        ),
        migrations.AddField(
            model_name="run",
            name="progress_at",
            field=models.DateTimeField(blank=True, editable=False, null=True),
        ),
    ]
