from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("leases", "0043_resolutions"),
    ]

    operations = [
        migrations.AddField(
            model_name="resource",
            name="health",
            field=models.CharField(
                choices=[("ok", "ok"), ("degraded", "degraded"), ("failed", "failed")],
                db_default="ok",
                default="ok",
                max_length=16,
            ),
        ),
        migrations.AddField(
            model_name="resource",
            name="health_reason",
            field=models.TextField(blank=True, db_default="", default=""),
        ),
        migrations.AddIndex(
            model_name="resource",
            index=models.Index(
                condition=models.Q(("claimable", True), ("closed_by", []), ("health", "ok")),
                fields=["type", "id"],
                name="resource_healthy",
            ),
        ),
        migrations.AddIndex(
            model_name="resource",
            index=models.Index(
                condition=models.Q(models.Q(("health", "ok"), _negated=True), ("gone_at", None)),
                fields=["type", "id"],
                name="resource_unhealthy",
            ),
        ),
    ]
