from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("leases", "0043_resolutions"),
    ]

    operations = [
        migrations.AddField(
            model_name="leasegroup",
            name="near",
            field=models.CharField(blank=True, db_default="", default="", max_length=16),
        ),
        migrations.AddField(
            model_name="leasegroup",
            name="distance",
            field=models.CharField(blank=True, db_default="", default="", max_length=200),
        ),
    ]
