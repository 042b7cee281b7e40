"""What leases have cost: one row for each time that a lease held a share of something with a price."""

from __future__ import annotations

from django.db import models
from django.db.models import Q


class Usage(models.Model):
    """A lease's part of a resource with a price, for as long as it was held at that price.

    Written by triggers with the share itself, so it is exact whatever dies; where the machine is destroyed after the
    lease, a further row until it is gone. It names everything and refers to
    nothing: leases and resources are pruned, users and blueprints removed, and it stays.
    """

    lease_id = models.BigIntegerField()
    lease_name = models.CharField(max_length=255, blank=True, default="", db_default="")
    owner_id = models.BigIntegerField(null=True, blank=True)
    owner = models.CharField(max_length=255, blank=True, default="", db_default="")
    """Empty: the installation itself, for what a resource holds."""
    group_id = models.BigIntegerField(null=True, blank=True)
    group = models.CharField(max_length=255, blank=True, default="", db_default="")
    """The group that it was charged to."""
    blueprint_id = models.BigIntegerField()
    blueprint = models.CharField(max_length=255)
    kind = models.CharField(max_length=63)
    resource_id = models.BigIntegerField()
    resource = models.CharField(max_length=255, blank=True, default="", db_default="")
    type = models.CharField(max_length=63)
    offer = models.CharField(max_length=255, blank=True, default="", db_default="")
    instance_type = models.CharField(max_length=255, blank=True, default="", db_default="")
    place = models.CharField(max_length=255, blank=True, default="", db_default="")
    market = models.CharField(max_length=63, blank=True, default="", db_default="")
    price = models.FloatField()
    """Of the whole resource, in US dollars an hour, as it was when the share was granted."""
    part = models.FloatField()
    """Of the resource, from 0 to 1: its slots of all slots."""
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    reserved_until = models.DateTimeField(null=True, blank=True)
    """Of a lease without an end under a budget: for how long its price is reserved; empty: for the first hour."""
    ends_at = models.DateTimeField(null=True, blank=True)
    """When the lease ends because its budget was not enough for another hour."""

    class Meta:
        verbose_name_plural = "usage"
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["lease_id"], condition=Q(ended_at=None), name="usage_open_once"),
        ]
        indexes = [
            models.Index(fields=["resource_id"], condition=Q(ended_at=None), name="usage_of_resource"),
            models.Index(fields=["owner_id", "ended_at"], name="usage_of_owner"),
            models.Index(fields=["ended_at"], name="usage_ended"),
        ]

    def __str__(self) -> str:
        return f"lease {self.lease_id} on {self.resource}"
