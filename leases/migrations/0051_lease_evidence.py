from django.db import migrations, models
from django.db.models.functions import Now


class Migration(migrations.Migration):
    dependencies = [
        ("leases", "0050_clean_apart"),
    ]

    operations = [
        migrations.CreateModel(
            name="LeaseEvidence",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "collected_at",
                    models.DateTimeField(db_default=Now(), verbose_name="collected"),
                ),
                ("actor", models.CharField(max_length=150, verbose_name="requested by")),
                ("nonce", models.CharField(help_text="In hexadecimal digits.", max_length=128)),
                (
                    "chosen",
                    models.BooleanField(db_default=False, default=False, verbose_name="nonce chosen by the caller"),
                ),
                (
                    "provider",
                    models.CharField(
                        help_text="The kernel's source of the quote, as the machine said.", max_length=100
                    ),
                ),
                ("quote", models.BinaryField()),
                ("root", models.CharField(help_text="SHA-256 of the trusted root certificate.", max_length=64)),
                (
                    "collateral",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="SHA-256 over the collateral that was used.",
                        max_length=64,
                    ),
                ),
                ("passed", models.BooleanField(help_text="Whether no check failed.")),
                ("verdict", models.JSONField()),
                (
                    "lease",
                    models.ForeignKey(on_delete=models.deletion.PROTECT, related_name="evidence", to="leases.lease"),
                ),
            ],
            options={
                "verbose_name": "attestation evidence",
                "verbose_name_plural": "attestation evidence",
            },
        ),
    ]
