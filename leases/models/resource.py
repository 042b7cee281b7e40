"""Resources: things with capacity that leases share."""

from __future__ import annotations

from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from blueprints.models import Blueprint
from drydock.core.fields import EncryptedJSONField
from leases.states import ResourceState

_CLAIMABLE = (
    Q(state__in=["pending", "active"])
    & Q(drained=False, quarantined=False, in_maintenance=False)
    & Q(used_slots__lt=F("total_slots"))
)


class Resource(models.Model):
    """A thing with capacity: built, registered, discovered or adopted.

    Triggers change `used_*` when shares are inserted or deleted, and keep it from exceeding `total_*`.
    """

    class Origin(models.TextChoices):
        BUILT = "built"
        REGISTERED = "registered"
        DISCOVERED = "discovered"
        ADOPTED = "adopted"

    blueprint = models.ForeignKey(Blueprint, on_delete=models.PROTECT, related_name="resources")
    type = models.CharField(max_length=63)
    name = models.CharField(max_length=255, blank=True, default="", db_default="")
    origin = models.CharField(max_length=16, choices=Origin.choices, default=Origin.BUILT)
    identity = models.CharField(max_length=255, null=True, blank=True)  # noqa: DJ001 - NULL is not unique
    part_of = models.ForeignKey("self", null=True, blank=True, on_delete=models.PROTECT, related_name="children")
    generation = models.PositiveIntegerField(default=1)

    state = models.CharField(max_length=16, choices=[(s, s) for s in ResourceState], default="pending")
    reason = models.CharField(max_length=32, blank=True, default="", db_default="")
    message = models.TextField(blank=True, default="", db_default="")
    actor = models.CharField(max_length=150, blank=True, default="", db_default="")
    since = models.DateTimeField(db_default=Now())

    attributes: models.JSONField[Any, Any] = models.JSONField(
        default=dict, db_default=models.Value({}, models.JSONField())
    )
    traits = ArrayField(models.CharField(max_length=63), default=list, db_default=[])
    facts: models.JSONField[Any, Any] = models.JSONField(default=dict, db_default=models.Value({}, models.JSONField()))
    secrets = EncryptedJSONField(default=dict, null=True)
    offer = models.CharField(max_length=255, blank=True, default="", db_default="")
    zone = models.CharField(max_length=255, blank=True, default="", db_default="")
    price = models.FloatField(null=True, blank=True)
    metered = models.BooleanField(default=False, db_default=False, editable=False)
    """Whether it has reported the power that it draws. A trigger sets this with its first report of that."""

    total_slots = models.PositiveIntegerField(default=1)
    total_cpu_millicores = models.PositiveBigIntegerField(default=0, db_default=0)
    total_ram_mib = models.PositiveBigIntegerField(default=0, db_default=0)
    total_disk_mib = models.PositiveBigIntegerField(default=0, db_default=0)
    used_slots = models.PositiveIntegerField(default=0, db_default=0)
    used_cpu_millicores = models.PositiveBigIntegerField(default=0, db_default=0)
    used_ram_mib = models.PositiveBigIntegerField(default=0, db_default=0)
    used_disk_mib = models.PositiveBigIntegerField(default=0, db_default=0)

    held_alone = models.BooleanField(default=False, db_default=False)
    """An exclusive lease holds all of it, even if it grows. A trigger changes this only with that lease's share."""
    locality = ArrayField(models.CharField(max_length=100), default=list, db_default=[], blank=True)
    """Its position inside the topmost resource that it is part of, from the widest place to the narrowest."""
    whole_lease_id = models.BigIntegerField(null=True, blank=True, editable=False)
    """The lease that holds it whole, exclusively or by all its slots. Such a lease takes everything below it too.

    Triggers keep this and the next three columns (`migrations/tree.sql`).
    """
    closed_by = ArrayField(models.BigIntegerField(), default=list, db_default=[], editable=False)
    """The resources above it that are closed to new leases of others, nearest first.

    These are held whole, reserved, drained, quarantined, in maintenance, not answering or not in service.
    """
    busy_below = models.IntegerField(default=0, db_default=0, editable=False)
    """The shares of everything below it, and the drained, quarantined and maintained resources there, in total."""
    child_count = models.IntegerField(default=0, db_default=0, editable=False)
    """The resources that are directly part of it."""
    tree_stale = models.BooleanField(default=False, db_default=False, editable=False)
    """`closed_by` is not up to date everywhere below it, because rows were locked. The sweep corrects that."""
    drained = models.BooleanField(default=False, db_default=False)
    quarantined = models.BooleanField(default=False, db_default=False)
    in_maintenance = models.BooleanField(default=False, db_default=False)
    note = models.TextField(blank=True, default="", db_default="")
    claimable = models.GeneratedField(
        expression=models.Case(models.When(_CLAIMABLE, then=True), default=False),
        output_field=models.BooleanField(),
        db_persist=True,
    )
    reserved_for = models.ForeignKey(
        "leases.Lease", null=True, blank=True, on_delete=models.SET_NULL, related_name="+", db_index=False
    )
    """The pending lease for which this resource is reserved. No other lease may claim the resource."""

    observed = models.CharField(max_length=32, blank=True, default="", db_default="")
    observed_at = models.DateTimeField(null=True, blank=True)
    changed = models.BooleanField(default=False, db_default=False, editable=False)
    """A watch has reported a change of it since its last health check began."""
    power = models.CharField(max_length=16, blank=True, default="", db_default="")
    power_wanted = models.CharField("requested power", max_length=16, blank=True, default="", db_default="")
    power_at = models.DateTimeField(null=True, blank=True)
    """When to switch the power again if it differs from the wanted state; empty means at once."""
    check_failures = models.PositiveIntegerField(default=0, db_default=0)
    check_at = models.DateTimeField(null=True, blank=True)
    registration: models.JSONField[Any, Any] = models.JSONField(
        default=dict, blank=True, db_default=models.Value({}, models.JSONField())
    )
    """The fields of its registration, so that they can be corrected; empty if it was not registered."""
    suspect_since = models.DateTimeField(null=True, blank=True)
    """Since when it has not answered or has failed its first check. It serves no new lease until it answers."""
    missed = models.PositiveIntegerField("missed discoveries", default=0, db_default=0)
    """Consecutive discoveries that did not find it."""

    credential_fields = ArrayField(models.CharField(max_length=63), default=list, db_default=[], blank=True)
    """The names of the secrets in its own credential (`ResourceCredential`); empty if it has none."""
    no_reboots = models.TextField(blank=True, default="", db_default="")
    """Why maintenance must not reboot or power-cycle it now, as an operator said; empty if it may."""
    health = models.CharField(
        max_length=16, choices=[(s, s) for s in ("ok", "degraded", "failed")], default="ok", db_default="ok"
    )
    """A resource that is not ok serves new leases only as a last resort. Failed ones are also taken out of service."""
    health_reason = models.TextField(blank=True, default="", db_default="")

    idle_since = models.DateTimeField(null=True, blank=True, db_default=Now())
    dies_at = models.DateTimeField(null=True, blank=True)
    """The time at which the provider or the maximum lifetime ends the resource. No lease on it may last longer."""
    gone_at = models.DateTimeField(null=True, blank=True)
    """The time at which it was confirmed that the resource no longer exists. Until then, it counts towards limits."""
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(
                fields=["blueprint", "identity"],
                condition=Q(gone_at=None),
                name="resource_identity_once",
            ),
        ]
        indexes = [
            models.Index(fields=["type", "id"], condition=Q(claimable=True, closed_by=[]), name="resource_open"),
            models.Index(
                fields=["type", "id"], condition=Q(claimable=True, closed_by=[], health="ok"), name="resource_healthy"
            ),
            models.Index(fields=["type", "id"], condition=~Q(health="ok") & Q(gone_at=None), name="resource_unhealthy"),
            models.Index(
                fields=["type", "id"],
                condition=Q(claimable=True, closed_by=[], busy_below=0) & ~Q(idle_since=None),
                name="resource_whole",
            ),
            models.Index(fields=["id"], condition=Q(tree_stale=True), name="resource_tree_stale"),
            models.Index(fields=["blueprint", "state"], condition=Q(gone_at=None), name="resource_there"),
            GinIndex(fields=["attributes"], opclasses=["jsonb_path_ops"], name="resource_attributes", fastupdate=False),
            models.Index(fields=["check_at"], condition=Q(state="active"), name="resource_check_due"),
            models.Index(
                fields=["blueprint", "idle_since"],
                condition=Q(gone_at=None) & ~Q(idle_since=None),
                name="resource_spare",
            ),
            models.Index(fields=["blueprint", "generation"], condition=Q(state="active"), name="resource_generation"),
            models.Index(fields=["dies_at"], condition=Q(state="active") & ~Q(dies_at=None), name="resource_dies"),
            models.Index(fields=["id"], condition=Q(in_maintenance=True), name="resource_in_maintenance"),
            models.Index(fields=["id"], condition=Q(state="active", drained=True), name="resource_drained"),
            models.Index(
                fields=["type", "total_cpu_millicores"],
                condition=Q(claimable=True, total_cpu_millicores__gt=0),
                name="resource_cpu",
            ),
            models.Index(
                fields=["type", "total_ram_mib"], condition=Q(claimable=True, total_ram_mib__gt=0), name="resource_ram"
            ),
            models.Index(
                fields=["type", "total_disk_mib"],
                condition=Q(claimable=True, total_disk_mib__gt=0),
                name="resource_disk",
            ),
            models.Index(fields=["type", "total_slots"], condition=Q(claimable=True), name="resource_slots"),
            GinIndex(fields=["traits"], condition=Q(claimable=True), name="resource_traits", fastupdate=False),
            models.Index(fields=["reserved_for"], condition=~Q(reserved_for=None), name="resource_reserved"),
        ]

    def __str__(self) -> str:
        return self.name or f"{self.type} {self.pk}"


