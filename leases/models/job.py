"""Jobs: detached commands on leased hosts."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models.functions import Now

from drydock.core.fields import EncryptedJSONField, EncryptedTextField
from leases.models.lease import Lease


class Job(models.Model):
    """A command that runs on the lease's host by itself; its output is read by offset, there."""

    class State(models.TextChoices):
        PENDING = "pending"
        RUNNING = "running"
        ENDED = "ended"
        CANCELLED = "cancelled"
        LOST = "lost"

    lease = models.ForeignKey(Lease, on_delete=models.PROTECT, related_name="jobs")
    command: models.JSONField[Any, Any] = models.JSONField(help_text="argv as a list, or one shell line.")
    environment: models.JSONField[Any, Any] = models.JSONField(
        default=dict, db_default={}, editable=False, help_text="Of jobs that were asked for before there was `env`."
    )
    env: models.Field[Any, Any] = EncryptedJSONField(
        null=True, editable=False, help_text="Its environment, until it was started."
    )
    stdin: EncryptedTextField = EncryptedTextField(
        null=True, editable=False, help_text="What it is to read, in base64, until it was given it."
    )
    apart = models.BooleanField(default=False, db_default=False, help_text="Standard error by itself.")
    cwd = models.TextField(blank=True, default="", db_default="")
    state = models.CharField(max_length=16, choices=State.choices, default=State.PENDING)
    exit_code = models.IntegerField(null=True, blank=True)
    cancel_wanted = models.BooleanField(default=False, db_default=False)
    ends_lease = models.BooleanField(default=False, db_default=False)
    message = models.TextField(blank=True, default="", db_default="")
    created_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    due_at = models.DateTimeField(db_default=Now(), editable=False, help_text="When a worker looks at it next.")

    class Meta:
        indexes = (
            models.Index(fields=["due_at"], condition=models.Q(state__in=("pending", "running")), name="job_due"),
        )

    def __str__(self) -> str:
        return f"job {self.pk} of lease {self.lease_id}"
