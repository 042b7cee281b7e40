"""Since when a resource does not answer: a new column that may be empty."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("leases", "0023_sessions")]

    operations = [
        migrations.AddField(
            model_name="resource", name="suspect_since", field=models.DateTimeField(blank=True, null=True)
        ),
    ]
