from django.db import migrations, models

import drydock.core.fields


class Migration(migrations.Migration):
    dependencies = [
        ("leases", "0008_alone"),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="stdin",
            field=drydock.core.fields.EncryptedTextField(
                editable=False, help_text="What it is to read, in base64, until it was given it.", null=True
            ),
        ),
        migrations.AddField(
            model_name="job",
            name="apart",
            field=models.BooleanField(db_default=False, default=False, help_text="Standard error by itself."),
        ),
    ]
