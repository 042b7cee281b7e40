"""Watches of providers, and what they tell resources and runs."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("leases", "0060_former_configs"),
    ]

    operations = [
        migrations.AddField(
            model_name="resource",
            name="changed",
            field=models.BooleanField(db_default=False, default=False, editable=False),
        ),
        migrations.AddField(
            model_name="run",
            name="woken",
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.CreateModel(
            name="ProviderWatch",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(max_length=63)),
                ("credential", models.CharField(blank=True, db_default="", default="", max_length=255)),
                ("place", models.CharField(blank=True, db_default="", default="", max_length=255)),
                ("token", models.UUIDField(blank=True, null=True)),
                ("token_until", models.DateTimeField(blank=True, null=True)),
                (
                    "worker",
                    models.CharField(
                        blank=True, db_default="", default="", help_text="Worker that watches.", max_length=255
                    ),
                ),
                ("bookmark", models.TextField(blank=True, db_default="", default="")),
                (
                    "started_at",
                    models.DateTimeField(blank=True, help_text="Since when the worker has watched.", null=True),
                ),
                ("event_at", models.DateTimeField(blank=True, help_text="When a change was last reported.", null=True)),
                ("listed_at", models.DateTimeField(blank=True, help_text="When a listing last ended.", null=True)),
                ("failing_since", models.DateTimeField(blank=True, null=True)),
                ("message", models.TextField(blank=True, db_default="", default="", help_text="Why the watch fails.")),
            ],
            options={
                "verbose_name": "watch",
                "verbose_name_plural": "watches",
                "constraints": [
                    models.UniqueConstraint(fields=("kind", "credential", "place"), name="watch_place_once")
                ],
            },
        ),
    ]
