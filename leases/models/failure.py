"""Failures: the last failed action on each resource, with the provider's message."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now

from leases.models.lease import Lease
from leases.models.resource import Resource


class Failure(models.Model):
    """The last failed action on a resource, such as a stop, or a destruction that is retried.

    The row is deleted when an action succeeds or the resource is gone.
    """

    resource = models.OneToOneField(Resource, on_delete=models.CASCADE, related_name="failure")
    lease = models.ForeignKey(
        Lease, null=True, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+"
    )
    """The lease that held the whole resource when the action failed."""
    act = models.CharField("action", max_length=63)
    """One of destroy, stop, start, power-cycle, reboot, resize, change-type and tag, or the name of a declared act."""
    code = models.CharField(max_length=128, blank=True, default="", db_default="")
    """The provider's error code."""
    message = models.TextField()
    attempts = models.PositiveIntegerField(default=1, db_default=1)
    """Number of attempts at this action that have failed in a row since `since`."""
    since = models.DateTimeField(db_default=Now())
    at = models.DateTimeField(db_default=Now())
    """The time of the last failed attempt."""

    def __str__(self) -> str:
        return f"{self.act} of resource {self.resource_id}: {self.message}"
