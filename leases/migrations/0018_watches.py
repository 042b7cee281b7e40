"""What is watched of leases: their workloads, what they use, and what is kept of what those said."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

import drydock.core.fields


class Migration(migrations.Migration):
    dependencies = [
        ("leases", "0017_orphans"),
    ]

    operations = [
        migrations.AddField(
            model_name="lease",
            name="watched",
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.CreateModel(
            name="Watch",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "workload",
                    models.JSONField(
                        help_text="As `leases.workloads.workload.Workload` without values of variables; empty: only measured.",
                        null=True,
                    ),
                ),
                (
                    "env",
                    drydock.core.fields.EncryptedJSONField(
                        editable=False, help_text="The workload's environment, until its job was written.", null=True
                    ),
                ),
                (
                    "due_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(),
                        editable=False,
                        help_text="When a worker looks at it next.",
                    ),
                ),
                ("began_at", models.DateTimeField(null=True)),
                ("over_at", models.DateTimeField(null=True)),
                ("outcome", models.CharField(blank=True, db_default="", default="", max_length=16)),
                (
                    "message",
                    models.TextField(blank=True, db_default="", default="", help_text="The same as a sentence."),
                ),
                ("sample", models.JSONField(help_text="The counters of the last look.", null=True)),
                ("sampled_at", models.DateTimeField(null=True)),
                ("samples", models.PositiveIntegerField(db_default=0, default=0)),
                ("complete", models.BooleanField(db_default=False, default=False)),
                ("cpu_seconds", models.FloatField(help_text="Core-seconds.", null=True)),
                ("memory_mib_seconds", models.FloatField(null=True)),
                ("network_in", models.BigIntegerField(help_text="Bytes.", null=True)),
                ("network_out", models.BigIntegerField(help_text="Bytes.", null=True)),
                (
                    "wall_seconds",
                    models.FloatField(db_default=0, default=0, help_text="From the first look to the last."),
                ),
                (
                    "job",
                    models.OneToOneField(
                        null=True, on_delete=django.db.models.deletion.PROTECT, related_name="watch", to="leases.job"
                    ),
                ),
                (
                    "lease",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT, related_name="watch", to="leases.lease"
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(condition=models.Q(("over_at", None)), fields=["due_at"], name="watch_due"),
                ],
            },
        ),
        migrations.CreateModel(
            name="KeptOutput",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("head", drydock.core.fields.EncryptedTextField(editable=False, help_text="In base64.")),
                ("tail", drydock.core.fields.EncryptedTextField(editable=False, help_text="In base64.")),
                (
                    "size",
                    models.BigIntegerField(help_text="Bytes that it said, as far as its host counted them."),
                ),
                (
                    "left_out",
                    models.BigIntegerField(help_text="Bytes between its beginning and its end that are not kept."),
                ),
                (
                    "job",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT, related_name="kept_output", to="leases.job"
                    ),
                ),
                (
                    "lease",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT, related_name="kept_output", to="leases.lease"
                    ),
                ),
            ],
        ),
    ]
