from django.db import migrations, models

_PHASES = (
    "build", "activate", "deactivate", "clean", "check", "power", "reboot", "resize", "retype", "tag", "update",
    "destroy",
)  # fmt: skip


class Migration(migrations.Migration):
    dependencies = [
        ("leases", "0014_choose"),
    ]

    operations = [
        migrations.AlterField(
            model_name="run",
            name="phase",
            field=models.CharField(choices=[(phase, phase.capitalize()) for phase in _PHASES], max_length=16),
        ),
    ]
