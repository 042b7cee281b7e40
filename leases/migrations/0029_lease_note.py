from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("leases", "0028_lease_limits"),
    ]

    operations = [
        migrations.AddField(
            model_name="lease",
            name="note",
            field=models.TextField(blank=True, db_default="", default=""),
        ),
        migrations.AlterField(
            model_name="run",
            name="phase",
            field=models.CharField(
                choices=[
                    ("build", "Build"),
                    ("activate", "Activate"),
                    ("deactivate", "Deactivate"),
                    ("clean", "Clean"),
                    ("check", "Check"),
                    ("power", "Power"),
                    ("reboot", "Reboot"),
                    ("resize", "Resize"),
                    ("retype", "Retype"),
                    ("tag", "Tag"),
                    ("update", "Update"),
                    ("hand_over", "Hand Over"),
                    ("destroy", "Destroy"),
                ],
                max_length=16,
            ),
        ),
    ]
