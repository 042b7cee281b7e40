from django.db import migrations, models

_PHASES = (
    "build", "activate", "deactivate", "clean", "check", "power", "reboot", "resize", "retype", "tag", "act", "update",
    "hand_over", "destroy",
)  # fmt: skip


class Migration(migrations.Migration):
    dependencies = [
        ("leases", "0041_agents"),
    ]

    operations = [
        migrations.AlterField(
            model_name="failure",
            name="act",
            field=models.CharField(max_length=63, verbose_name="action"),
        ),
        migrations.AlterField(
            model_name="run",
            name="phase",
            field=models.CharField(choices=[(one, one.replace("_", " ").title()) for one in _PHASES], max_length=16),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                models.fields.json.KT("wanted__lease"),
                condition=models.Q(("phase", "act")),
                name="run_act_of_lease",
            ),
        ),
    ]
