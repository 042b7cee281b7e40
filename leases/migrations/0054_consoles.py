import uuid

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("leases", "0052_erasure_records"),
    ]

    operations = [
        migrations.CreateModel(
            name="ConsoleAttachment",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False)),
                ("user", models.CharField(max_length=150)),
                ("until", models.DateTimeField()),
                (
                    "lease",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="console_attachments",
                        to="leases.lease",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="ConsoleInput",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("content", models.BinaryField()),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "lease",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="console_input", to="leases.lease"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Console",
            fields=[
                (
                    "lease",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="console",
                        serialize=False,
                        to="leases.lease",
                    ),
                ),
                ("token", models.UUIDField(null=True)),
                ("token_until", models.DateTimeField(null=True)),
                ("opened_at", models.DateTimeField(null=True, verbose_name="open since")),
                ("forced", models.BooleanField(db_default=False, default=False)),
                ("problem", models.TextField(blank=True, db_default="", default="")),
                ("revision", models.BigIntegerField(db_default=0, default=0)),
                ("size", models.BigIntegerField(db_default=0, default=0)),
                ("writer", models.UUIDField(null=True)),
                ("typed", models.BigIntegerField(db_default=0, default=0)),
                (
                    "resource",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="consoles", to="leases.resource"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("token__isnull", False)), fields=("resource",), name="one_open_console"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="ConsoleOutput",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("start", models.BigIntegerField()),
                ("end", models.BigIntegerField()),
                ("content", models.BinaryField()),
                (
                    "lease",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="console_output", to="leases.lease"
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("lease", "start"), name="console_output_once")],
            },
        ),
    ]
