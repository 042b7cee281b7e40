"""Events: records of what happened to which object, why, by whom, and how long the previous state lasted."""

from __future__ import annotations

from typing import Any

from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


class Event(models.Model):
    """A record of something that happened. Database triggers write the events of all transitions.

    References have no constraint, because an event is kept longer than the objects to which it refers.
    """

    at = models.DateTimeField(db_default=Now())
    kind = models.CharField(max_length=32)
    lease = models.ForeignKey(
        "leases.Lease", null=True, on_delete=models.DO_NOTHING, db_constraint=False, related_name="events"
    )
    resource = models.ForeignKey(
        "leases.Resource", null=True, on_delete=models.DO_NOTHING, db_constraint=False, related_name="events"
    )
    blueprint = models.ForeignKey(
        "blueprints.Blueprint", null=True, on_delete=models.DO_NOTHING, db_constraint=False, related_name="events",
        db_index=False,
    )  # fmt: skip
    from_state = models.CharField(max_length=16, blank=True, default="", db_default="")
    to_state = models.CharField(max_length=16, blank=True, default="", db_default="")
    reason = models.CharField(max_length=32, blank=True, default="", db_default="")
    message = models.TextField(blank=True, default="", db_default="")
    actor = models.CharField(max_length=150, blank=True, default="", db_default="")
    duration = models.DurationField(null=True)
    details: models.JSONField[Any, Any] = models.JSONField(null=True)

    class Meta:
        ordering = ["id"]
        indexes = [
            models.Index(fields=["blueprint"], condition=~Q(blueprint=None), name="event_of_blueprint"),
            BrinIndex(fields=["at"], autosummarize=True, name="event_at"),
        ]

    def __str__(self) -> str:
        return f"{self.at:%H:%M:%S} {self.kind} {self.message}"
