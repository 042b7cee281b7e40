"""The cost and the energy of leases: one row for each period in which a lease held a share of a resource."""

from __future__ import annotations

from django.db import models
from django.db.models import Q


class Usage(models.Model):
    """A period in which a lease held a share of a resource at one price, or all of a resource that measures its power.

    Triggers write the row together with the share, so it is exact even after crashes. If the machine is destroyed
    after the lease, a further row lasts until the machine is gone. The row contains names and no references, so it
    is kept when leases and resources are pruned and users and blueprints are removed.
    """

    lease_id = models.BigIntegerField()
    lease_name = models.CharField(max_length=255, blank=True, default="", db_default="")
    owner_id = models.BigIntegerField(null=True, blank=True)
    owner = models.CharField(max_length=255, blank=True, default="", db_default="")
    """The name of the owner. Empty for a lease that the installation holds because an idle resource needs it."""
    group_id = models.BigIntegerField(null=True, blank=True)
    group = models.CharField(max_length=255, blank=True, default="", db_default="")
    """The name of the group to which the lease was charged."""
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
    """The price of the whole resource when the share was granted, in US dollars per hour; 0 if it has no price."""
    part = models.FloatField()
    """The fraction of the resource that the lease held: its slots divided by all slots."""
    energy_wh = models.FloatField("energy (Wh)", null=True, blank=True)
    """The energy that the resource used in the period, in watt-hours. Empty if it does not measure its power, or if the
    lease did not hold all of it."""
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    reserved_until = models.DateTimeField(null=True, blank=True)
    """Until when the budget reserves the price of a lease without an end. Empty in the first hour."""
    ends_at = models.DateTimeField(null=True, blank=True)
    """The time at which the lease ends because its budget does not cover another hour."""

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
            models.Index(fields=["resource_id", "ended_at"], condition=~Q(energy_wh=None), name="usage_energy"),
        ]

    def __str__(self) -> str:
        return f"lease {self.lease_id} on {self.resource}"
