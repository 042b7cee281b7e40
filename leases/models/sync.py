"""What is found and heard at providers: discoveries of places, findings about resources, and watches."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models.functions import Now

from blueprints.models import Blueprint
from leases.models.resource import Resource


class Sync(models.Model):
    """The discovery of one place of a blueprint. One worker at a time discovers, holding a token as for a step.

    The place named "" stands for the blueprint itself: kinds that distinguish places name the others there.
    """

    class Source(models.TextChoices):
        READ = "read", "read by Drydock"
        SENT = "sent", "sent in"
        DROPPED = "dropped", "no longer named by the kind"

    blueprint = models.ForeignKey(Blueprint, on_delete=models.CASCADE, related_name="syncs", db_index=False)
    place = models.CharField(max_length=255, blank=True, default="", db_default="")
    source = models.CharField(max_length=16, choices=Source.choices, default=Source.READ, db_default=Source.READ)
    due_at = models.DateTimeField(db_default=Now())
    token = models.UUIDField(null=True, blank=True)
    token_until = models.DateTimeField(null=True, blank=True)
    seen_at = models.DateTimeField(null=True, blank=True, help_text="When the last successful discovery ended.")
    found = models.PositiveIntegerField(default=0, db_default=0)
    message = models.TextField(blank=True, default="", db_default="", help_text="Why the last discovery failed.")
    digest = models.CharField(max_length=64, blank=True, default="", db_default="")
    """Hash of the last report, if nothing is left to do about it; a report with the same hash is not stored again."""
    conflicts: models.JSONField[Any, Any] = models.JSONField(
        default=list, blank=True, db_default=models.Value([], models.JSONField())
    )
    """Conflicts in the last report: reported things that another resource represents already (identity, resource,
    message, since).
    """
    applied_at = models.DateTimeField(null=True, blank=True, help_text="When a report was last stored completely.")

    class Meta:
        verbose_name = "discovery"
        verbose_name_plural = "discoveries"
        constraints = [models.UniqueConstraint(fields=["blueprint", "place"], name="sync_place_once")]

    def __str__(self) -> str:
        return f"discovery of {self.blueprint}" + (f", {self.place}" if self.place else "")


class Finding(models.Model):
    """What the last report of a place says about one resource.

    A value that a report no longer contains is removed from the resource, and values from other sources are kept.
    A trigger deletes the row when the resource is gone.
    """

    resource = models.OneToOneField(Resource, primary_key=True, on_delete=models.CASCADE, related_name="finding")
    sync = models.ForeignKey(Sync, on_delete=models.CASCADE, related_name="findings")
    draft: models.JSONField[Any, Any] = models.JSONField(
        default=dict, db_default=models.Value({}, models.JSONField()), help_text="The draft, without empty fields."
    )

    class Meta:
        verbose_name = "finding"

    def __str__(self) -> str:
        return f"finding about {self.resource}"


class ReportedHardware(models.Model):
    """The hardware in the last report of a place, with the devices that are not ready and therefore no resources."""

    sync = models.OneToOneField(Sync, primary_key=True, on_delete=models.CASCADE, related_name="hardware")
    digest = models.CharField(max_length=64)
    content = models.BinaryField(null=True)
    """The JSON form of `drydock_agent.Hardware`, compressed with gzip. None if it is larger than what is kept."""
    size = models.PositiveIntegerField(help_text="Bytes of the report, unpacked.")
    counts: models.JSONField[Any, Any] = models.JSONField(
        default=dict, blank=True, db_default=models.Value({}, models.JSONField())
    )
    """Number of devices by class, then by readiness, or `failed`."""
    unready = models.PositiveIntegerField(default=0, db_default=0)
    """Number of devices that leases could use, and that are not ready or have failed."""
    changed_at = models.DateTimeField(
        "changed", db_default=Now(), help_text="Since when the reports have said the same."
    )

    class Meta:
        verbose_name = "reported hardware"
        verbose_name_plural = "reported hardware"

    def __str__(self) -> str:
        return f"hardware of {self.sync.place or self.sync.blueprint}"


class ProviderWatch(models.Model):
    """The watch of one place at a provider. One worker at a time watches it, holding a token as for a step."""

    kind = models.CharField(max_length=63)
    credential = models.CharField(max_length=255, blank=True, default="", db_default="")
    place = models.CharField(max_length=255, blank=True, default="", db_default="")
    token = models.UUIDField(null=True, blank=True)
    token_until = models.DateTimeField(null=True, blank=True)
    worker = models.CharField(max_length=255, blank=True, default="", db_default="", help_text="Worker that watches.")
    bookmark = models.TextField(blank=True, default="", db_default="")
    """From where the watch resumes; stored in the transaction that wakes the steps of the changes before it."""
    started_at = models.DateTimeField(null=True, blank=True, help_text="Since when the worker has watched.")
    event_at = models.DateTimeField(null=True, blank=True, help_text="When a change was last reported.")
    listed_at = models.DateTimeField(null=True, blank=True, help_text="When a listing last ended.")
    failing_since = models.DateTimeField(null=True, blank=True)
    message = models.TextField(blank=True, default="", db_default="", help_text="Why the watch fails.")

    class Meta:
        verbose_name = "watch"
        verbose_name_plural = "watches"
        constraints = [models.UniqueConstraint(fields=["kind", "credential", "place"], name="watch_place_once")]

    def __str__(self) -> str:
        return " ".join(filter(None, (self.kind, self.credential, self.place)))
