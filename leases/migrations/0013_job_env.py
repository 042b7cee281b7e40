"""A job's environment is kept encrypted."""

from django.db import migrations, models

import drydock.core.fields


class Migration(migrations.Migration):
    dependencies = [
        ("leases", "0012_job_due_index"),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="env",
            field=drydock.core.fields.EncryptedJSONField(
                editable=False, help_text="Its environment, until it was started.", null=True
            ),
        ),
        migrations.AlterField(
            model_name="job",
            name="environment",
            field=models.JSONField(
                db_default={},
                default=dict,
                editable=False,
                help_text="Of jobs that were asked for before there was `env`.",
            ),
        ),
    ]
