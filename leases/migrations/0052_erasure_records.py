"""Erasure records, and a trigger that refuses to change them."""

import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

_TRIGGER = """
CREATE TRIGGER erasure_is_fixed BEFORE UPDATE ON leases_erasurerecord FOR EACH ROW
    EXECUTE FUNCTION drydock_refuse('erasure_is_fixed', 'an erasure record is never changed');
"""


class Migration(migrations.Migration):
    dependencies = [
        ("leases", "0051_lease_evidence"),
    ]

    operations = [
        migrations.CreateModel(
            name="ErasureRecord",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "recorded_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name="recorded"),
                ),
                ("resource_name", models.CharField(blank=True, db_default="", default="", max_length=255)),
                ("blueprint", models.CharField(max_length=255)),
                ("kind", models.CharField(max_length=63)),
                (
                    "identities",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=320), blank=True, db_default=[], default=list, size=None
                    ),
                ),
                ("lease_name", models.CharField(blank=True, db_default="", default="", max_length=255)),
                ("owner_id", models.BigIntegerField(blank=True, null=True)),
                ("owner", models.CharField(blank=True, db_default="", default="", max_length=255)),
                ("disk", models.CharField(max_length=255)),
                ("serial", models.CharField(blank=True, db_default="", default="", max_length=255)),
                ("wwn", models.CharField(blank=True, db_default="", default="", max_length=255)),
                ("model", models.CharField(blank=True, db_default="", default="", max_length=255)),
                ("size_bytes", models.PositiveBigIntegerField(db_default=0, default=0)),
                ("method", models.CharField(blank=True, db_default="", default="", max_length=63)),
                ("bytes", models.PositiveBigIntegerField(db_default=0, default=0, verbose_name="bytes erased")),
                ("started_at", models.DateTimeField(help_text="By the clock of the machine.", verbose_name="began")),
                ("ended_at", models.DateTimeField(help_text="By the clock of the machine.", verbose_name="ended")),
                (
                    "verified",
                    models.BooleanField(help_text="Whether the disk was read afterwards and nothing was left on it."),
                ),
                ("problem", models.TextField(blank=True, db_default="", default="")),
                (
                    "run_id",
                    models.BigIntegerField(help_text="The run whose step reported the erasure.", verbose_name="run"),
                ),
                ("phase", models.CharField(max_length=16)),
                ("act", models.CharField(blank=True, db_default="", default="", max_length=63)),
                ("step", models.CharField(max_length=63)),
                ("requested_by", models.CharField(max_length=150)),
                (
                    "lease",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="erasures",
                        to="leases.lease",
                    ),
                ),
                (
                    "resource",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="erasures",
                        to="leases.resource",
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
                "indexes": [
                    models.Index(fields=["resource", "id"], name="erasure_of_resource"),
                    models.Index(fields=["lease", "id"], name="erasure_of_lease"),
                    models.Index(fields=["owner_id", "id"], name="erasure_of_owner"),
                    models.Index(fields=["serial"], name="erasure_of_serial"),
                    models.Index(condition=models.Q(("wwn", ""), _negated=True), fields=["wwn"], name="erasure_of_wwn"),
                    models.Index(fields=["recorded_at"], name="erasure_recorded"),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("resource", "disk", "serial", "started_at"), name="erasure_once")
                ],
            },
        ),
        migrations.RunSQL(_TRIGGER, "DROP TRIGGER erasure_is_fixed ON leases_erasurerecord"),
    ]
