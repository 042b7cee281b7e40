"""Erasure records: which disk was erased when, how, after which lease, and with what result."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


class ErasureRecord(models.Model):
    """The erasure of one disk, or a failed attempt at it.

    A trigger refuses every change. The row contains names and no constrained references, so it is kept when resources
    and leases are pruned and users and blueprints are removed.
    """

    recorded_at = models.DateTimeField("recorded", db_default=Now())
    resource = models.ForeignKey(
        "leases.Resource", on_delete=models.DO_NOTHING, db_constraint=False, related_name="erasures", db_index=False
    )
    resource_name = models.CharField(max_length=255, blank=True, default="", db_default="")
    blueprint = models.CharField(max_length=255)
    kind = models.CharField(max_length=63)
    identities = ArrayField(models.CharField(max_length=320), default=list, db_default=[], blank=True)
    """The identities of the machine when the erasure was recorded, such as `serial:Dell Inc. 7XK2Q03`."""
    lease = models.ForeignKey(
        "leases.Lease", null=True, blank=True, on_delete=models.DO_NOTHING, db_constraint=False,
        related_name="erasures", db_index=False,
    )  # fmt: skip
    """The lease after which the disk was erased; empty if it was erased for no lease."""
    lease_name = models.CharField(max_length=255, blank=True, default="", db_default="")
    owner_id = models.BigIntegerField(null=True, blank=True)
    owner = models.CharField(max_length=255, blank=True, default="", db_default="")
    """The name of the owner of that lease."""

    disk = models.CharField(max_length=255)
    serial = models.CharField(max_length=255, blank=True, default="", db_default="")
    wwn = models.CharField(max_length=255, blank=True, default="", db_default="")
    model = models.CharField(max_length=255, blank=True, default="", db_default="")
    size_bytes = models.PositiveBigIntegerField(default=0, db_default=0)
    method = models.CharField(max_length=63, blank=True, default="", db_default="")
    bytes = models.PositiveBigIntegerField("bytes erased", default=0, db_default=0)
    started_at = models.DateTimeField("began", help_text="By the clock of the machine.")
    ended_at = models.DateTimeField("ended", help_text="By the clock of the machine.")
    verified = models.BooleanField(help_text="Whether the disk was read afterwards and nothing was left on it.")
    problem = models.TextField(blank=True, default="", db_default="")

    run_id = models.BigIntegerField("run", help_text="The run whose step reported the erasure.")
    phase = models.CharField(max_length=16)
    act = models.CharField(max_length=63, blank=True, default="", db_default="")
    step = models.CharField(max_length=63)
    requested_by = models.CharField(max_length=150)
    """The user who ended the lease or requested the act; `drydock` if no user did."""

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["resource", "disk", "serial", "started_at"], name="erasure_once"),
        ]
        indexes = [
            models.Index(fields=["resource", "id"], name="erasure_of_resource"),
            models.Index(fields=["lease", "id"], name="erasure_of_lease"),
            models.Index(fields=["owner_id", "id"], name="erasure_of_owner"),
            models.Index(fields=["serial"], name="erasure_of_serial"),
            models.Index(fields=["wwn"], condition=~Q(wwn=""), name="erasure_of_wwn"),
            models.Index(fields=["recorded_at"], name="erasure_recorded"),
        ]

    def __str__(self) -> str:
        return f"erasure {self.pk} of disk {self.serial or self.disk}"
