"""Configs that blueprints had before, so that an update can tell whether a change disturbs leases."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("blueprints", "0011_wording"),
        ("leases", "0059_login_attempts"),
    ]

    operations = [
        migrations.CreateModel(
            name="FormerConfig",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("generation", models.PositiveIntegerField()),
                ("kind", models.CharField(max_length=63)),
                ("config", models.JSONField(default=dict)),
                (
                    "blueprint",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="former_configs",
                        to="blueprints.blueprint",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("blueprint", "generation"), name="former_config_once"),
                ],
            },
        ),
    ]
