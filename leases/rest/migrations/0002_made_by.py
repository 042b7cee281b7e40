import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("rest", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="token",
            name="made_by",
            field=models.ForeignKey(
                blank=True,
                editable=False,
                help_text="The token that it was made with; it is revoked with it.",
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="made",
                to="rest.token",
            ),
        ),
    ]
