from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("leases", "0042_acts"),
    ]

    operations = [
        migrations.AddField(
            model_name="run",
            name="resolution",
            field=models.JSONField(blank=True, null=True),
        ),
    ]
