import django.db.models.functions.datetime
from django.db import migrations, models

import drydock.core.fields


class Migration(migrations.Migration):
    dependencies = [
        ("leases", "0030_lease_note_words"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="search",
            options={"verbose_name": "orphan search", "verbose_name_plural": "orphan searches"},
        ),
        migrations.AlterModelOptions(
            name="sync",
            options={"verbose_name": "discovery", "verbose_name_plural": "discoveries"},
        ),
        migrations.AlterModelOptions(
            name="watch",
            options={"verbose_name": "watched lease"},
        ),
        migrations.AlterField(
            model_name="budget",
            name="max_hourly",
            field=models.FloatField(help_text="US dollars per hour."),
        ),
        migrations.AlterField(
            model_name="debt",
            name="message",
            field=models.TextField(blank=True, db_default="", default="", help_text="Why the last attempt failed."),
        ),
        migrations.AlterField(
            model_name="debt",
            name="tries",
            field=models.PositiveIntegerField(db_default=0, default=0, verbose_name="attempts"),
        ),
        migrations.AlterField(
            model_name="failure",
            name="act",
            field=models.CharField(max_length=16, verbose_name="action"),
        ),
        migrations.AlterField(
            model_name="job",
            name="apart",
            field=models.BooleanField(
                db_default=False, default=False, help_text="Keep standard error separate from standard output."
            ),
        ),
        migrations.AlterField(
            model_name="job",
            name="cancel_wanted",
            field=models.BooleanField(db_default=False, default=False, verbose_name="cancellation requested"),
        ),
        migrations.AlterField(
            model_name="job",
            name="command",
            field=models.JSONField(help_text="A list of arguments, or a shell command line."),
        ),
        migrations.AlterField(
            model_name="job",
            name="due_at",
            field=models.DateTimeField(
                db_default=django.db.models.functions.datetime.Now(),
                editable=False,
                help_text="When a worker checks it next.",
            ),
        ),
        migrations.AlterField(
            model_name="job",
            name="ends_lease",
            field=models.BooleanField(db_default=False, default=False, verbose_name="ends the lease"),
        ),
        migrations.AlterField(
            model_name="job",
            name="env",
            field=drydock.core.fields.EncryptedJSONField(
                editable=False, help_text="The environment of the job; cleared once the job has started.", null=True
            ),
        ),
        migrations.AlterField(
            model_name="job",
            name="environment",
            field=models.JSONField(
                db_default={},
                default=dict,
                editable=False,
                help_text="The environment of jobs created before `env` was added.",
            ),
        ),
        migrations.AlterField(
            model_name="job",
            name="stdin",
            field=drydock.core.fields.EncryptedTextField(
                editable=False, help_text="Standard input in base64; cleared once the job has received it.", null=True
            ),
        ),
        migrations.AlterField(
            model_name="keptoutput",
            name="head",
            field=drydock.core.fields.EncryptedTextField(editable=False, help_text="Base64."),
        ),
        migrations.AlterField(
            model_name="keptoutput",
            name="left_out",
            field=models.BigIntegerField(
                help_text="Bytes omitted between the beginning and the end.", verbose_name="omitted bytes"
            ),
        ),
        migrations.AlterField(
            model_name="keptoutput",
            name="size",
            field=models.BigIntegerField(help_text="Total output in bytes, as counted by the host."),
        ),
        migrations.AlterField(
            model_name="keptoutput",
            name="tail",
            field=drydock.core.fields.EncryptedTextField(editable=False, help_text="Base64."),
        ),
        migrations.AlterField(
            model_name="lease",
            name="ttl",
            field=models.DurationField(blank=True, help_text="Measured from when the lease becomes active.", null=True),
        ),
        migrations.AlterField(
            model_name="quota",
            name="default_ttl",
            field=models.DurationField(
                blank=True,
                help_text="The duration of a lease that is requested without one.",
                null=True,
                verbose_name="default lease duration",
            ),
        ),
        migrations.AlterField(
            model_name="quota",
            name="max_cpu_millicores",
            field=models.PositiveBigIntegerField(blank=True, null=True, verbose_name="maximum CPU (millicores)"),
        ),
        migrations.AlterField(
            model_name="quota",
            name="max_disk_mib",
            field=models.PositiveBigIntegerField(blank=True, null=True, verbose_name="maximum disk (MiB)"),
        ),
        migrations.AlterField(
            model_name="quota",
            name="max_leases",
            field=models.PositiveIntegerField(blank=True, null=True, verbose_name="maximum leases"),
        ),
        migrations.AlterField(
            model_name="quota",
            name="max_ram_mib",
            field=models.PositiveBigIntegerField(blank=True, null=True, verbose_name="maximum RAM (MiB)"),
        ),
        migrations.AlterField(
            model_name="quota",
            name="max_slots",
            field=models.PositiveIntegerField(blank=True, null=True, verbose_name="maximum slots"),
        ),
        migrations.AlterField(
            model_name="quota",
            name="max_ttl",
            field=models.DurationField(
                blank=True,
                help_text="The longest duration that an owner can request. Operators can exceed it.",
                null=True,
                verbose_name="maximum lease duration",
            ),
        ),
        migrations.AlterField(
            model_name="resource",
            name="missed",
            field=models.PositiveIntegerField(db_default=0, default=0, verbose_name="missed discoveries"),
        ),
        migrations.AlterField(
            model_name="resource",
            name="power_wanted",
            field=models.CharField(
                blank=True, db_default="", default="", max_length=16, verbose_name="requested power"
            ),
        ),
        migrations.AlterField(
            model_name="run",
            name="cancel_wanted",
            field=models.BooleanField(db_default=False, default=False, verbose_name="cancellation requested"),
        ),
        migrations.AlterField(
            model_name="run",
            name="in_call",
            field=models.BooleanField(db_default=False, default=False, verbose_name="call in progress"),
        ),
        migrations.AlterField(
            model_name="run",
            name="tries",
            field=models.PositiveIntegerField(db_default=0, default=0, verbose_name="attempts"),
        ),
        migrations.AlterField(
            model_name="search",
            name="message",
            field=models.TextField(blank=True, db_default="", default="", help_text="Why the last search failed."),
        ),
        migrations.AlterField(
            model_name="search",
            name="seen_at",
            field=models.DateTimeField(blank=True, help_text="When the last successful search ended.", null=True),
        ),
        migrations.AlterField(
            model_name="stray",
            name="price",
            field=models.FloatField(blank=True, help_text="US dollars per hour, if known.", null=True),
        ),
        migrations.AlterField(
            model_name="stray",
            name="sightings",
            field=models.PositiveIntegerField(db_default=1, default=1, verbose_name="times seen"),
        ),
        migrations.AlterField(
            model_name="stray",
            name="wanted",
            field=models.CharField(
                blank=True,
                choices=[("destroy", "Destroy"), ("adopt", "Adopt")],
                db_default="",
                default="",
                max_length=16,
                verbose_name="requested action",
            ),
        ),
        migrations.AlterField(
            model_name="stray",
            name="wanted_by",
            field=models.CharField(blank=True, db_default="", default="", max_length=150, verbose_name="requested by"),
        ),
        migrations.AlterField(
            model_name="sync",
            name="message",
            field=models.TextField(blank=True, db_default="", default="", help_text="Why the last discovery failed."),
        ),
        migrations.AlterField(
            model_name="sync",
            name="seen_at",
            field=models.DateTimeField(blank=True, help_text="When the last successful discovery ended.", null=True),
        ),
        migrations.AlterField(
            model_name="watch",
            name="due_at",
            field=models.DateTimeField(
                db_default=django.db.models.functions.datetime.Now(),
                editable=False,
                help_text="When a worker checks it next.",
            ),
        ),
        migrations.AlterField(
            model_name="watch",
            name="env",
            field=drydock.core.fields.EncryptedJSONField(
                editable=False, help_text="The environment of the workload; cleared once its job is created.", null=True
            ),
        ),
        migrations.AlterField(
            model_name="watch",
            name="message",
            field=models.TextField(blank=True, db_default="", default="", help_text="The outcome as a sentence."),
        ),
        migrations.AlterField(
            model_name="watch",
            name="sample",
            field=models.JSONField(help_text="The counters of the last sample.", null=True),
        ),
        migrations.AlterField(
            model_name="watch",
            name="wall_seconds",
            field=models.FloatField(
                db_default=0, default=0, help_text="Seconds between the first and the last sample."
            ),
        ),
        migrations.AlterField(
            model_name="watch",
            name="workload",
            field=models.JSONField(
                help_text="A `leases.workloads.workload.Workload` without variable values. Empty: measure usage only.",
                null=True,
            ),
        ),
    ]
