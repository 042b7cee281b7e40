"""How many messages of the broker were not Drydock's own: columns with constant defaults, which rewrite nothing."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("leases", "0021_usage_until_gone"),
    ]

    operations = [
        migrations.AddField("installation", "dropped_messages", models.BigIntegerField(db_default=0, default=0)),
        migrations.AddField("installation", "dropped_message", models.TextField(blank=True, db_default="", default="")),
        migrations.AddField("installation", "dropped_at", models.DateTimeField(blank=True, null=True)),
    ]
