"""Shares and slot locks: what a lease holds of a resource."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models.functions import Now

from leases.models.lease import Lease
from leases.models.resource import Resource


class Share(models.Model):
    """How much of which resource a lease holds. Inserting and deleting it moves the resource's `used_*`."""

    lease = models.OneToOneField(Lease, primary_key=True, on_delete=models.PROTECT, related_name="share")
    resource = models.ForeignKey(Resource, on_delete=models.PROTECT, related_name="shares")
    exclusive = models.BooleanField(default=False, db_default=False)
    """The whole resource, also what it grows by while it is held."""
    slots = models.PositiveIntegerField()
    cpu_millicores = models.PositiveBigIntegerField(default=0, db_default=0)
    ram_mib = models.PositiveBigIntegerField(default=0, db_default=0)
    disk_mib = models.PositiveBigIntegerField(default=0, db_default=0)
    extra: models.JSONField[Any, Any] = models.JSONField(default=dict, db_default=models.Value({}, models.JSONField()))
    created_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return f"{self.slots} of resource {self.resource_id}"


class SlotLock(models.Model):
    """A named exclusive claim (a port, one GPU's UUID); the primary key is the lock."""

    key = models.CharField(max_length=255, primary_key=True)
    name = models.CharField(max_length=63, blank=True, default="", db_default="")
    value = models.CharField(max_length=255, blank=True, default="", db_default="")
    """The name under which its holder asked for it, and what was chosen of the candidates."""
    lease = models.ForeignKey(Lease, null=True, on_delete=models.CASCADE, related_name="slot_locks")
    resource = models.ForeignKey(Resource, null=True, on_delete=models.CASCADE, related_name="slot_locks")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(lease=None) ^ models.Q(resource=None), name="slot_lock_has_one_holder"
            )
        ]

    def __str__(self) -> str:
        return self.key
