"""What an orphan is, what it costs, how sure it is that it is ours, and what an operator wants of it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("leases", "0016_costs")]

    operations = [
        migrations.AddField(
            model_name="stray",
            name="proof",
            field=models.CharField(
                choices=[("proven", "Proven"), ("unnamed", "Unnamed"), ("suspect", "Suspect")],
                db_default="proven",
                default="proven",
                max_length=16,
            ),
        ),
        migrations.AddField(
            model_name="stray",
            name="what",
            field=models.CharField(blank=True, db_default="", default="", max_length=255),
        ),
        migrations.AddField(
            model_name="stray",
            name="facts",
            field=models.JSONField(db_default=models.Value({}, models.JSONField()), default=dict),
        ),
        migrations.AddField(
            model_name="stray",
            name="price",
            field=models.FloatField(blank=True, help_text="Per hour, in US dollars, where it is known.", null=True),
        ),
        migrations.AddField(model_name="stray", name="made_at", field=models.DateTimeField(blank=True, null=True)),
        migrations.AddField(
            model_name="stray", name="sightings", field=models.PositiveIntegerField(db_default=1, default=1)
        ),
        migrations.AddField(
            model_name="stray",
            name="wanted",
            field=models.CharField(
                blank=True,
                choices=[("destroy", "Destroy"), ("adopt", "Adopt")],
                db_default="",
                default="",
                max_length=16,
            ),
        ),
        migrations.AddField(
            model_name="stray",
            name="wanted_by",
            field=models.CharField(blank=True, db_default="", default="", max_length=150),
        ),
    ]
