"""Failures: acts on a resource that did not work, in the provider's words, until they do."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now

from leases.models.lease import Lease
from leases.models.resource import Resource


class Failure(models.Model):
    """The act on a resource that failed last: a destruction that is repeated, a stop, a start, a larger disk.

    Deleted when an act succeeds or the resource is gone.
    """

    resource = models.OneToOneField(Resource, on_delete=models.CASCADE, related_name="failure")
    lease = models.ForeignKey(
        Lease, null=True, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+"
    )
    """The lease that held the whole of it then."""
    act = models.CharField(max_length=16)
    """destroy, stop, start, power-cycle, reboot, resize, change-type or tag."""
    code = models.CharField(max_length=128, blank=True, default="", db_default="")
    """The provider's own word."""
    message = models.TextField()
    attempts = models.PositiveIntegerField(default=1, db_default=1)
    """How many attempts of this act failed since `since`, one after another."""
    since = models.DateTimeField(db_default=Now())
    at = models.DateTimeField(db_default=Now())
    """When the last attempt failed."""

    def __str__(self) -> str:
        return f"{self.act} of resource {self.resource_id}: {self.message}"
