"""Deferred cleanup of resources that continue to exist after they lost a lease."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models.functions import Now

from drydock.core.fields import EncryptedJSONField
from leases.models.lease import Lease
from leases.models.resource import Resource


class Debt(models.Model):
    """A cleanup that a resource still needs, because a lease lost its share before the resource was cleaned.

    The resource serves no new lease until the cleanup is done. By then the lease may have ended or moved to another
    resource, so this row stores what the cleanup needs.
    """

    resource = models.ForeignKey(Resource, on_delete=models.PROTECT, related_name="debts")
    lease = models.ForeignKey(Lease, on_delete=models.PROTECT, related_name="debts")
    facts: models.JSONField[Any, Any] = models.JSONField(default=dict)
    secrets = EncryptedJSONField(default=dict, null=True)
    locks: models.JSONField[Any, Any] = models.JSONField(default=dict)
    holds: models.JSONField[Any, Any] = models.JSONField(default=dict)
    """The ids of the leases that the activation of the lost lease had requested, by their names."""
    tries = models.PositiveIntegerField("attempts", default=0, db_default=0)
    due_at = models.DateTimeField(db_default=Now())
    message = models.TextField(blank=True, default="", db_default="", help_text="Why the last attempt failed.")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name = verbose_name_plural = "deferred cleanup"
        constraints = [models.UniqueConstraint(fields=["resource", "lease"], name="one_debt_per_lease")]

    def __str__(self) -> str:
        return f"leftovers of lease {self.lease_id} on resource {self.resource_id}"
