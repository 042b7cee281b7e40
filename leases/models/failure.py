"""Failures: the last failed action on a resource, in the provider's words, kept until an action succeeds."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now

from leases.models.lease import Lease
from leases.models.resource import Resource


class Failure(models.Model):
    """The last failed action on a resource: a destruction that is retried, a stop, a start, a larger disk.

    Deleted when an action succeeds or the resource is gone.
    """

    resource = models.OneToOneField(Resource, on_delete=models.CASCADE, related_name="failure")
    lease = models.ForeignKey(
        Lease, null=True, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+"
    )
    """The lease that held the whole resource at that time."""
    act = models.CharField("action", max_length=16)
    """destroy, stop, start, power-cycle, reboot, resize, change-type or tag."""
    code = models.CharField(max_length=128, blank=True, default="", db_default="")
    """The provider's error code."""
    message = models.TextField()
    attempts = models.PositiveIntegerField(default=1, db_default=1)
    """Consecutive failed attempts at this action since `since`."""
    since = models.DateTimeField(db_default=Now())
    at = models.DateTimeField(db_default=Now())
    """When the last attempt failed."""

    def __str__(self) -> str:
        return f"{self.act} of resource {self.resource_id}: {self.message}"
