"""The cost of leases: one row for each period in which a lease held a share of a priced resource."""

from __future__ import annotations

from django.db import models
from django.db.models import Q


class Usage(models.Model):
    """A lease's share of a priced resource, for as long as it was held at that price.

    Triggers write it together with the share, so it is exact even after crashes. If the machine is destroyed after the
    lease, a further row lasts until it is gone. A row names everything and refers to no other row, so it stays when
    leases and resources are pruned and users and blueprints are removed.
    """

    lease_id = models.BigIntegerField()
    lease_name = models.CharField(max_length=255, blank=True, default="", db_default="")
    owner_id = models.BigIntegerField(null=True, blank=True)
    owner = models.CharField(max_length=255, blank=True, default="", db_default="")
    """Empty for the installation itself, which holds what an idle resource needs."""
    group_id = models.BigIntegerField(null=True, blank=True)
    group = models.CharField(max_length=255, blank=True, default="", db_default="")
    """The group that the lease was charged to."""
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
    """US dollars per hour for the whole resource, as of the grant."""
    part = models.FloatField()
    """The fraction of the resource: its slots divided by all slots."""
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    reserved_until = models.DateTimeField(null=True, blank=True)
    """Time until which its price is reserved, for a lease without an end under a budget; empty in the first hour."""
    ends_at = models.DateTimeField(null=True, blank=True)
    """When the lease ends because its budget does not cover another hour."""

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
