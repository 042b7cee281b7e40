from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("rest", "0002_made_by"),
    ]

    operations = [
        migrations.AddField(
            model_name="token",
            name="maker",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                editable=False,
                help_text="Who made it, where that is somebody else than its user.",
                max_length=150,
            ),
        ),
    ]
