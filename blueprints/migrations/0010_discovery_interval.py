from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("blueprints", "0009_wording"),
    ]

    operations = [
        migrations.AddField(
            model_name="blueprint",
            name="discovery_interval",
            field=models.DurationField(
                blank=True, help_text="Time between discoveries; empty for that of the kind.", null=True
            ),
        ),
    ]
