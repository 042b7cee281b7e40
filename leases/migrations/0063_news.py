"""What a watch says about an object, so that a step that has only to show it sends no request."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("leases", "0062_woken_at"),
    ]

    operations = [
        migrations.AddField(
            model_name="run",
            name="news",
            field=models.JSONField(blank=True, editable=False, null=True),
        ),
    ]