class ResourceIdentity(models.Model):
    """One identity of an existing resource, unique within the installation.

    By identities two discoverers notice that they found the same thing. A trigger deletes the row when
    the resource is gone, and another one refuses identities of resources that are gone.
    """

    resource = models.ForeignKey(Resource, on_delete=models.CASCADE, related_name="identities")
    namespace = models.CharField(max_length=63)
    value = models.CharField(max_length=255)

    class Meta:
        verbose_name = "identity"
        verbose_name_plural = "identities"
        constraints = [models.UniqueConstraint(fields=["namespace", "value"], name="thing_once")]

    def __str__(self) -> str:
        return f"{self.namespace} {self.value}"


class ResourceCredential(models.Model):
    """The secrets of one resource, such as those of its BMC. They are encrypted, never shown, and deleted with it."""

    resource = models.OneToOneField(Resource, on_delete=models.CASCADE, primary_key=True, related_name="credential")
    secrets = EncryptedJSONField(default=dict)
    changed_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return f"credential of {self.resource_id}"


class Capacity(models.Model):
    """A further class of a resource's capacity: GPU memory, licences, bandwidth."""

    resource = models.ForeignKey(Resource, on_delete=models.CASCADE, related_name="capacities")
    name = models.CharField(max_length=63)
    total = models.PositiveBigIntegerField()
    used = models.PositiveBigIntegerField(default=0, db_default=0)

    class Meta:
        verbose_name_plural = "capacities"
        constraints = [models.UniqueConstraint(fields=["resource", "name"], name="capacity_once")]

    def __str__(self) -> str:
        return f"{self.name}: {self.used} of {self.total}"


