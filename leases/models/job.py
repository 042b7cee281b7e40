"""Jobs, which are detached commands on leased hosts; measured leases, and stored output of workloads."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models.functions import Now

from drydock.core.fields import EncryptedJSONField, EncryptedTextField
from leases.models.lease import Lease


class Job(models.Model):
    """A command that runs on a lease's host independently of Drydock. Its output stays there and is read by offset."""

    class State(models.TextChoices):
        PENDING = "pending"
        RUNNING = "running"
        ENDED = "ended"
        CANCELLED = "cancelled"
        LOST = "lost"

    lease = models.ForeignKey(Lease, on_delete=models.PROTECT, related_name="jobs")
    command: models.JSONField[Any, Any] = models.JSONField(help_text="A list of arguments, or a shell command line.")
    environment: models.JSONField[Any, Any] = models.JSONField(
        default=dict, db_default={}, editable=False, help_text="The environment of jobs created before `env` was added."
    )
    env: models.Field[Any, Any] = EncryptedJSONField(
        null=True, editable=False, help_text="The environment of the job; cleared once the job has started."
    )
    stdin: EncryptedTextField = EncryptedTextField(
        null=True, editable=False, help_text="Standard input in base64; cleared once the job has received it."
    )
    apart = models.BooleanField(
        default=False, db_default=False, help_text="Keep standard error separate from standard output."
    )
    cwd = models.TextField(blank=True, default="", db_default="")
    state = models.CharField(max_length=16, choices=State.choices, default=State.PENDING)
    exit_code = models.IntegerField(null=True, blank=True)
    cancel_wanted = models.BooleanField("cancellation requested", default=False, db_default=False)
    ends_lease = models.BooleanField("ends the lease", default=False, db_default=False)
    message = models.TextField(blank=True, default="", db_default="")
    created_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    due_at = models.DateTimeField(db_default=Now(), editable=False, help_text="When a worker checks it next.")

    class Meta:
        indexes = (
            models.Index(fields=["due_at"], condition=models.Q(state__in=("pending", "running")), name="job_due"),
        )

    def __str__(self) -> str:
        return f"job {self.pk} of lease {self.lease_id}"


class Watch(models.Model):
    """The workload and the measurements of a lease that was requested with either or both of them."""

    lease = models.OneToOneField(Lease, on_delete=models.PROTECT, related_name="watch")
    workload: models.JSONField[Any, Any] = models.JSONField(
        null=True,
        help_text="A `leases.workloads.workload.Workload` without variable values. Empty: measure usage only.",
    )
    env: models.Field[Any, Any] = EncryptedJSONField(
        null=True, editable=False, help_text="The environment of the workload; cleared once its job is created."
    )
    job = models.OneToOneField(Job, null=True, on_delete=models.PROTECT, related_name="watch")
    """The job of the workload, once it was started. A workload is started only once."""
    due_at = models.DateTimeField(db_default=Now(), editable=False, help_text="When a worker checks it next.")
    began_at = models.DateTimeField(null=True)
    """The time of the first check after the lease became active."""
    over_at = models.DateTimeField(null=True)
    """The time at which the workload and its measurements were complete."""
    outcome = models.CharField(max_length=16, blank=True, default="", db_default="")
    """The code of the outcome of the workload (`leases.workloads.outcomes`)."""
    message = models.TextField(blank=True, default="", db_default="", help_text="The outcome as a sentence.")
    sample: models.JSONField[Any, Any] = models.JSONField(null=True, help_text="The counters of the last sample.")
    sampled_at = models.DateTimeField(null=True)
    samples = models.PositiveIntegerField(default=0, db_default=0)
    complete = models.BooleanField(default=False, db_default=False)
    """True if the last sample was taken after the lease ended and before it was cleaned."""
    cpu_seconds = models.FloatField(null=True, help_text="Core-seconds.")
    memory_mib_seconds = models.FloatField(null=True)
    network_in = models.BigIntegerField(null=True, help_text="Bytes.")
    network_out = models.BigIntegerField(null=True, help_text="Bytes.")
    wall_seconds = models.FloatField(
        default=0, db_default=0, help_text="Seconds between the first and the last sample."
    )

    class Meta:
        verbose_name = "measured lease"
        indexes = (models.Index(fields=["due_at"], condition=models.Q(over_at=None), name="watch_due"),)

    def __str__(self) -> str:
        return f"workload and usage of lease {self.lease_id}"


class KeptOutput(models.Model):
    """The first and the last part of a workload's output, kept after its host is gone."""

    lease = models.OneToOneField(Lease, on_delete=models.PROTECT, related_name="kept_output")
    job = models.OneToOneField(Job, on_delete=models.PROTECT, related_name="kept_output")
    head = EncryptedTextField(editable=False, help_text="Base64.")
    tail = EncryptedTextField(editable=False, help_text="Base64.")
    size = models.BigIntegerField(help_text="Total output in bytes, as counted by the host.")
    left_out = models.BigIntegerField("omitted bytes", help_text="Bytes omitted between the beginning and the end.")

    def __str__(self) -> str:
        return f"output of job {self.job_id}"
