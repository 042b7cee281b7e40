"""Deferred cleanup: what a resource must undergo after a lease has ended, before it is leased again."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models.functions import Now

from drydock.core.fields import EncryptedJSONField
from leases.models.lease import Lease
from leases.models.resource import Resource


class Debt(models.Model):
    """A cleanup that a resource still needs after a lease.

    Either the lease lost its share before the resource was cleaned, or the kind cleans apart from the lease. The
    resource serves no new lease until the cleanup is done. By then the lease has ended or moved to another resource, so
    this row stores what the cleanup needs. The lease is not pruned before.
    """

    class Phase(models.TextChoices):
        """The phase with which each attempt begins."""

        DEACTIVATE = "deactivate"
        CLEAN = "clean"

    resource = models.ForeignKey(Resource, on_delete=models.PROTECT, related_name="debts")
    lease = models.ForeignKey(Lease, on_delete=models.PROTECT, related_name="debts")
    facts: models.JSONField[Any, Any] = models.JSONField(default=dict)
    secrets = EncryptedJSONField(default=dict, null=True)
    locks: models.JSONField[Any, Any] = models.JSONField(default=dict)
    holds: models.JSONField[Any, Any] = models.JSONField(default=dict)
    """The ids of the leases that the activation of the lost lease had requested, by their names."""
    phase = models.CharField(
        max_length=16, choices=Phase.choices, default=Phase.DEACTIVATE, db_default=Phase.DEACTIVATE
    )
    apart = models.BooleanField("cleaned apart", default=False, db_default=False)
    """Whether the kind cleans apart from the lease. What Drydock did not build is then handed back only once clean."""
    tries = models.PositiveIntegerField("attempts", default=0, db_default=0)
    due_at = models.DateTimeField(db_default=Now())
    message = models.TextField(blank=True, default="", db_default="", help_text="Why the last attempt failed.")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name = verbose_name_plural = "deferred cleanup"
        constraints = [models.UniqueConstraint(fields=["resource", "lease"], name="one_debt_per_lease")]

    def __str__(self) -> str:
        return f"leftovers of lease {self.lease_id} on resource {self.resource_id}"