class Part(models.Model):
    """A named part of a resource, claimed by name through a slot lock: one GPU, one port, one virtual function."""

    resource = models.ForeignKey(Resource, on_delete=models.CASCADE, related_name="parts")
    part_class = models.CharField(max_length=63)
    identity = models.CharField(max_length=255)
    state = models.CharField(max_length=16, default="ok", db_default="ok")
    attributes: models.JSONField[Any, Any] = models.JSONField(
        default=dict, db_default=models.Value({}, models.JSONField())
    )

    class Meta:
        constraints = [models.UniqueConstraint(fields=["resource", "part_class", "identity"], name="part_once")]

    def __str__(self) -> str:
        return f"{self.part_class} {self.identity}"


class SensorReport(models.Model):
    """The readings of all sensors of a resource at one time, as a step reported them.

    A trigger adds the energy used since the report before to the usage of the lease that holds the whole resource
    (`migrations/energy.sql`). Reports are deleted after `sensor_retention_hours`; the energy is kept.
    """

    resource = models.ForeignKey(Resource, on_delete=models.CASCADE, related_name="sensor_reports", db_index=False)
    at = models.DateTimeField("read", help_text="By the clock of the worker that read the sensors.")
    power_watts = models.FloatField("power (W)", null=True, blank=True)
    """The power that the whole resource draws; empty if it is not measured."""
    longest_gap = models.FloatField(
        help_text="Energy is computed if the report before is at most this old, in seconds."
    )
    readings: models.JSONField[Any, Any] = models.JSONField(default=list)
    """A list [name, value or null, unit, state] for each sensor."""

    class Meta:
        ordering = ["-id"]
        constraints = [
            # Not a number is larger than any number in PostgreSQL, so this refuses it.
            models.CheckConstraint(
                condition=Q(power_watts=None) | Q(power_watts__gte=0, power_watts__lte=1e6),
                name="sensor_power_possible",
            ),
        ]
        indexes = [
            models.Index(fields=["resource", "id"], name="sensors_of_resource"),
            models.Index(fields=["at"], name="sensors_at"),
        ]

    def __str__(self) -> str:
        return f"sensors of resource {self.resource_id} at {self.at:%Y-%m-%d %H:%M:%S} UTC"
