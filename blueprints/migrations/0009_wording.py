import django.core.validators
from django.db import migrations, models

import drydock.core.fields


class Migration(migrations.Migration):
    dependencies = [
        ("blueprints", "0008_lease_limits"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="allowance",
            options={"verbose_name": "provider quota", "verbose_name_plural": "provider quotas"},
        ),
        migrations.AlterModelOptions(
            name="reading",
            options={"verbose_name": "account poll", "verbose_name_plural": "account polls"},
        ),
        migrations.AlterField(
            model_name="allowance",
            name="used",
            field=models.FloatField(help_text="Total use of the account, including use outside Drydock."),
        ),
        migrations.AlterField(
            model_name="blueprint",
            name="audience",
            field=models.CharField(
                choices=[("everyone", "all users"), ("authorized", "authorized users and groups only")],
                default="authorized",
                max_length=16,
            ),
        ),
        migrations.AlterField(
            model_name="blueprint",
            name="check_interval",
            field=models.DurationField(blank=True, help_text="Time between health checks.", null=True),
        ),
        migrations.AlterField(
            model_name="blueprint",
            name="default_ttl",
            field=models.DurationField(
                blank=True,
                help_text="The duration of a lease that is requested without one.",
                null=True,
                verbose_name="default lease duration",
            ),
        ),
        migrations.AlterField(
            model_name="blueprint",
            name="drained",
            field=models.BooleanField(
                db_default=False, default=False, help_text="Build no new resources, and remove idle ones."
            ),
        ),
        migrations.AlterField(
            model_name="blueprint",
            name="generation",
            field=models.PositiveIntegerField(
                db_default=1, default=1, editable=False, help_text="Incremented when the kind or config changes."
            ),
        ),
        migrations.AlterField(
            model_name="blueprint",
            name="idle_timeout",
            field=models.DurationField(
                blank=True, help_text="Remove a resource that has been idle for this long.", null=True
            ),
        ),
        migrations.AlterField(
            model_name="blueprint",
            name="kind",
            field=models.CharField(help_text="The implementation that this blueprint uses.", max_length=63),
        ),
        migrations.AlterField(
            model_name="blueprint",
            name="max_builds",
            field=models.PositiveIntegerField(
                db_default=10,
                default=10,
                help_text="Maximum number of concurrent builds.",
                validators=[django.core.validators.MinValueValidator(1)],
                verbose_name="maximum builds",
            ),
        ),
        migrations.AlterField(
            model_name="blueprint",
            name="max_lifetime",
            field=models.DurationField(
                blank=True,
                help_text="A resource older than this gets no new leases, and is removed when its leases have ended.",
                null=True,
                verbose_name="maximum lifetime",
            ),
        ),
        migrations.AlterField(
            model_name="blueprint",
            name="max_outdated",
            field=models.PositiveIntegerField(
                db_default=1,
                default=1,
                help_text="Maximum number of outdated resources that are updated or replaced at the same time. 0: none.",
                verbose_name="maximum outdated",
            ),
        ),
        migrations.AlterField(
            model_name="blueprint",
            name="max_resources",
            field=models.PositiveIntegerField(
                blank=True, help_text="Leave empty for no limit.", null=True, verbose_name="maximum resources"
            ),
        ),
        migrations.AlterField(
            model_name="blueprint",
            name="max_ttl",
            field=models.DurationField(
                blank=True,
                help_text="The longest duration that an owner can request. Operators can exceed it.",
                null=True,
                verbose_name="maximum lease duration",
            ),
        ),
        migrations.AlterField(
            model_name="blueprint",
            name="min_ready",
            field=models.PositiveIntegerField(
                db_default=0,
                default=0,
                help_text="Number of idle resources to keep ready.",
                verbose_name="minimum ready",
            ),
        ),
        migrations.AlterField(
            model_name="blueprint",
            name="name",
            field=models.CharField(
                max_length=63,
                validators=[
                    django.core.validators.RegexValidator(
                        "^[a-z0-9][a-z0-9._-]*$",
                        "Use lowercase letters, digits, '.', '_' and '-'. Start with a letter or digit.",
                    )
                ],
            ),
        ),
        migrations.AlterField(
            model_name="blueprint",
            name="order",
            field=models.IntegerField(default=100, help_text="Blueprints with lower numbers are tried first."),
        ),
        migrations.AlterField(
            model_name="credential",
            name="name",
            field=models.CharField(
                max_length=63,
                unique=True,
                validators=[
                    django.core.validators.RegexValidator(
                        "^[a-z0-9][a-z0-9._-]*$",
                        "Use lowercase letters, digits, '.', '_' and '-'. Start with a letter or digit.",
                    )
                ],
            ),
        ),
        migrations.AlterField(
            model_name="credential",
            name="secrets",
            field=drydock.core.fields.EncryptedJSONField(
                default=dict, help_text='A JSON object, for example {"private_key": "..."}.'
            ),
        ),
        migrations.AlterField(
            model_name="listing",
            name="available",
            field=models.BooleanField(default=True, help_text="Whether the provider offered it at the last poll."),
        ),
        migrations.AlterField(
            model_name="listing",
            name="boot_seconds",
            field=models.FloatField(blank=True, help_text="Measured; otherwise as stated by the provider.", null=True),
        ),
        migrations.AlterField(
            model_name="listing",
            name="gpu_memory_mib",
            field=models.PositiveBigIntegerField(default=0, help_text="Memory of each GPU."),
        ),
        migrations.AlterField(
            model_name="listing",
            name="price",
            field=models.FloatField(blank=True, help_text="US dollars per hour.", null=True),
        ),
        migrations.AlterField(
            model_name="reading",
            name="message",
            field=models.TextField(blank=True, db_default="", default="", help_text="Why the last poll failed."),
        ),
        migrations.AlterField(
            model_name="reading",
            name="place",
            field=models.CharField(blank=True, default="", max_length=63, verbose_name="location"),
        ),
        migrations.AlterField(
            model_name="reading",
            name="seen_at",
            field=models.DateTimeField(blank=True, help_text="When the last successful poll ended.", null=True),
        ),
        migrations.AlterField(
            model_name="reading",
            name="what",
            field=models.CharField(
                choices=[
                    ("places", "locations"),
                    ("inventory", "offers"),
                    ("status", "resource status"),
                    ("allowances", "provider quotas"),
                ],
                max_length=16,
                verbose_name="data",
            ),
        ),
        migrations.AlterField(
            model_name="rememberederror",
            name="until",
            field=models.DateTimeField(help_text="Empty: remembered until an operator clears it.", null=True),
        ),
        migrations.AlterConstraint(
            model_name="blueprint",
            name="blueprint_name_once",
            constraint=models.UniqueConstraint(
                condition=models.Q(("removed_at", None)),
                fields=("name",),
                name="blueprint_name_once",
                violation_error_message="A blueprint with this name already exists.",
            ),
        ),
    ]
