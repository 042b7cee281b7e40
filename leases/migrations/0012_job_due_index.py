"""Open jobs by when they are looked at; without stopping a write."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [
        ("leases", "0011_job_due"),
    ]

    operations = [
        AddIndexConcurrently(
            "job",
            models.Index(fields=["due_at"], condition=models.Q(state__in=("pending", "running")), name="job_due"),
        ),
    ]
