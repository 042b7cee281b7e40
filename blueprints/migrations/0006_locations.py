"""Errors that rule out what is counted alike in a location; nothing is written."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("blueprints", "0005_confidential"),
    ]

    operations = [
        migrations.AlterField(
            model_name="rememberederror",
            name="scope",
            field=models.CharField(
                choices=[
                    ("offer", "Offer"),
                    ("zone", "Zone"),
                    ("location", "Location"),
                    ("blueprint", "Blueprint"),
                    ("operator", "Operator"),
                ],
                max_length=16,
            ),
        ),
    ]
