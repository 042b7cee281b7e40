"""When an open job is looked at next."""

from django.db import migrations, models
from django.db.models.functions import Now


class Migration(migrations.Migration):
    dependencies = [
        ("leases", "0010_leaner"),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="due_at",
            field=models.DateTimeField(db_default=Now(), editable=False, help_text="When a worker looks at it next."),
        ),
    ]
