"""Shares and slot locks: the amounts and the named parts of a resource that a lease holds."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models.functions import Now

from leases.models.lease import Lease
from leases.models.resource import Resource


class Share(models.Model):
    """The amounts that a lease holds of a resource. Inserting or deleting a share changes the resource's `used_*`."""

    lease = models.OneToOneField(Lease, primary_key=True, on_delete=models.PROTECT, related_name="share")
    resource = models.ForeignKey(Resource, on_delete=models.PROTECT, related_name="shares")
    exclusive = models.BooleanField(default=False, db_default=False)
    """True if the lease holds the whole resource, including any later growth."""
    slots = models.PositiveIntegerField()
    cpu_millicores = models.PositiveBigIntegerField(default=0, db_default=0)
    ram_mib = models.PositiveBigIntegerField(default=0, db_default=0)
    disk_mib = models.PositiveBigIntegerField(default=0, db_default=0)
    extra: models.JSONField[Any, Any] = models.JSONField(default=dict, db_default=models.Value({}, models.JSONField()))
    created_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return f"{self.slots} of resource {self.resource_id}"


class SlotLock(models.Model):
    """An exclusive claim to a named object, such as a port or the UUID of a GPU. The primary key is the lock."""

    key = models.CharField(max_length=255, primary_key=True)
    name = models.CharField(max_length=63, blank=True, default="", db_default="")
    value = models.CharField(max_length=255, blank=True, default="", db_default="")
    """The name under which its holder requested it (`name`), and the candidate that was chosen (`value`)."""
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
