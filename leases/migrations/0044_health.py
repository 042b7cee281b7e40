import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

import drydock.core.fields


class Migration(migrations.Migration):
    dependencies = [
        ("leases", "0043_resolutions"),
    ]

    operations = [
        migrations.AddField(
            model_name="resource",
            name="health",
            field=models.CharField(
                choices=[("ok", "ok"), ("degraded", "degraded"), ("failed", "failed")],
                db_default="ok",
                default="ok",
                max_length=16,
            ),
        ),
        migrations.AddField(
            model_name="resource",
            name="health_reason",
            field=models.TextField(blank=True, db_default="", default=""),
        ),
        migrations.AddField(
            model_name="resource",
            name="no_reboots",
            field=models.TextField(blank=True, db_default="", default=""),
        ),
        migrations.AddField(
            model_name="resource",
            name="credential_fields",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(max_length=63), blank=True, db_default=[], default=list, size=None
            ),
        ),
        migrations.CreateModel(
            name="ResourceCredential",
            fields=[
                (
                    "resource",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="credential",
                        serialize=False,
                        to="leases.resource",
                    ),
                ),
                ("secrets", drydock.core.fields.EncryptedJSONField(default=dict)),
                ("changed_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
    ]
