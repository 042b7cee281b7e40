from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("leases", "0056_energy_index"),
    ]

    operations = [
        migrations.AddField(
            model_name="leaseevidence",
            name="kind",
            field=models.CharField(
                choices=[("tdx", "Intel TDX"), ("tpm", "TPM 2.0")], db_default="tdx", default="tdx", max_length=8
            ),
        ),
        migrations.AlterField(
            model_name="leaseevidence",
            name="root",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="SHA-256 of the trusted root certificate of TDX.",
                max_length=64,
            ),
        ),
    ]
